"""Films spliced from captioned clips and other footage, by the features of their frames."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from holmes.media.backbones.pocket import Pocket
from holmes.media.feature_folder import VideoFeatures

FILMS = 9


@dataclass(frozen=True)
class Piece:
    """Rows of footage; a name where it is a captioned clip."""

    rows: np.ndarray
    name: str = ""


@dataclass(frozen=True)
class Film:
    pieces: tuple[Piece, ...]

    @property
    def starts(self) -> np.ndarray:
        """The first row of each piece, and where the last one ends."""
        return np.cumsum([0, *(len(piece.rows) for piece in self.pieces)])


def trained_on(splits: Path | None) -> set[str]:
    """A model knows what it was trained on better than anything it will meet: no fair rival for a clip."""
    known = json.loads(splits.read_text()) if splits else {}
    return {name for name, clip in known.items() if clip["split"] == "train"}


def more_clips(pocket: Pocket, file: Path, without: set[str]) -> list[Piece]:
    """Clips of which only the encoder's features are there, one row a second."""
    arrays = np.load(file)
    ends = np.cumsum(arrays["lengths"])
    pieces = []
    for name, start, end in zip(arrays["ids"].tolist(), ends - arrays["lengths"], ends, strict=True):
        if str(name) not in without:
            rows = pocket.see(arrays["features"][start:end].astype(np.float32))
            pieces.append(Piece(np.repeat(rows, round(pocket.rate), axis=0)))
    return pieces


def splice(
    asked: list[Piece], other: list[Piece], seconds: float, seed: int, once: bool = False
) -> list[Film]:
    """Films of a length: the captioned clips dealt out among them, other footage at random in between.

    A film shows a piece again only when it has shown all, and with `once` no two films show the same.
    """
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(asked))
    unseen: list[int] = rng.permutation(len(other)).tolist() if once else []
    films = []
    for number in range(FILMS):
        pieces = [asked[i] for i in order[number::FILMS]]
        missing = seconds * 2 - sum(len(piece.rows) for piece in pieces)
        left = unseen
        while missing > 0:
            if once and not left:
                raise SystemExit(
                    f"the other footage does not fill {FILMS} films of {seconds / 60:g} minutes once"
                )
            left = left or rng.permutation(len(other)).tolist()
            rows = other[left.pop()].rows
            start = 0 if once else rng.integers(len(rows) // 2)  # not the same stretch of it everywhere
            pieces.append(Piece(rows[start:][: int(missing)]))
            missing -= len(pieces[-1].rows)
        films.append(Film(tuple(pieces[i] for i in rng.permutation(len(pieces)))))
    return films


def features_of(name: str, rows: np.ndarray) -> VideoFeatures:
    times = (np.arange(len(rows)) + 0.5) / 2
    return VideoFeatures(name, Path(name), len(rows) / 2, rows, times.astype(np.float32))


def place(name: str, films: list[Film]) -> tuple[int, int]:
    """The film of a hit, and the row where the hit begins in it."""
    film, _, at = name.removeprefix("film").partition("/")
    return int(film), int(films[int(film)].starts[int(at)]) if at else 0
