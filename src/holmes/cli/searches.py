"""`holmes searches`: saved searches of an index, and their new matches."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holmes.cli.options import IndexFolder, ModelOfIndex, counted, print_json, say
from holmes.errors import HolmesError

if TYPE_CHECKING:
    from holmes.index.answer.base import SearchIndex
    from holmes.index.answer.notify import Notifier

app = typer.Typer(help="Save searches, and report new videos that match them.", no_args_is_help=True)

Command = Annotated[
    str | None,
    typer.Option(
        metavar="WORDS",
        help="Run a command for each new match, without a shell; it gets the match as JSON.",
    ),
]
Webhook = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Send each new match as JSON to an address of this machine."),
]
AllowHost = Annotated[
    list[str] | None,
    typer.Option(metavar="HOST", help="Another host that --webhook may name. Repeatable."),
]


@app.command()
def add(
    index: IndexFolder,
    sentence: Annotated[str, typer.Argument(metavar="SENTENCE", help="What happens in the moment.")],
    name: Annotated[str | None, typer.Option(help="A short name.", show_default="the sentence")] = None,
    least: Annotated[float, typer.Option(min=0, max=1, help="The minimum probability of a match.")] = 0.5,
    model: ModelOfIndex = None,
) -> None:
    """Save a search; videos that match already are not reported later."""
    from holmes.cluster.index import open_index
    from holmes.index.answer.searches import save_search

    search, now = save_search(open_index(index, device="cpu", model=model), index, sentence, name, least)
    for match in now:
        say(str(match))
    say(f"saved '{search.name}': {counted(len(now), 'video')} with at least {least:.0%} now")


@app.command("list")
def list_searches(
    index: IndexFolder,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the saved searches of an index."""
    from holmes.index.answer.searches import read_searches

    check_index(index)
    searches = read_searches(index)
    if json:
        print_json([search.to_dict() for search in searches])
        return
    for search in searches:
        said = "" if search.sentence == search.name else f": {search.sentence}"
        say(f"{search.name}{said} (at least {search.least:.0%}; {counted(len(search.known), 'known video')})")
    if not searches:
        say(f"no searches are saved; save one: holmes searches add {index} 'a dog runs'")


@app.command()
def remove(
    index: IndexFolder, name: Annotated[str, typer.Argument(metavar="NAME", help="Its name.")]
) -> None:
    """Remove a saved search."""
    from holmes.index.answer.searches import remove_search

    check_index(index)
    remove_search(index, name)
    say(f"removed '{name}'")


@app.command()
def check(
    index: IndexFolder,
    command: Command = None,
    webhook: Webhook = None,
    allow_host: AllowHost = None,
    model: ModelOfIndex = None,
) -> None:
    """Report videos that match a saved search and were not reported before."""
    from holmes.cluster.index import open_index
    from holmes.index.answer.notify import make_notifier

    notifier = make_notifier(command, webhook, allow_host or ())
    found = report_matches(open_index(index, device="cpu", model=model), index, notifier)
    if not found:
        say(f"no new matches: {index}")


def check_index(folder: Path) -> None:
    """Refuse a folder that is no index, before a file is written into it."""
    from holmes.cluster.manifest import is_sharded
    from holmes.index.storage.manifest import read_manifest

    if not is_sharded(folder):
        read_manifest(folder)


def report_matches(opened: SearchIndex, folder: Path, notifier: Notifier) -> int:
    """Report new matches, each once; one that could not be told is tried again the next time."""
    from holmes.index.answer.searches import mark_known, new_matches

    found = new_matches(opened, folder)
    told = []
    for match in found:
        say(f"match {match}")
        if why := notifier.tell(match):
            say(f"not told: {why}")
        else:
            told.append(match)
    if told:
        mark_known(folder, told)
    return len(found)


@dataclass
class Matches:
    """Reports what matches the saved searches of an index; the index is opened once, when it has some."""

    index: Path
    model: str | None
    notifier: Notifier
    opened: SearchIndex | None = None

    def report(self) -> None:
        from holmes.cluster.index import open_index
        from holmes.index.answer.searches import read_searches

        try:
            if not read_searches(self.index):
                return
            if self.opened is None:
                self.opened = open_index(self.index, device="cpu", model=self.model)
            else:
                self.opened.refresh()
            report_matches(self.opened, self.index, self.notifier)
        except HolmesError as error:
            say(f"the saved searches were not asked: {error}")
