"""The `holmes` command. User mistakes become one line and exit code 2, never a traceback."""

from __future__ import annotations

import errno
import sys

import typer

from holmes.cli import ablate, data, demo, evaluate, extract, index, report, search, sweep, train
from holmes.errors import HolmesError

# Failures of the system that its user can mend.
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
}

app = typer.Typer(
    name="holmes",
    help="Find the video that contains a moment, from one sentence, and know how sure the answer is.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(data.app, name="data")
app.command()(extract.extract)
app.add_typer(index.app, name="index")
app.command()(search.search)
app.command()(train.train)
app.command()(evaluate.evaluate)
app.command()(report.report)
app.command()(ablate.ablate)
app.command()(sweep.sweep)
app.command()(demo.demo)


def main() -> None:
    try:
        app()
    except HolmesError as error:
        fail(str(error), 2)
    except KeyboardInterrupt:
        fail("interrupted; run the same command again to go on.", 130)
    except OSError as error:
        if error.errno not in USERS:
            raise
        fail(f"{error.strerror}: {error.filename or 'the output folder'}.", 2)


def fail(message: str, code: int) -> None:
    print(f"holmes: {message}", file=sys.stderr)
    sys.exit(code)


if __name__ == "__main__":
    main()
