"""The `holmes` command. User mistakes become one line and exit code 2, never a traceback."""

from __future__ import annotations

import errno
import sys

import typer

from holmes.cli import data, extract, index, search
from holmes.errors import HolmesError

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


def main() -> None:
    try:
        app()
    except HolmesError as error:
        fail(str(error), 2)
    except KeyboardInterrupt:
        fail("interrupted; run the same command again to go on.", 130)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EACCES, errno.EROFS, errno.EDQUOT, errno.ENOENT):
            raise
        fail(f"{error.strerror}: {error.filename or 'the output folder'}.", 2)


def fail(message: str, code: int) -> None:
    print(f"holmes: {message}", file=sys.stderr)
    sys.exit(code)


if __name__ == "__main__":
    main()
