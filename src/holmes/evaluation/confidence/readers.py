"""What can read a corrupted caption again, into the token features of a store."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from holmes.data.store import Store
from holmes.errors import HolmesError
from holmes.evaluation.confidence.corruptions import Reader
from holmes.worlds.planted.language import Dictionary, token_vectors


def find_reader(store: Store) -> Reader | None:
    """The text backbone or the planted world behind this store's tokens; None for most stores."""
    if store.info.text.startswith("minilm"):
        from holmes.media.backbones.text import load_minilm

        try:
            return load_minilm().tokens
        except HolmesError:
            return None
    return planted_reader(store)


def planted_reader(store: Store) -> Reader | None:
    """The planted world can read any sentence; None for other stores."""
    recipe = store.info.provenance.get("planted")
    if store.info.collection != "planted" or not isinstance(recipe, dict):
        return None
    dictionary, rng = Dictionary(store.info.text_width), np.random.default_rng(0)

    def read(captions: Sequence[str]) -> list[NDArray[np.float32]]:
        rows, lengths_Q = token_vectors(captions, dictionary, float(recipe["difficulty"]), rng)
        return np.split(rows, np.cumsum(lengths_Q)[:-1])

    return read
