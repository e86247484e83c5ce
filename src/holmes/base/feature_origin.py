"""Which encoders and sampling rate made some features, identified by digest.

A collection says it in `encoders.json`, a store in its manifest, a checkpoint beside its weights: so a model
never gets the features of another encoder, even of one whose features are as wide as its own.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated

from holmes.base.manifests import FileFormat
from holmes.base.validation import PlainName, Size, Within
from holmes.errors import HolmesError

ENCODERS = "encoders.json"  # in the folder of a collection
LEAST_RATE, MOST_RATE = 0.01, 100.0  # samples per second
FORMAT = FileFormat(
    "holmes-encoders", 1, "the encoders of a collection", "remove the file, or write the folder again"
)


@dataclass(frozen=True)
class EncoderRecord:
    """An encoder; `digest` decides whether two are the same."""

    name: str  # load it again by this name
    digest: str  # of the weights and of whatever else decides the numbers
    width: Size


@dataclass(frozen=True)
class FeatureOrigin:
    """Where features come from; None for what is not known, such as for features made elsewhere."""

    visual: EncoderRecord | None = None
    text: EncoderRecord | None = None
    rate: Annotated[float, Within(LEAST_RATE, MOST_RATE)] | None = None  # samples per second


UNKNOWN = FeatureOrigin()


@dataclass(frozen=True)
class CollectionOrigin:
    """What `encoders.json` says: which of the folder's feature sets it is about, and what made them."""

    visual_set: PlainName
    text_set: PlainName
    origin: FeatureOrigin


def write_origin(folder: Path, origin: CollectionOrigin) -> None:
    FORMAT.write(folder / ENCODERS, asdict(origin))


def read_origin(folder: Path, visual_set: str, text_set: str) -> FeatureOrigin:
    """What made these two feature sets of a collection, as far as its folder says."""
    if not (folder / ENCODERS).is_file():
        return UNKNOWN
    recorded = FORMAT.read(folder / ENCODERS, CollectionOrigin)
    origin = recorded.origin
    if recorded.visual_set != visual_set:
        origin = replace(origin, visual=None, rate=None)
    return origin if recorded.text_set == text_set else replace(origin, text=None)


def refuse_other_encoder(
    trained: EncoderRecord | None, found: EncoderRecord | None, whose: str, remedy: str
) -> None:
    """Refuse features of another encoder than the one a model learnt from; pass where either is unknown."""
    if trained is None or found is None or trained.digest == found.digest:
        return
    raise HolmesError(
        f"{whose} learnt from features of '{trained.name}' ({trained.digest[:12]}), these are of "
        f"'{found.name}' ({found.digest[:12]}); {remedy}."
    )
