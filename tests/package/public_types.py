"""What a user writes, and what a type checker must know of it: mypy checks this file, and nothing runs it.

No `Any` is let through here. A line with `type: ignore` is wrong on purpose: mypy complains if it is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_type

import holmes
from holmes.data.store import Store
from holmes.encoders.checkpoint import Checkpoint
from holmes.results import Interval


def train_and_evaluate() -> None:
    config = holmes.preset("small").with_changes(epochs=2)
    assert_type(config, holmes.HolmesConfig)
    result = holmes.train("STORE", config, "RUN", on_epoch=lambda epoch: print(epoch.select["SumR"]))
    assert_type(result, holmes.TrainingResult)
    assert_type(result.metrics["SumR"], float)
    found = holmes.evaluate("RUN")
    assert_type(found, holmes.Evaluation)
    assert_type(found.reports[0].by["length"]["1-5 words"].metrics, dict[str, float])
    assert_type(found.uncertainty, dict[str, dict[str, Interval]] | None)
    assert_type(holmes.load_checkpoint("RUN"), Checkpoint)
    assert_type(holmes.load_checkpoint("RUN").encoders.rate, float | None)
    assert_type(holmes.queries("RUN").columns["rank"], Sequence[str | int | float | None])
    assert_type(holmes.open_store("STORE"), Store)


def build_and_search() -> None:
    assert_type(holmes.build_index("INDEX", "VIDEOS").added, int)
    answer = holmes.open_index("INDEX", device="cpu").search("a dog runs into the sea")
    assert_type(answer, holmes.Answer)
    assert_type(answer.hits[0].moments[0].start, float)
    assert_type(answer.diagnosis, holmes.Diagnosis)
    assert_type(answer.diagnosis.probability, float | None)
    assert_type(holmes.open_index("INDEX").describe().hours, float)
    assert_type(holmes.connect("http://127.0.0.1:8000").search("a dog"), holmes.Answer)
    try:
        holmes.open_index("nothing")
    except holmes.HolmesError as error:
        assert_type(error, holmes.HolmesError)


def mistakes() -> None:
    holmes.trian  # type: ignore[attr-defined]  # noqa: B018
    holmes.train("STORE", "small", "RUN")  # type: ignore[arg-type]
    holmes.train("STORE", holmes.preset("small"), 3.5)  # type: ignore[arg-type]
