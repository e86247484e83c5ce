"""User-defined encoders, added with `holmes.extend.visual_encoder`."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from holmes.errors import HolmesError
from holmes.media.backbones.base import Image, Matrix

Frames = Callable[[Sequence[Image]], Matrix]
Sentences = Callable[[Sequence[str]], Matrix]


@dataclass
class OwnEncoder:
    """Functions behind the protocol of an encoder; joint where it has `read`."""

    name: str
    see: Frames
    read: Sentences | None
    width: int
    side: int
    rate: float
    window: int
    version: str
    joint: bool = field(init=False)

    def __post_init__(self) -> None:
        self.joint = self.read is not None

    @property
    def digest(self) -> str:
        """Functions have no weights to digest: the name and the stated version identify them."""
        stated = f"own {self.name} {self.version} {self.width} {self.window}"
        return hashlib.sha256(stated.encode()).hexdigest()

    def frames(self, images: Sequence[Image]) -> Matrix:
        return self._checked(self.see(images) if len(images) else None, len(images) // self.window)

    def sentences(self, sentences: Sequence[str]) -> Matrix:
        if self.read is None:
            raise HolmesError(f"'{self.name}' reads no sentences; add it with sentences=….")
        return self._checked(self.read(sentences) if len(sentences) else None, len(sentences))

    def tokens(self, sentences: Sequence[str]) -> list[Matrix]:
        """A sentence is one token."""
        return [row[None] for row in self.sentences(sentences)]

    def _checked(self, rows: Matrix | None, count: int) -> Matrix:
        found = np.zeros((0, self.width), np.float32) if rows is None else np.asarray(rows, np.float32)
        if found.shape != (count, self.width):
            raise HolmesError(
                f"the function of '{self.name}' returned an array of shape {found.shape}; it must be "
                f"({count}, {self.width})."
            )
        return found


ENCODERS: dict[str, OwnEncoder] = {}
