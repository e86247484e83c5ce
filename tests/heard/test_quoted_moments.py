"""The moment of quoted words beside those of the pictures."""

from __future__ import annotations

import pytest

from holmes.heard.passages import Passage, WordSource
from holmes.index.answer.answers import Hit
from holmes.index.answer.words import with_quotes
from holmes.index.engine.passages import FoundWords, WordQuery
from holmes.moments import Moment

PICTURES_LEAD, WORDS_LEAD = (2.0, 1.0, -9.0), (1.0, 2.0, -9.0)


def shown(
    passage: tuple[float, float], seen: list[tuple[float, float]], sources: tuple[float, float, float]
) -> list[tuple[float, float]]:
    moments = tuple(Moment(*span, 0.5) for span in seen)
    said = Passage(*passage, "the train is late", WordSource.SPEECH)
    found = FoundWords("film.mp4", 0, (), (said, None))
    hit = with_quotes(Hit("film.mp4", 0.5, 0.0, 0.5, moments), found, sources, WordQuery.of("train"))
    return [(moment.start, moment.end) for moment in hit.moments]


@pytest.mark.parametrize(
    ("passage", "seen", "expected"),
    [
        ((10.0, 14.0), [(20.0, 25.0)], (10.0, 14.0)),
        ((29.5, 30.0), [(20.0, 30.0)], (28.0, 30.0)),  # the last words of a film
        ((0.0, 0.5), [(20.0, 25.0)], (0.0, 2.0)),  # the first
        ((0.2, 0.7), [(0.0, 1.2)], (0.0, 1.2)),  # a film shorter than a moment
    ],
)
def test_a_moment_of_words_has_two_seconds_and_ends_with_its_film(passage, seen, expected):
    assert shown(passage, seen, WORDS_LEAD)[0] == expected


def test_no_moment_lies_beside_a_better_one():
    seen = [(0.0, 4.0), (6.0, 9.0), (20.0, 25.0)]
    assert shown((8.0, 12.0), seen, WORDS_LEAD) == [(8.0, 12.0), (0.0, 4.0), (20.0, 25.0)]
    assert shown((8.0, 12.0), seen, PICTURES_LEAD) == [(0.0, 4.0), (8.0, 12.0), (20.0, 25.0)]
    assert shown((4.5, 8.0), seen, PICTURES_LEAD) == seen, "half a second behind the best"
