"""Load the encoders behind a store, to encode corrupted captions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

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


def find_joint_model(store: Store) -> Callable[[Sequence[str]], NDArray[np.float32]] | None:
    """What makes sentence vectors beside this store's frames; None where no joint model made both."""
    visual, text = store.info.encoders.visual, store.info.encoders.text
    if visual is None or text is None or visual.digest != text.digest:
        return None

    def encode(sentences: Sequence[str]) -> NDArray[np.float32]:
        from holmes.media.backbones import load_text

        model = load_text(text.name)
        if model.digest != text.digest:
            raise HolmesError(
                f"{store.path} was made with another version of '{text.name}' ({text.digest[:12]}, not "
                f"{model.digest[:12]}); make it again."
            )
        return model.sentences(sentences)

    return encode


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
