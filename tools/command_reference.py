"""The page of commands, written from the command line itself.

    python tools/command_reference.py            writes docs/commands.md
    python tools/command_reference.py --check    says whether it is up to date

A test compares the page with the commands as they are.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import typer

from holmes.cli.main import app

PAGE = Path(__file__).parent.parent / "docs" / "commands.md"
LEFT_OUT = {"help", "install_completion", "show_completion"}
KINDS = {Path: "PATH", str: "TEXT", int: "N", float: "X"}
HEAD = """# Commands

Every command, argument and option, as `--help` shows them.
This page is written by `python tools/command_reference.py`.

Mistakes are reported in one line, and the exit code is 2. It is 1 if a command did its work but could not
read some files, 130 after Ctrl-C, and 0 otherwise. A stopped command continues when it is given again.
"""


def page() -> str:
    root = typer.main.get_command(app)
    return "\n".join([HEAD, *section(root, "holmes")]).rstrip() + "\n"


def section(command: Any, name: str) -> Iterator[str]:
    """A command and all below it."""
    shown = [param for param in command.params if not getattr(param, "hidden", False)]
    parameters = [param for param in shown if param.name not in LEFT_OUT]
    arguments = [param for param in parameters if param.param_type_name == "argument"]
    options = [param for param in parameters if param.param_type_name == "option"]
    below = getattr(command, "commands", {})
    words = [name, *map(argument, arguments), *["[OPTIONS]"] * bool(options), *["COMMAND …"] * bool(below)]
    yield f"## {name}\n"
    yield f"    {' '.join(words)}\n"
    yield f"{paragraphs(command.help or '')}\n"
    rows = [
        f"| `{term(command, param)}` | {escaped(param.help or '')}{default(param)} |" for param in parameters
    ]
    if rows:
        yield "\n".join(["| | |", "| --- | --- |", *rows]) + "\n"
    for each in below.values():
        yield from section(each, f"{name} {each.name}")


def argument(param: Any) -> str:
    name = (param.metavar or param.name.upper()) + "…" * (param.nargs == -1 and not param.metavar)
    return name if param.required else f"[{name}]"


def term(command: Any, param: Any) -> str:
    if param.param_type_name == "argument":
        return argument(param)
    names = ", ".join([*param.opts, *param.secondary_opts])
    kind = "" if param.is_flag else f" {param.metavar or kind_of(command, param)}"
    return f"{names}{kind}".replace("|", "¦")


def default(param: Any) -> str:
    """What is used where nothing is given, if that is worth a word."""
    shown = param.show_default if isinstance(param.show_default, str) else param.default
    if param.required:
        return " *Required.*" if param.param_type_name == "option" else ""
    if shown is None or shown is False or shown in ([], "") or callable(shown):
        return ""
    return f" *Default: {escaped(str(shown))}.*"


def kind_of(command: Any, param: Any) -> str:
    """What an option takes, by the type of the function's parameter: the innermost one that is not None."""
    hint = get_type_hints(command.callback)[param.name]
    while parts := [part for part in get_args(hint) if part is not type(None)]:
        hint = parts[0]
    return KINDS[hint]


def paragraphs(text: str) -> str:
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))


def escaped(text: str) -> str:
    """Help is plain text: what looks like Markdown or a column must not become one."""
    plain = " ".join(text.split())
    for sign in ("\\", "|", "*", "_", "<", "[", "]"):
        plain = plain.replace(sign, f"\\{sign}")
    return plain


def main() -> None:
    wanted = page()
    if "--check" in sys.argv[1:]:
        if not PAGE.exists() or PAGE.read_text() != wanted:
            sys.exit(f"{PAGE} does not match the commands; run 'python tools/command_reference.py'.")
        return
    PAGE.write_text(wanted)


if __name__ == "__main__":
    main()
