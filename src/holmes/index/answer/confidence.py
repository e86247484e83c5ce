"""How sure an index is of its answers: by its model's calibration, or by what its owner taught it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from holmes.base.files import read_json, write_json
from holmes.base.manifests import checksum
from holmes.errors import HolmesError
from holmes.evidence.calibration import Calibration, read_calibration
from holmes.evidence.judging import CalibratedJudge, Judge, UncalibratedJudge
from holmes.evidence.sources import TextEvidence, read_text_evidence
from holmes.index.embedders.protocol import Embedder

FILE = "calibration.json"


def judge_of(folder: Path, embedder: Embedder) -> Judge:
    """The judge of an index's answers."""
    return choose_judge(embedder, read_own(folder, embedder))


def choose_judge(embedder: Embedder, own: Calibration | None) -> Judge:
    """A judge by what the collection was taught (`own`), else by the model's calibration, else by neither."""
    known = own or read_calibration(embedder.calibration, embedder.record["digest"])
    return UncalibratedJudge() if known is None else CalibratedJudge(known)


def calibration_of(judge: Judge) -> Calibration | None:
    """What a judge judges by; None where it has no calibration."""
    return judge.calibration if isinstance(judge, CalibratedJudge) else None


def read_own(folder: Path, embedder: Embedder) -> Calibration | None:
    """What the index's folder says; None where it says nothing, or is about the model it had before."""
    values = read_values(folder / FILE)
    return None if values is None else own_calibration(values, embedder.record["digest"], folder / FILE)


def read_values(path: Path) -> Any:
    """What the file says, if there is one; an earlier version wrote no checksum."""
    if not path.exists():
        return None
    try:
        values = read_json(path)
    except (OSError, HolmesError):
        raise _damaged(path) from None
    if isinstance(values, dict) and "checksum" in values and values.pop("checksum") != checksum(values):
        raise _damaged(path)
    return values


def write_values(path: Path, values: dict[str, Any]) -> None:
    write_json(path, {**values, "checksum": checksum(values)})


def own_calibration(values: Any, digest: str, path: Path | str) -> Calibration | None:
    """The calibration that `path` holds for the model with this digest; None where it is another's."""
    if isinstance(values, dict) and (values.get("model") != digest or values.get("rough")):
        return None  # earlier versions kept a guess here, marked as rough
    try:
        return read_calibration(values, digest)
    except HolmesError:
        raise _damaged(path) from None


def text_evidence_of(values: Any, path: Path | str) -> TextEvidence:
    """How strongly words count: as the file says, or else as it is shipped."""
    try:
        return read_text_evidence(values.get("text") if isinstance(values, dict) else None)
    except HolmesError:
        raise _damaged(path) from None


def _damaged(path: Path | str) -> HolmesError:
    return HolmesError(f"{path} is damaged; remove it, or run 'holmes index calibrate' again.")
