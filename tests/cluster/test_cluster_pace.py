"""A copy counts as slow by how long such answers usually take, not by the clock alone."""

from __future__ import annotations

import numpy as np
import pytest

from holmes.cluster.hedging import Pace


def order(sentences: int) -> tuple[object, ...]:
    return (np.zeros((sentences, 1, 4), np.float32), np.zeros((sentences, 1), np.float32)), 10, 100, None


def test_an_answer_is_late_from_three_times_the_usual_on() -> None:
    pace = Pace()
    assert pace.slow("nearest", order(1), 0.5) == 0.5, "nothing is known yet"
    pace.note("nearest", order(1), [0.01, 0.02, 0.9])
    assert pace.slow("nearest", order(1), 0.5) == 0.5, "quick answers are given the least time"
    pace.note("nearest", order(64), [0.8, 1.0, 1.1, 9.0, 0.9])
    assert pace.slow("nearest", order(64), 0.5) == pytest.approx(3.0)
    assert pace.slow("nearest", order(100), 0.5) == pytest.approx(3.0), "about as many sentences"
    assert pace.slow("nearest", order(1), 0.5) == 0.5, "what many take says nothing about one"
    assert pace.slow("found", order(64), 0.5) == 0.5, "nor about another question"


def test_what_was_usual_long_ago_is_forgotten() -> None:
    pace = Pace()
    pace.note("nearest", order(1), [5.0] * 40)
    pace.note("nearest", order(1), [1.0] * 40)
    assert pace.slow("nearest", order(1), 0.5) == pytest.approx(3.0)


def test_questions_without_sentences_have_a_pace_too() -> None:
    pace = Pace()
    pace.note("durations", (), [2.0])
    pace.note("lengths", (["a", "b"],), [4.0])
    assert pace.slow("durations", (), 0.5) == pytest.approx(6.0)
    assert pace.slow("lengths", (["c", "d"],), 0.5) == pytest.approx(12.0)
