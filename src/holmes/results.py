"""The results of training and evaluation: typed records with `to_dict` for JSON.

Figures are percentages under their usual names: "R@1", "R@5", "R@10", "R@100" and their sum "SumR".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from holmes.base.validation import Count, build
from holmes.errors import HolmesError

if TYPE_CHECKING:
    JsonValue: TypeAlias = "bool | int | float | str | Sequence[JsonValue] | Mapping[str, JsonValue] | None"
    Json: TypeAlias = "dict[str, JsonValue]"
else:  # `build` reads these hints at run time; Any is plain JSON to it
    JsonValue = Any
    Json = dict[str, Any]
METRICS = ("R@1", "R@5", "R@10", "R@100", "SumR")
Figures: TypeAlias = dict[str, float]
# The interval of 95% of the draws; None where there are too few videos.
Bounds: TypeAlias = tuple[float | None, float | None]

T = TypeVar("T")


@dataclass(frozen=True)
class Epoch:
    """One epoch of training, as `metrics.jsonl` has it."""

    epoch: int  # counted from 1
    stage: int  # 1 is the warm-up, 2 calibrates
    loss: Figures  # every part of the loss, and the "total"
    gradient_norm: Figures  # "mean" and "max"
    kinds: Figures  # share of each kind of query
    learning_rate: float
    select: Figures  # on the split that selects the best epoch
    speed: Figures  # seconds, and steps per second

    def to_dict(self) -> Json:
        return asdict(self)


@dataclass(frozen=True)
class TrainingResult:
    """A finished run: its best epoch and that epoch's figures on the test split; `result.json` says so."""

    run: str = field(default="", kw_only=True, compare=False)  # the run's folder; not in the file
    protocol: Literal["honest", "published"]  # how the best epoch was selected
    seed: Count
    epoch: Count  # the best one
    epochs_done: Count
    split: str
    metrics: Figures
    calibrated: bool | None = None  # whether it can say how sure it is; None for older runs
    parameters: Count | None = None  # of the model; None for older runs

    def __post_init__(self) -> None:
        missing = [name for name in METRICS if name not in self.metrics]
        if missing:
            raise HolmesError(f"its metrics lack {', '.join(missing)}.")

    def to_dict(self) -> Json:
        return asdict(self)

    def to_file(self) -> Json:
        """What `result.json` says."""
        return {name: value for name, value in asdict(self).items() if name != "run"}


@dataclass(frozen=True)
class Interval:
    """A figure, and the interval of 95% of the bootstrap's draws; None where one does not exist."""

    value: float | None
    low: float | None = None
    high: float | None = None
    deviation: float | None = None  # over seeds; None for a single run

    @property
    def mean(self) -> float | None:
        """The value, of a figure over seeds."""
        return self.value

    def bounds(self) -> list[float | None]:
        return [self.low, self.high]

    def to_json(self) -> dict[str, float | None]:
        """Of one system."""
        return {"value": self.value, "low": self.low, "high": self.high}

    def to_summary(self) -> dict[str, float | None]:
        """Of a setting over its seeds, as summaries have it."""
        known = {"low": self.low, "high": self.high}
        return {"mean": self.value, "deviation": self.deviation, **known}


def summary_of(figures: Mapping[str, Interval]) -> dict[str, dict[str, float | None]]:
    """The figures of a setting over its seeds, as JSON."""
    return {name: interval.to_summary() for name, interval in figures.items()}


# Ours ("confidence") or a baseline → figure ("aurc", "auroc_top1", "auroc_top10", "ece").
Uncertainty: TypeAlias = dict[str, dict[str, Interval]]


@dataclass(frozen=True)
class GroupReport:
    """A group of queries: its size, its figures and their intervals."""

    queries: int
    metrics: Figures
    intervals: dict[str, Bounds]
    metrics_fitting: Figures | None = None  # where other videos that fit count as right too
    intervals_fitting: dict[str, Bounds] | None = None

    def to_dict(self) -> Json:
        plain: Json = {"queries": self.queries, **self.metrics, "intervals": listed(self.intervals)}
        if self.metrics_fitting is not None and self.intervals_fitting is not None:
            bounds = listed(self.intervals_fitting)
            plain |= {"metrics_fitting": {**self.metrics_fitting}, "intervals_fitting": bounds}
        return plain


@dataclass(frozen=True)
class Partition:
    """How the kinds that training assigns agree with the known ones (rows known, columns found)."""

    kinds: tuple[str, ...]
    confusion: tuple[tuple[int, ...], ...]
    F1: tuple[float, ...]
    macro_F1: float
    chance_macro_F1: float
    accuracy: float


@dataclass(frozen=True)
class RunReport:
    """Everything about one run, or one checkpoint, on one split of a store."""

    run: str
    preset: str
    protocol: str | None  # None for a lone checkpoint
    seed: int | None
    epoch: int | None
    checkpoint: str  # the digest of its weights
    store: str
    collection: str
    trained_on_this_store: bool
    group: str  # the name of its setting in the summary
    split: str
    videos: int
    queries: int
    metrics: Figures
    intervals: dict[str, Bounds]
    by: dict[str, dict[str, GroupReport]]  # breakdown ("kind", "length", "moment_ratio") → group
    metrics_fitting: Figures | None = None  # where other videos that fit count as right too
    intervals_fitting: dict[str, Bounds] | None = None
    localisation: Figures | None = None  # how moments are found, where they are known
    aligned_mass: Figures | None = None  # percent of aligned clips inside the moment
    partition: Partition | None = None
    uncertainty: Uncertainty | None = None  # how far its confidence can be trusted, where that was measured
    uncertainty_details: Json | None = None

    def to_dict(self) -> Json:
        """As JSON, without what is not known of the split."""
        plain: Json = {
            each.name: getattr(self, each.name) for each in fields(self) if each.name not in OPTIONAL
        }
        known = {name: value for name in OPTIONAL if (value := getattr(self, name)) is not None}
        plain |= known | {"intervals": listed(self.intervals)}
        if self.intervals_fitting is not None:
            plain["intervals_fitting"] = listed(self.intervals_fitting)
        if self.partition is not None:
            plain["partition"] = plainly(asdict(self.partition))
        if self.uncertainty is not None:
            plain["uncertainty"] = plain_uncertainty(self.uncertainty)
        plain["by"] = {
            name: {group: report.to_dict() for group, report in groups.items()}
            for name, groups in self.by.items()
        }
        return plain


OPTIONAL = (
    "metrics_fitting", "intervals_fitting", "localisation", "aligned_mass", "partition",
    "uncertainty", "uncertainty_details",
)  # fmt: skip


@dataclass(frozen=True)
class Evaluation:
    """The reports of all runs, and each setting's figures over its seeds."""

    reports: tuple[RunReport, ...]
    summary: dict[str, dict[str, Interval]] = field(default_factory=dict)  # setting → figure
    uncertainty: Uncertainty | None = None  # of the honest protocol, or of the only setting, over its seeds
    uncertainty_by_protocol: dict[str, Uncertainty] = field(default_factory=dict)
    summary_fitting: dict[str, dict[str, Interval]] = field(default_factory=dict)  # of any right video
    over_seeds: Json = field(default_factory=dict)  # setting → its report over its seeds, if it has several

    @property
    def metrics(self) -> Figures:
        """The figures of the first run, or of the only one."""
        return self.reports[0].metrics

    def to_dict(self) -> Json:
        """As `holmes evaluate --json` writes it."""
        summary, fitting = (
            {name: dict[str, JsonValue](summary_of(figures)) for name, figures in each.items()}
            for each in (self.summary, self.summary_fitting)
        )
        reports = [report.to_dict() for report in self.reports]
        plain = evaluation_file(summary, reports, fitting, self.over_seeds)
        if self.uncertainty is not None:
            plain["uncertainty"] = plain_uncertainty(self.uncertainty)
            plain["uncertainty_by_protocol"] = {
                name: plain_uncertainty(found) for name, found in self.uncertainty_by_protocol.items()
            }
        return plain


def evaluation_file(
    summary: Mapping[str, Any],
    reports: Sequence[Any],
    fitting: Mapping[str, Any],
    over_seeds: Mapping[str, Any],
) -> Json:
    """The form of the file that `holmes evaluate --json` writes; what is empty is left out."""
    whole: Json = {"format": "holmes-evaluation", "version": 1, "summary": {**summary}, "reports": [*reports]}
    for name, value in (("summary_fitting", fitting), ("over_seeds", over_seeds)):
        if value:
            whole[name] = {**value}
    return whole


@dataclass(frozen=True)
class PairedDifference(Interval):
    """A figure's difference to the first system on the same drawn videos."""

    p: float = 1.0  # how likely a difference this large is by chance

    def to_json(self) -> dict[str, float | None]:
        return {**super().to_json(), "p": self.p}


@dataclass(frozen=True)
class ComparedSystem:
    """One setting of a comparison, over its seeds."""

    name: str
    seeds: int
    metrics: dict[str, Interval]
    difference: dict[str, PairedDifference] | None = None  # to the first system; None for the first


@dataclass(frozen=True)
class ComparisonReport:
    """Systems side by side on the same queries, as `holmes compare --json` writes them."""

    store: str
    split: str
    queries: int
    systems: tuple[ComparedSystem, ...]
    details: Json = field(repr=False)  # everything, also by kind and length, and the queries won and lost

    def __str__(self) -> str:
        return "\n".join(line for system in self.systems for line in compared_lines(system))

    def to_dict(self) -> Json:
        return self.details


def compared_lines(system: ComparedSystem) -> list[str]:
    """A system's SumR, and each difference to the first system with its interval."""
    runs = f"{system.seeds} run" + "s" * (system.seeds > 1)
    lines = [f"{system.name} ({runs}): SumR {system.metrics['SumR'].value:.1f}"]
    for name, part in (system.difference or {}).items():
        bounds = "" if part.low is None else f"  95% [{part.low:+.1f}, {part.high:+.1f}]"
        lines.append(f"  {name:6} {part.value:+6.1f}{bounds}  p = {part.p:.3f}")
    return lines


def comparison_of(found: Mapping[str, Any]) -> ComparisonReport:
    """The comparison's JSON object as records."""
    systems = tuple(
        ComparedSystem(
            name=each["name"],
            seeds=each["seeds"],
            metrics={name: record_of(Interval, values) for name, values in each["metrics"].items()},
            difference=None
            if each["difference"] is None
            else {name: record_of(PairedDifference, values) for name, values in each["difference"].items()},
        )
        for each in found["systems"]
    )
    return ComparisonReport(found["store"], found["split"], found["queries"], systems, dict(found))


def plain_uncertainty(found: Uncertainty) -> dict[str, JsonValue]:
    return {
        name: {figure: interval.to_json() for figure, interval in figures.items()}
        for name, figures in found.items()
    }


def interval_of(values: Mapping[str, Any]) -> Interval:
    """A figure over seeds as summaries have it."""
    return record_of(Interval, {**values, "value": values["mean"]})


def evaluation_of(found: Mapping[str, Any]) -> Evaluation:
    """The evaluation's JSON object as records."""
    summary, fitting = (
        {
            name: {figure: interval_of(values) for figure, values in figures.items()}
            for name, figures in found.get(part, {}).items()
        }
        for part in ("summary", "summary_fitting")
    )
    reports = tuple(report_of(report) for report in found["reports"])
    uncertainty: Uncertainty | None = build(Uncertainty | None, found.get("uncertainty"))
    by_protocol: dict[str, Uncertainty] = build(
        dict[str, Uncertainty], found.get("uncertainty_by_protocol", {})
    )
    return Evaluation(reports, summary, uncertainty, by_protocol, fitting, found.get("over_seeds", {}))


def report_of(report: Mapping[str, Any]) -> RunReport:
    by = {
        name: {group: group_of(values) for group, values in groups.items()}
        for name, groups in report["by"].items()
    }
    return record_of(RunReport, {**report, "by": by})


def group_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """A group's fields: in JSON its figures are beside its size and its intervals."""
    others = {name: value for name, value in values.items() if name not in METRICS}
    return others | {"metrics": {name: values[name] for name in METRICS}}


def record_of(kind: type[T], values: Mapping[str, Any]) -> T:
    """A record from the values of its fields; other keys are left to other readers."""
    names = [each.name for each in fields(kind)]  # type: ignore[arg-type]
    known: T = build(kind, {name: values[name] for name in names if name in values})
    return known


def listed(bounds: Mapping[str, Bounds]) -> dict[str, JsonValue]:
    return {name: list(pair) for name, pair in bounds.items()}


def plainly(value: Any) -> Any:
    """The value as JSON has it: tuples as lists, paths as text."""
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, tuple | list):
        return [plainly(item) for item in value]
    return {name: plainly(item) for name, item in value.items()} if isinstance(value, dict) else value
