"""Parts of your own: a loss, an encoder, an alignment or an evidence form, by a function and a line.

The line gives the function a name, and from then on settings may use it: in Python, with `--set`, in a sweep.
For the command line, put both into a file and run `holmes --use FILE.py train …`. See docs/extending.md.
"""

from __future__ import annotations

import runpy
from collections.abc import Callable, MutableMapping
from pathlib import Path
from typing import Any, TypeVar

from holmes.config.names import FILES, NAMES
from holmes.config.schema import ModelConfig
from holmes.encoders.build import ENCODERS
from holmes.encoders.model import HolmesModel
from holmes.errors import HolmesError
from holmes.evidence.dirichlet import EvidenceForm
from holmes.losses.objective import ExtraLoss
from holmes.training.setup import EVIDENCE_FORMS, EXTRA_ALIGNMENTS, EXTRA_LOSSES
from holmes.transport.alignment import Alignment

Part = TypeVar("Part", bound=Callable[..., Any])


def loss(name: str, term: ExtraLoss) -> None:
    """`extra="name:weight"`: a term of the loss, from `LossInputs` to a number."""
    add("loss.extra", name, term, EXTRA_LOSSES)


def evidence_form(name: str, form: EvidenceForm) -> None:
    """`form="name"`: evidence from similarities and a temperature; at least 0."""
    add("evidence.form", name, form, EVIDENCE_FORMS)


def alignment(name: str, align: Alignment) -> None:
    """`alignment__kind="name"`: V × M × C similarities in [0, 1], mask of queries → rows that sum to 1."""
    add("alignment.kind", name, align, EXTRA_ALIGNMENTS)


def encoder(name: str, build: Callable[[ModelConfig], HolmesModel]) -> None:
    """`encoder="name"`: settings → a model that encodes videos and queries."""
    add("model.encoder", name, build, ENCODERS)


def add(setting: str, name: str, part: Part, parts: MutableMapping[str, Part]) -> None:
    if not name.isidentifier():
        raise HolmesError(f"'{name}' cannot be the name of a part: use letters, digits and underscores.")
    if name in NAMES[setting] and name not in OWN[setting]:
        raise HolmesError(f"{setting} already has a part called '{name}'; choose another name.")
    OWN[setting].add(name)
    if name not in NAMES[setting]:
        NAMES[setting].append(name)
    parts[name] = part


OWN: dict[str, set[str]] = {setting: set() for setting in NAMES}  # a notebook may define it again


def load(path: str | Path) -> None:
    """Run a Python file that adds parts."""
    path = Path(path).resolve()
    if not path.is_file():
        raise HolmesError(f"{path} does not exist; --use takes a Python file that adds parts of your own.")
    try:
        runpy.run_path(str(path))
    except HolmesError:
        raise
    except Exception as error:
        raise HolmesError(f"{path} failed: {type(error).__name__}: {error}.") from error
    if path not in FILES:
        FILES.append(path)
