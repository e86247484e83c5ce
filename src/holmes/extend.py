"""Add your own loss, encoder, alignment or form of evidence under a name.

From then on the name is a setting: in Python, with `--set`, in a sweep. For the command line, put both into a
file and run `holmes --use FILE.py train …`. See docs/extending.md.
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
from holmes.media.backbones import BUILT_IN
from holmes.media.backbones.own import ENCODERS as ENCODERS_OF_FRAMES
from holmes.media.backbones.own import Frames, OwnEncoder, Sentences
from holmes.training.setup import EVIDENCE_FORMS, EXTRA_ALIGNMENTS, EXTRA_LOSSES
from holmes.transport.alignment import Alignment

Part = TypeVar("Part", bound=Callable[..., Any])


def loss(name: str, term: ExtraLoss) -> None:
    """Add a term of the loss, from `LossInputs` to a number; the setting is `extra="name:weight"`.

    Example:
        >>> from holmes import extend
        >>> extend.loss("small_queries", lambda inputs: inputs.query.query_QD.square().mean())
        >>> holmes.preset("small").with_changes(extra="small_queries:0.1").extra
        ('small_queries:0.1',)
    """
    add("loss.extra", name, term, EXTRA_LOSSES)


def evidence_form(name: str, form: EvidenceForm) -> None:
    """Add a form of evidence: similarities and a temperature → evidence, at least 0; `form="name"`.

    Example:
        >>> from holmes import extend
        >>> extend.evidence_form("gentle", lambda similarity_QV, t: (similarity_QV / t).exp().log1p())
        >>> holmes.preset("small").with_changes(form="gentle").form
        'gentle'
    """
    add("evidence.form", name, form, EVIDENCE_FORMS)


def alignment(name: str, align: Alignment) -> None:
    """Add an alignment of queries and clips; the setting is `alignment__kind="name"`.

    It maps similarities in [0, 1], V × M × C, and the mask of the queries to rows that sum to 1.

    Example:
        >>> from holmes import extend
        >>> extend.alignment("soft", lambda s_VMC, mask_VM: s_VMC.softmax(-1) * mask_VM.unsqueeze(-1))
        >>> holmes.preset("small").with_changes(alignment__kind="soft").kind
        'soft'
    """
    add("alignment.kind", name, align, EXTRA_ALIGNMENTS)


def encoder(name: str, build: Callable[[ModelConfig], HolmesModel]) -> None:
    """Add an encoder: settings → a model that encodes videos and queries; `encoder="name"`.

    Example:
        >>> from holmes import extend
        >>> from holmes.encoders.model import HolmesModel
        >>> extend.encoder("same", lambda config: HolmesModel(config))
        >>> holmes.preset("small").with_changes(encoder="same").encoder
        'same'
    """
    add("model.encoder", name, build, ENCODERS)


def visual_encoder(
    name: str,
    frames: Frames,
    *,
    width: int,
    sentences: Sentences | None = None,
    side: int = 224,
    rate: float = 2.0,
    window: int = 1,
    version: str = "1",
) -> None:
    """Add an encoder of frames: a list of pictures → one row each; `--model name` then uses it.

    Args:
        name: How it is called.
        frames: Pictures, height × width × RGB bytes, to an array of len / `window` rows.
        width: The numbers of a row.
        sentences: Sentences to rows in the same space; without it, the encoder makes features to train on.
        side: The short side, in pixels, of the pictures it wants.
        rate: Pictures per second.
        window: How many pictures make a row.
        version: Change it when the rows change, so that an old index is not searched with new vectors.

    Example:
        >>> from holmes import extend
        >>> tint = lambda pictures: [picture.mean((0, 1)) for picture in pictures]
        >>> extend.visual_encoder("tint", tint, width=3)
    """
    check_name(name)
    if name in BUILT_IN:
        raise HolmesError(f"there already is an encoder '{name}'; choose another name.")
    ENCODERS_OF_FRAMES[name] = OwnEncoder(name, frames, sentences, width, side, rate, window, version)


def check_name(name: str) -> None:
    if not name.isidentifier():
        raise HolmesError(f"'{name}' is not a valid name: use letters, digits and underscores.")


def add(setting: str, name: str, part: Part, parts: MutableMapping[str, Part]) -> None:
    check_name(name)
    if name in NAMES[setting] and name not in OWN[setting]:
        raise HolmesError(f"{setting} already has '{name}'; choose another name.")
    OWN[setting].add(name)
    if name not in NAMES[setting]:
        NAMES[setting].append(name)
    parts[name] = part


OWN: dict[str, set[str]] = {setting: set() for setting in NAMES}  # added here; these may be added again


def load(path: str | Path) -> None:
    """Run a Python file that calls `extend`, as `holmes --use FILE.py` does."""
    path = Path(path).resolve()
    if not path.is_file():
        raise HolmesError(f"{path} does not exist; --use takes a Python file that calls holmes.extend.")
    try:
        runpy.run_path(str(path))
    except HolmesError:
        raise
    except Exception as error:
        raise HolmesError(f"{path} failed: {type(error).__name__}: {error}.") from error
    if path not in FILES:
        FILES.append(path)
