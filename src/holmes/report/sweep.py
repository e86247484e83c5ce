"""`sweep.json`: the figures at every value that was swept in a folder, of one setting or of several together.

It is read again when more is swept, and drawn; so what it says is checked to be something that can be drawn.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

from holmes.base.manifests import FileFormat
from holmes.base.printing import shown
from holmes.base.validation import AtMost, Within, build
from holmes.errors import HolmesError

FORMAT = FileFormat("holmes-sweep", 2, "a sweep", "sweep again", without_checksum=(1,))
Name = Annotated[str, AtMost(200)]
Number = Annotated[float, Within(-1e9, 1e9)]


@dataclass(frozen=True)
class SweptFigure:
    """A figure over seeds."""

    mean: Number
    deviation: Annotated[float, Within(0, 1e9)] | None = None  # None for a single run
    low: Number | None = None
    high: Number | None = None


@dataclass(frozen=True)
class Point:
    """The figures at one value."""

    value: Any
    metrics: dict[Name, SweptFigure]

    def __post_init__(self) -> None:
        _check_value(self.value)
        _check_metrics(self.metrics)


@dataclass(frozen=True)
class Line:
    """One setting at several values."""

    parameter: Name
    setting: Name
    default: Any
    points: list[Point]

    def __post_init__(self) -> None:
        _check_value(self.default)
        if not self.points:
            raise HolmesError("it has no points.")


@dataclass(frozen=True)
class GridPoint:
    """The figures at one combination of values."""

    values: dict[Name, Any]
    metrics: dict[Name, SweptFigure]

    def __post_init__(self) -> None:
        for value in self.values.values():
            _check_value(value)
        _check_metrics(self.metrics)


@dataclass(frozen=True)
class Plane:
    """Several settings at all combinations of their values."""

    settings: list[Name]
    default: dict[Name, Any]
    points: list[GridPoint]

    def __post_init__(self) -> None:
        corners = [tuple(str(corner.values.get(name)) for name in self.settings) for corner in self.points]
        sides = [len(set(values)) for values in zip(*corners, strict=True)]
        whole = all(corner.values.keys() == set(self.settings) for corner in self.points)
        expected = 1
        for side in sides:
            expected *= side
        if not self.settings or not whole or len(set(corners)) != expected or len(corners) != expected:
            raise HolmesError("its points are not all combinations of the settings' values.")


@dataclass(frozen=True)
class Swept:
    """All that was swept in a folder."""

    sweeps: dict[Name, Line] = field(default_factory=dict)
    grids: dict[Name, Plane] = field(default_factory=dict)


def read_sweeps(path: Path) -> dict[str, Any]:
    """What was swept before; a damaged file is refused."""
    return asdict(FORMAT.read(path, Swept)) if path.exists() else asdict(Swept())


def write_sweeps(path: Path, swept: dict[str, Any]) -> None:
    FORMAT.write(path, swept)


def _check_metrics(metrics: dict[str, SweptFigure]) -> None:
    if "SumR" not in metrics:
        raise HolmesError("its metrics lack SumR.")


def _check_value(value: Any) -> None:
    """A value of a setting: a number, a short text, true, false, nothing, or a few of these."""
    items = value if isinstance(value, list | tuple) else [value]
    if len(items) > 64 or not all(isinstance(item, str | int | float | None) for item in items):
        raise HolmesError(f"{shown(value)} is not the value of a setting.")
    for item in items:
        if isinstance(item, str):
            build(Name, item, "value")
        elif item is not None and not isinstance(item, bool):
            build(Number, item, "value")
