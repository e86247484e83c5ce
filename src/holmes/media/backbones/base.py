"""The interface of an encoder: frames to rows, sentences to tokens and rows, and its identity."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from holmes.base.validation import Within
from holmes.errors import HolmesError, first_sentence

Image: TypeAlias = npt.NDArray[np.uint8]  # height × width × RGB
Matrix: TypeAlias = npt.NDArray[np.float32]  # rows × width
Index: TypeAlias = npt.NDArray[np.int64]  # positions in a list

LARGEST_TRIAL = 512  # pixels of a picture that an encoder is tried with
SAME_ROWS = 1e-4  # vectors that differ by less are of the same sentence


@dataclass(frozen=True)
class Identity:
    """What an artifact remembers of the encoder that made it; `digest` decides whether two are the same."""

    name: str  # load it again by this name
    digest: str  # of the weights and of whatever else decides the numbers
    width: Annotated[int, Within(1, 1 << 20)]
    joint: bool


@runtime_checkable
class VisualBackbone(Protocol):
    """Turns frames into features.

    `rate` is the number of frames per second that suits it best and `window` how many of them make a row:
    1 for image models, more for models that see motion. `side` is the short side, in pixels, of the frames it
    wants; it takes others too, and scales them itself. Frames more than twice as large are scaled before, to
    twice `side`, or to `scaled_side` where an encoder has that.
    """

    name: str
    width: int
    joint: bool  # its sentences lie in the same space, so cosines between both mean something
    side: int
    rate: float
    window: int

    @property
    def digest(self) -> str:
        """The digest of the weights and of whatever else decides the numbers."""
        ...

    def frames(self, images: Sequence[Image]) -> Matrix:
        """len(images) / window rows of float32."""
        ...


@runtime_checkable
class TextBackbone(Protocol):
    """Turns sentences into features."""

    name: str
    width: int

    @property
    def digest(self) -> str: ...

    def tokens(self, sentences: Sequence[str]) -> list[Matrix]:
        """Each sentence's token states, (its tokens × width): what Holmes trains on."""
        ...

    def sentences(self, sentences: Sequence[str]) -> Matrix:
        """One row per sentence; those of a joint model are compared with its frames by cosine."""
        ...


@runtime_checkable
class JointBackbone(VisualBackbone, TextBackbone, Protocol):
    """Frames and sentences in one space: `joint` is True."""


def encode_in_batches(
    items: Sequence[Any],
    batch: int,
    width: int,
    encode: Callable[[Sequence[Any]], Matrix],
    over: Callable[..., Iterable[Matrix]] = map,
) -> Matrix:
    """The rows of all items; no items give no rows. `over` does what `map` does, perhaps with threads."""
    batches = [items[start : start + batch] for start in range(0, len(items), batch)]
    return np.concatenate([np.zeros((0, width), np.float32), *over(encode, batches)])


def by_length(items: Sequence[Sequence[Any]]) -> list[Index]:
    """The positions of items of equal length, the shortest first."""
    length_N = np.array([len(item) for item in items], np.int64)
    order_N = np.argsort(length_N, kind="stable")
    return np.split(order_N, np.flatnonzero(np.diff(length_N[order_N])) + 1) if len(order_N) else []


def check_reads(encoder: TextBackbone, name: str) -> None:
    """Refuse an encoder that cannot tell two sentences apart: its tokenizer is missing or another model's."""
    try:
        one, other = encoder.sentences(["a dog runs along the beach", "two red cars"])
        differ = float(np.abs(one - other).max()) > SAME_ROWS
    except (IndexError, RuntimeError, ValueError):  # a token beyond the model's vocabulary, or too many
        differ = False
    if not differ:
        raise HolmesError(
            f"'{name}' reads every sentence alike: its tokenizer is missing or belongs to another model; "
            "put the tokenizer's files (tokenizer.json, vocab.json, merges.txt) into its folder."
        )


def check_sees(encoder: VisualBackbone, name: str) -> None:
    """Refuse an encoder that does not keep to the protocol, or cannot tell two pictures apart."""
    side = max(2, min(encoder.side, LARGEST_TRIAL))
    across_1S1 = np.linspace(0, 255, side)[None, :, None]
    grey, brown = (
        np.repeat(across_1S1 * np.array(tint), side, axis=0).astype(np.uint8)
        for tint in ((1.0, 1.0, 1.0), (0.6, 0.4, 0.1))
    )
    pictures = [grey] * encoder.window + [brown[:, ::-1].copy()] * encoder.window
    try:
        rows = encoder.frames(pictures)
    except (IndexError, RuntimeError, ValueError) as error:
        raise HolmesError(f"'{name}' cannot encode a picture ({first_sentence(error)}).") from error
    if not np.isfinite(rows).all() and getattr(encoder, "precision", None) is not None:
        encoder.precision = None  # type: ignore[attr-defined] # half precision overflows in this model
        rows = encoder.frames(pictures)
    if rows.shape != (2, encoder.width):
        raise HolmesError(
            f"'{name}' turned two pictures into an array of shape {rows.shape}; it must be "
            f"(2, {encoder.width})."
        )
    if not np.isfinite(rows).all():
        raise HolmesError(f"'{name}' turns a picture into numbers that are not finite; use another model.")
    if float(np.abs(rows[0] - rows[1]).max()) <= SAME_ROWS * float(np.abs(rows).max()):
        raise HolmesError(f"'{name}' sees two different pictures alike; its weights may not be trained.")


def identify(backbone: VisualBackbone) -> Identity:
    return Identity(backbone.name, backbone.digest, backbone.width, backbone.joint)
