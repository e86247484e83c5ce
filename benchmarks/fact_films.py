"""A world of films with three kinds of facts: what is seen, what is said, and what is written.

Every film has a scene, a sentence and a sign of its own, and shares another scene, sentence and sign with
other films; what it shares is told apart only by two kinds of facts together. A quarter as many films again
are planned and never made: queries about them are about no film. All is decided by the seed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np

from holmes.errors import HolmesError
from holmes.worlds.rendered import scene_words
from holmes.worlds.rendered.film import VOICES, DrawnSign, SpokenLine, write_spoken_film
from holmes.worlds.rendered.paint import paint_scene

SIZE, FRAMES_PER_SECOND = (320, 240), 6
SCENE_SECONDS = 5.0
QUERIES = 11  # about each film
SHARED_BY = 3  # films that share a scene, a sentence or a sign
ABSENT = 4  # films for each that is planned and not made
WHO = [
    "my grandfather",
    "her uncle",
    "the captain",
    "our teacher",
    "the gardener",
    "a young lawyer",
    "the baker",
    "his sister",
    "the mayor",
    "a tired nurse",
    "the old painter",
    "my neighbour",
    "the pilot",
    "a famous singer",
    "the farmer",
    "our landlord",
]
# What was done, and the same in other words.
DID = (
    ("repaired clocks", "mended watches"),
    ("collected stamps", "gathered postage stamps"),
    ("lost a silver key", "could not find a key made of silver"),
    ("planted twelve apple trees", "put a dozen fruit trees into the ground"),
    ("wrote a letter to the king", "sent a message to the monarch"),
    ("sold the red bicycle", "got money for a bike"),
    ("found a map of the island", "discovered a chart of the isle"),
    ("cooked soup for the soldiers", "made dinner for the troops"),
    ("built a bridge across the river", "constructed a crossing over the stream"),
    ("bought seven yellow umbrellas", "purchased rain shades"),
    ("taught children to swim", "gave swimming lessons"),
    ("broke the kitchen window", "smashed a pane of glass"),
    ("painted the ceiling blue", "coloured the roof of the room"),
    ("studied the stars", "observed the night sky"),
    ("won a medal for dancing", "received a prize as a dancer"),
    ("missed the last train", "came too late for the railway"),
    ("kept bees on the roof", "raised honey insects"),
    ("forgot the password", "did not remember the secret word"),
)
WHERE = [
    "in the village",
    "near the lighthouse",
    "before the war",
    "after the storm",
    "at the hospital",
    "in the library",
    "on the mountain",
    "during the winter",
    "behind the church",
    "at the market",
    "in the desert",
    "by the canal",
    "under the bridge",
    "in the old town",
    "at the airport",
    "before breakfast",
    "on the ferry",
    "after the wedding",
    "near the border",
    "in the mountains",
    "at the zoo",
    "during the night",
    "in the factory",
    "on the island",
]
PLACES = [
    "HARBOUR",
    "MUSEUM",
    "STATION",
    "BAKERY",
    "THEATRE",
    "AIRPORT",
    "GARDEN",
    "SCHOOL",
    "CASTLE",
    "TUNNEL",
    "FACTORY",
    "BRIDGE",
]
STATES = [
    "CLOSED UNTIL MONDAY",
    "OPEN DAILY",
    "NO ENTRY",
    "TICKETS HERE",
    "UNDER REPAIR",
    "FREE PARKING",
    "BEWARE OF DOG",
    "STAFF ONLY",
    "MIND THE GAP",
    "TURN LEFT",
]


@dataclass(frozen=True)
class Appearance:
    """What a film shows for one half: a shape of a colour before a background."""

    colour: str
    shape: str
    background: str


@dataclass(frozen=True)
class Fact:
    """Something that is true of a film between two times."""

    kind: str  # seen, said or written
    text: str
    other_words: str  # the same, as a person might remember it
    start: float
    end: float


@dataclass(frozen=True)
class FactFilm:
    """A film: its own facts, and those that it shares."""

    name: str
    appearances: tuple[Appearance, Appearance]
    own: tuple[Fact, ...]  # seen, said, written
    shared: tuple[Fact, ...]


@dataclass(frozen=True)
class FactQuery:
    kind: str  # what it is about: seen, said, written, two of them; quoted; said or written, bare
    text: str
    film: str | None  # None where no film is meant
    start: float = 0.0
    end: float = 0.0


def plan_facts(films: int, seed: int = 0) -> tuple[list[FactFilm], list[FactQuery]]:
    """Films and the queries about them, and queries of the same forms about films that are not there.

    What such a film has of its own, no film has; of what it shares, no film has two.
    """
    rng = np.random.default_rng(seed)
    absent = films // ABSENT
    groups = -(-films // SHARED_BY)
    appearances = _appearances(rng, films + groups + absent)
    said = _distinct(rng, films + absent + groups, len(WHO), len(DID), len(WHERE))
    signs = _distinct(rng, films + absent + groups, len(PLACES), len(STATES), 90)
    shared_appearances = appearances[films : films + groups]  # no film has these of its own
    shared_said = _distinct(np.random.default_rng(seed + 1000), groups, len(WHO), len(DID), len(WHERE))
    shared_signs = _distinct(np.random.default_rng(seed + 2000), groups, len(PLACES), len(STATES), 90)
    own_appearances = appearances[:films] + appearances[films + groups :]
    quotable = {one[1:] for one in (*said[:films], *shared_said)}  # a quote does not say who
    own_said = said[:films] + [one for one in said[films:] if one[1:] not in quotable]
    own_signs = signs[:films] + [one for one in signs[films:] if one not in shared_signs]
    half, whole = SCENE_SECONDS, 2 * SCENE_SECONDS
    planned = []
    for at, group in enumerate(shared_groups(films, absent)):
        own = (
            _seen(own_appearances[at], 0.0, half, rng),
            _said(own_said[at], 0.2, half),
            _written(own_signs[at], 0.0, half),
        )
        shared = (
            _seen(shared_appearances[group[0]], half, whole, rng),
            _said(shared_said[group[1]], half + 0.1, whole),
            _written(shared_signs[group[2]], half, whole),
        )
        looks = (own_appearances[at], shared_appearances[group[0]])
        planned.append(FactFilm(f"film{at:03}", looks, own, shared))
    queries = [query for film in planned for query in _queries(film)]
    there = films * QUERIES
    return planned[:films], queries[:there] + [replace(query, film=None) for query in queries[there:]]


def render_facts(folder: Path, films: list[FactFilm], seed: int = 0) -> list[Path]:
    """The films as files; those that are there are kept."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for at, film in enumerate(films):
        path = folder / f"{film.name}.mp4"
        paths.append(path)
        if path.exists():
            continue
        rng = np.random.default_rng([seed, at])
        motions = tuple(scene_words.MOTIONS)
        frames = [
            paint_scene(
                appearance.colour,
                appearance.shape,
                appearance.background,
                motions[int(rng.integers(len(motions)))],
                round(SCENE_SECONDS * FRAMES_PER_SECOND),
                SIZE,
                rng,
            )
            for appearance in film.appearances
        ]
        voice = VOICES[int(rng.integers(len(VOICES)))]
        facts = (*film.own, *film.shared)
        part = path.with_suffix(".part.mp4")
        write_spoken_film(
            part,
            np.concatenate(frames),
            FRAMES_PER_SECOND,
            lines=[SpokenLine(fact.start, f"{fact.text}.", voice) for fact in facts if fact.kind == "said"],
            signs=[DrawnSign(fact.start, fact.end, fact.text) for fact in facts if fact.kind == "written"],
        )
        part.replace(path)
    return paths


def _queries(film: FactFilm) -> list[FactQuery]:
    seen, said, written = film.own
    seen2, said2, written2 = film.shared

    def of(kind: str, text: str, fact: Fact) -> FactQuery:
        return FactQuery(kind, text, film.name, fact.start, fact.end)

    quoted = " ".join(said.text.split()[2:])
    return [
        of("seen", seen.other_words, seen),
        of("said", _asked(said), said),
        of("said", said.other_words, said),
        of("quoted", f'"{quoted}"', said),
        of("written", _asked(written), written),
        of("seen and said", f"{seen2.other_words} while someone says {said2.text}", said2),
        of("seen and written", f"{seen2.other_words} and a sign reads {written2.text.lower()}", written2),
        of("said and written", f"someone says {said2.text} and a sign reads {written2.text.lower()}", said2),
        of("said, bare", _bare(said.text), said),
        of("said, bare", _bare(said.other_words), said),
        of("written, bare", _bare(written.text), written),
    ]


def _asked(fact: Fact) -> str:
    return f"someone says {fact.text}" if fact.kind == "said" else f"a sign that reads {fact.text.lower()}"


def _bare(words: str) -> str:
    """Words without saying that they are said or written."""
    return words.lower().removeprefix("someone says that ")


def _seen(appearance: Appearance, start: float, end: float, rng: np.random.Generator) -> Fact:
    shapes, backgrounds = scene_words.SHAPES[appearance.shape], scene_words.BACKGROUNDS[appearance.background]
    text = f"a {appearance.colour} {shapes[int(rng.integers(len(shapes)))]} "
    text += backgrounds[int(rng.integers(len(backgrounds)))]
    return Fact("seen", text, text, start, end)


def _said(at: tuple[int, int, int], start: float, end: float) -> Fact:
    did, other = DID[at[1]]
    text = f"{WHO[at[0]]} {did} {WHERE[at[2]]}"
    return Fact("said", text, f"someone says that {WHO[at[0]]} {other} {WHERE[at[2]]}", start, end)


def _written(at: tuple[int, int, int], start: float, end: float) -> Fact:
    text = f"{PLACES[at[0]]} {STATES[at[1]]} {at[2] + 10}"
    return Fact("written", text, f"a sign that reads {text.lower()}", start, end)


def shared_groups(films: int, absent: int = 0) -> list[tuple[int, int, int]]:
    """For each film, with whom it shares its scene, its sentence and its sign; last, of those not there.

    Any two of these three groups have one film in common at most.
    """
    count = -(-films // SHARED_BY)
    places = [(film // SHARED_BY, film % SHARED_BY) for film in range(films)]
    places += [(film, SHARED_BY) for film in range(absent)]
    for step, shift in product(range(1, count), repeat=2):
        groups = [(at, (at + step * k) % count, (at + shift * k) % count) for at, k in places]
        if all(len({(g[a], g[b]) for g in groups}) == len(groups) for a, b in ((0, 1), (0, 2), (1, 2))):
            return groups
    raise HolmesError(f"{films} films are too few to share facts; plan at least 15.")


def _appearances(rng: np.random.Generator, count: int) -> list[Appearance]:
    every = [
        Appearance(c, s, b)
        for c in scene_words.COLOURS
        for s in scene_words.SHAPES
        for b in scene_words.BACKGROUNDS
    ]
    if count > len(every):
        raise HolmesError(f"{count} different scenes are too many; there are {len(every)}.")
    return [every[int(at)] for at in rng.permutation(len(every))[:count]]


def _distinct(rng: np.random.Generator, count: int, *sizes: int) -> list[tuple[int, int, int]]:
    """Different triples."""
    total = int(np.prod(sizes))
    chosen = rng.permutation(total)[:count]
    first, second, third = (axis.tolist() for axis in np.unravel_index(chosen, sizes))
    return list(zip(first, second, third, strict=True))
