"""Turn answers of the API back into records."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from holmes.base.validation import build
from holmes.evidence.judging import Diagnosis
from holmes.heard.passages import Passage
from holmes.index.answer.answers import Answer, Hit, Quote, Timeline
from holmes.index.ingest.file_identity import Duplicate, Moved
from holmes.media.extraction import Failure
from holmes.moments import Moment

# Of a diagnosis; what else a server tells are quantities.
WORDS = ("kind", "words", "explanation", "advice", "probability", "here", "group", "abstained")


class RemoteHit(Hit):
    """A hit whose file is on the server's machine."""

    _gone = False

    @property
    def gone(self) -> bool:
        return self._gone


def summary_of(job: dict[str, Any]) -> dict[str, Any]:
    """The fields of a `BuildSummary` that a finished job tells."""
    return {
        "added": int(job["added"]),
        "unchanged": int(job["unchanged"]),
        "failures": failures_of(job["failures"]),
        "moved": tuple(Moved(e["id"], Path(e["before"]), Path(e["now"])) for e in job["moves"]),
        "duplicates": tuple(Duplicate(Path(each["name"]), Path(each["same_as"])) for each in job["copies"]),
    }


def failures_of(plain: Sequence[dict[str, str]]) -> tuple[Failure, ...]:
    return tuple(Failure(Path(each["name"]), each["reason"]) for each in plain)


def answer_of(plain: dict[str, Any]) -> Answer:
    hits = tuple(hit_of(hit) for hit in plain["hits"])
    told = plain["diagnosis"]
    diagnosis = Diagnosis(
        kind=told["kind"],
        words=told["words"],
        explanation=told["explanation"],
        advice=told["advice"],
        probability=told["probability"],
        here=told["here"],
        group=len(told["group"]),
        probabilities=tuple(hit.probability for hit in hits if hit.probability is not None),
        beliefs=tuple(hit.belief for hit in hits),
        quantities={name: value for name, value in told.items() if name not in WORDS},
    )
    return Answer(plain["query"], diagnosis, hits, told["abstained"], tuple(plain.get("missing", ())))


def hit_of(plain: dict[str, Any]) -> Hit:
    moments = tuple(Moment(each["start"], each["end"], each["score"]) for each in plain["moments"])
    hit = RemoteHit(
        plain["video"],
        plain["score"],
        plain["belief"],
        plain["probability"],
        moments,
        plain.get("fit"),
        tuple(plain.get("because") or ("seen",)),
        tuple(_quote(each) for each in plain.get("quotes") or ()),
    )
    object.__setattr__(hit, "_gone", bool(plain["gone"]))
    return hit


def _quote(plain: dict[str, Any]) -> Quote:
    marks = tuple((int(start), int(end)) for start, end in plain["marks"])
    return Quote(str(plain["kind"]), passage_of(plain), marks)


def passage_of(plain: dict[str, Any]) -> Passage:
    passage: Passage = build(Passage, {name: plain[name] for name in ("start", "end", "text", "source")})
    return passage


def timeline_of(plain: dict[str, Any]) -> Timeline:
    similarity_F = np.asarray(plain["similarity"], np.float32)
    edges = np.linspace(0, plain["duration"], len(similarity_F) + 1)
    return Timeline(similarity_F, np.stack([edges[:-1], edges[1:]], 1))
