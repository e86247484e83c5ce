"""Saved searches of an index, and the videos that match them.

    INDEX/searches.json    every search by its name, with the matches that are known already

A match is a hit whose probability reaches the search's own threshold. Probabilities are those of a search
over the whole index, so a new video can also lower an older one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated

from holmes.base.locks import wait_for_lock
from holmes.base.manifests import FileFormat
from holmes.base.printing import shown
from holmes.base.validation import AtMost, Within
from holmes.errors import HolmesError, unknown
from holmes.evidence.wording import percent
from holmes.index.answer.answers import Hit
from holmes.index.answer.base import SearchIndex
from holmes.index.answer.request import check_sentence
from holmes.index.storage.store import SEARCHES
from holmes.results import Json

FORMAT = FileFormat("holmes-searches", 1, "saved searches", "remove it, and save the searches again")
MOST = 200  # searches of an index
TOP = 100  # hits that are looked at
LEAST = 0.5  # probability of a match, unless stated
LONGEST_NAME = 100
Name = Annotated[str, AtMost(LONGEST_NAME)]


@dataclass(frozen=True)
class SavedSearch:
    """A sentence that is asked again when videos are added."""

    name: Name
    sentence: Annotated[str, AtMost(500)]
    least: Annotated[float, Within(0, 1)] = LEAST
    known: Annotated[tuple[str, ...], AtMost(100_000)] = ()  # videos that matched before

    def to_dict(self) -> Json:
        """Without the known matches."""
        return {"name": self.name, "sentence": self.sentence, "least": self.least}


@dataclass(frozen=True)
class _SavedSearches:
    """The file."""

    searches: Annotated[tuple[SavedSearch, ...], AtMost(MOST)] = ()

    def __post_init__(self) -> None:
        if len({each.name for each in self.searches}) < len(self.searches):
            raise HolmesError("it has a name twice.")


@dataclass(frozen=True)
class SearchMatch:
    """A video that matches a saved search, and its best moment."""

    search: str
    sentence: str
    video: str
    probability: float
    start: float  # seconds
    end: float

    def to_dict(self) -> Json:
        return asdict(self)

    def __str__(self) -> str:
        where = f"{self.start:.1f}-{self.end:.1f} s"
        return f"{self.search}: {self.video}, {where}, probability {percent(self.probability)}"


def read_searches(folder: Path | str) -> list[SavedSearch]:
    """The saved searches of an index, in the order they were saved."""
    path = Path(folder) / SEARCHES
    return list(FORMAT.read(path, _SavedSearches).searches) if path.exists() else []


def save_search(
    index: SearchIndex, folder: Path | str, sentence: str, name: str | None = None, least: float = LEAST
) -> tuple[SavedSearch, list[SearchMatch]]:
    """Save a search; videos that match it now are returned, and not reported later."""
    check_sentence(sentence)
    name = " ".join((name or sentence).split())[:LONGEST_NAME]
    if not 0 <= least <= 1:
        raise HolmesError(f"least must be a probability, 0 to 1, not {least!r}.")
    search = SavedSearch(name, sentence, float(least))
    now = matches_of(index, search)
    with _changing(folder) as searches:
        if any(each.name == name for each in searches):
            raise HolmesError(f"there is a search named {shown(name)}; remove it first, or use another name.")
        if len(searches) >= MOST:
            raise HolmesError(f"{MOST} searches are saved; remove one first.")
        search = replace(search, known=tuple(match.video for match in now))
        searches.append(search)
    return search, now


def remove_search(folder: Path | str, name: str) -> None:
    with _changing(folder) as searches:
        kept = [each for each in searches if each.name != name]
        if len(kept) == len(searches):
            raise unknown("saved search", name, (each.name for each in searches))
        searches[:] = kept


def new_matches(index: SearchIndex, folder: Path | str) -> list[SearchMatch]:
    """What matches the saved searches and is not known yet; `mark_known` makes it known."""
    return [
        match
        for search in read_searches(folder)
        for match in matches_of(index, search)
        if match.video not in search.known
    ]


def mark_known(folder: Path | str, matches: Iterable[SearchMatch]) -> None:
    """Matches that have been reported, and are not reported again."""
    videos: dict[str, list[str]] = {}
    for match in matches:
        videos.setdefault(match.search, []).append(match.video)
    with _changing(folder) as searches:
        searches[:] = [
            replace(each, known=tuple(dict.fromkeys([*each.known, *videos.get(each.name, ())])))
            for each in searches
        ]


def matches_of(index: SearchIndex, search: SavedSearch) -> list[SearchMatch]:
    """The hits that reach the threshold, most probable first."""
    if not len(index):
        return []
    answer = index.search(search.sentence, TOP)
    if len(index) > 1 and answer.hits and answer.hits[0].probability is None:
        raise HolmesError(
            "this index has no probabilities, which a saved search needs; run 'holmes index calibrate'."
        )
    return [
        SearchMatch(search.name, search.sentence, hit.video, hit.probability, *_best_moment(hit))
        for hit in answer.hits
        if hit.probability is not None and hit.probability >= search.least
    ]


def _best_moment(hit: Hit) -> tuple[float, float]:
    return (hit.moments[0].start, hit.moments[0].end) if hit.moments else (0.0, 0.0)


@contextmanager
def _changing(folder: Path | str) -> Iterator[list[SavedSearch]]:
    """The searches, to be changed inside the block; written when it ends well, by one process at a time."""
    folder = Path(folder)
    with wait_for_lock(folder / f"{SEARCHES}.lock"):
        searches = read_searches(folder)
        before = list(searches)
        yield searches
        if searches != before:
            FORMAT.write(folder / SEARCHES, asdict(_SavedSearches(tuple(searches))))
