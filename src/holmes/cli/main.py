"""The `holmes` command. User mistakes become one line and exit code 2, never a traceback."""

from __future__ import annotations

import errno
import gc
import io
import os
import sys
from pathlib import Path
from typing import Annotated, NoReturn, cast

import typer

from holmes import __version__
from holmes.base.printing import printable
from holmes.cli import (
    data,
    demo,
    editing,
    evaluate,
    extract,
    index,
    models,
    report,
    reproduce,
    search,
    searches,
    serve,
    studies,
    train,
    try_model,
)
from holmes.errors import HolmesError

# Failures of the system that a user can fix.
USERS = {
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EFBIG,
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.EEXIST,
    errno.ENOTEMPTY,
    errno.ENAMETOOLONG,
    errno.ELOOP,
    errno.EMFILE,
    errno.ENFILE,
    errno.EIO,
}
INTERRUPTED = 130
# What typer raises for wrong options and commands; of these classes it exports only the one for wrong values.
WrongUse = cast("type[typer.BadParameter]", typer.BadParameter.__base__)

app = typer.Typer(
    name="holmes",
    help="Find the video that contains a moment, from one sentence, and know how sure the answer is.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def say_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"holmes {__version__}")
        raise typer.Exit


@app.callback()
def holmes(
    use: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE.py", help="A Python file that calls holmes.extend (docs/extending.md). Repeatable."
        ),
    ] = None,
    version: Annotated[
        bool,
        typer.Option("--version", callback=say_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    """Find the video that contains a moment, from one sentence, and know how sure the answer is."""
    for path in use or ():
        from holmes.extend import load

        load(path)


# How `holmes --help` groups the commands.
VIDEOS, MODELS = "Search videos", "Train and evaluate"

app.command(rich_help_panel=VIDEOS)(search.search)
app.command(rich_help_panel=VIDEOS)(serve.serve)
app.command(rich_help_panel=VIDEOS)(editing.cut)
app.command(rich_help_panel=VIDEOS)(editing.export)
app.command(rich_help_panel=VIDEOS)(editing.chapters)
app.command(rich_help_panel=VIDEOS)(editing.transcript)
app.command(rich_help_panel=VIDEOS)(serve.mcp)
app.command(rich_help_panel=VIDEOS)(models.models)
app.command(rich_help_panel=VIDEOS)(demo.demo)
app.add_typer(index.app, name="index", rich_help_panel=VIDEOS)
app.add_typer(searches.app, name="searches", rich_help_panel=VIDEOS)
app.command(rich_help_panel=MODELS)(extract.extract)
app.command(rich_help_panel=MODELS)(train.train)
app.command(rich_help_panel=MODELS)(studies.tune)
app.command("try", rich_help_panel=MODELS)(try_model.try_model)
app.command(rich_help_panel=MODELS)(evaluate.evaluate)
app.command(rich_help_panel=MODELS)(evaluate.compare)
app.command(rich_help_panel=MODELS)(report.report)
app.command(rich_help_panel=MODELS)(studies.ablate)
app.command(rich_help_panel=MODELS)(studies.sweep)
app.command(rich_help_panel=MODELS)(reproduce.reproduce)
app.command(rich_help_panel=MODELS)(models.push)
app.command(rich_help_panel=MODELS)(models.pull)
app.add_typer(data.app, name="data", rich_help_panel=MODELS)


def main() -> None:
    if os.name != "posix":
        fail("Holmes needs Linux or another POSIX system; on Windows, run it inside WSL.", 2)
    gc.set_threshold(50_000)  # imports create many objects and free few: collecting would cost .3 s
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that lacks a character shows "?"
    try:
        code = app(standalone_mode=False)  # raises what standalone mode would show in a box
    except HolmesError as error:
        fail(str(error), 2)
    except WrongUse as error:
        explain(error)
    except typer.Abort:
        code = INTERRUPTED
    except OSError as error:
        if error.errno not in USERS:
            raise
        fail(f"{error.strerror}{f': {error.filename}' if error.filename else ''}.", 2)
    if "triton" not in sys.modules:  # Triton would report whatever is frozen as a leak
        gc.freeze()  # the process ends: collecting once more would cost .3 s
    if code == INTERRUPTED:  # typer's word for Ctrl-C
        fail("interrupted; run the same command again to continue.", code)
    sys.exit(code)


def explain(error: typer.BadParameter) -> NoReturn:
    """Wrong options and commands: what is wrong and where help is."""
    message = error.format_message()
    if type(error).__name__ == "NoArgsIsHelpError":  # no command was given: the message is the help
        typer.echo(message, nl=False)  # empty where typer has already shown it in colour
        sys.exit(error.exit_code)
    if details := getattr(error.__cause__, "errors", None):  # typer does not say which value is invalid
        message = message.replace("Invalid value for", f"Invalid value '{details()[0]['input']}' for", 1)
    command = error.ctx.command_path if error.ctx else "holmes"
    end = "" if message.endswith((".", "?")) else "."
    hint = ""
    if command.endswith(" search") and "unexpected extra argument" in message:
        hint = ' Put the sentence in quotes: holmes search INDEX "what happens".'
    fail(f"{message}{end}{hint} See '{command} --help'.", error.exit_code)


def fail(message: str, code: int) -> NoReturn:
    print(f"holmes: {printable(message)}", file=sys.stderr)
    sys.exit(code)


if __name__ == "__main__":
    main()
