"""Evaluate published checkpoints on the user's features, to verify the features."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from holmes.base.devices import choose_device
from holmes.base.files import sha256_file
from holmes.base.manifests import FileFormat
from holmes.base.validation import AtMost
from holmes.config.presets import preset
from holmes.config.schema import HolmesConfig
from holmes.data.bank import FeatureBank
from holmes.data.store import Store
from holmes.encoders.released import load_released
from holmes.errors import HolmesError
from holmes.evaluation.recall import retrieval_metrics
from holmes.evaluation.runs.folders import refuse_other_features
from holmes.reproduce.published import COLLECTIONS, curves

FORMAT = FileFormat("holmes-released-figures", 1, "figures of a published checkpoint", "remove the file")
NEAR = 1.0  # SumR; the released code lets padded frames compete, which moves a few queries
Name = Annotated[str, AtMost(4096)]


@dataclass(frozen=True)
class ReleasedFigures:
    """A published checkpoint, evaluated on a store."""

    file: Name
    digest: Name
    preset: Name
    collection: Name
    metrics: dict[Name, float]

    @property
    def difference(self) -> float:
        return self.metrics["SumR"] - curves()[self.preset].best

    def verdict(self) -> str:
        found, printed = self.metrics["SumR"], curves()[self.preset].best
        title = COLLECTIONS[self.collection].title
        start = f"{self.file}: SumR {found:.1f} on these {title} features, published {printed:.1f}"
        if abs(self.difference) <= NEAR:
            return f"{start}: the features are right."
        return f"{start} ({self.difference:+.1f}): the features or the test split differ from the field's."


def evaluate_released(
    files: list[Path], stores: Mapping[str, Store], cache: Path, device_name: str, say: Callable[[str], None]
) -> list[ReleasedFigures]:
    """Evaluate each file on the store it was trained for; files that are something else are named."""
    found = []
    for path in files:
        digest = sha256_file(path)
        try:
            figures = evaluate_one(path, digest, stores, cache, device_name)
        except HolmesError as error:
            say(f"not evaluated: {error}")
            continue
        found.append(figures)
        say(figures.verdict())
    return found


def evaluate_one(
    path: Path, digest: str, stores: Mapping[str, Store], cache: Path, device_name: str
) -> ReleasedFigures:
    known = {store.info.digest[:12]: store for store in stores.values()}
    for key in known:
        saved = cache / f"{digest[:16]}-{key}.json"
        if saved.exists():
            return FORMAT.read(saved, ReleasedFigures)
    checkpoint = load_released(path)
    name = preset_of(checkpoint.config, path)
    collection = next(each.name for each in COLLECTIONS.values() if name in each.presets)
    if collection not in stores:
        raise HolmesError(f"{path} was trained on {COLLECTIONS[collection].title}, which is not used here.")
    store, device = stores[collection], choose_device(device_name)
    refuse_other_features(checkpoint, store)
    split = store.split("test")
    bank = FeatureBank.of_splits(store, device, [split])
    metrics = retrieval_metrics(checkpoint.model.to(device), bank, split, checkpoint.config.score)
    figures = ReleasedFigures(path.name, digest, name, collection, metrics)
    FORMAT.write(cache / f"{digest[:16]}-{store.info.digest[:12]}.json", asdict(figures))
    return figures


def preset_of(config: HolmesConfig, path: Path) -> str:
    """The preset whose temperatures, which differ between all four, a published checkpoint has."""
    if config.model.encoder == "mixture":
        own = config.evidence
        for name in curves():
            ours = preset(name)
            theirs = (ours.evidence.inter_temperature, ours.evidence.intra_temperature)
            same = (own.inter_temperature, own.intra_temperature) == theirs
            if same and config.model.dual_query == ours.model.dual_query:
                return name
    raise HolmesError(f"{path} is a checkpoint, but none of the four published ones of Holmes.")
