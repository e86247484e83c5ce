"""Scores without training: frames and sentences of one joint model, compared as they are.

Q queries, V videos, D width
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from holmes.data.store import Split, Store
from holmes.encoders.tf_prvr import best_frame_scores, moment_scores, moments_of
from holmes.errors import HolmesError, unknown

Videos = list[NDArray[np.floating]]
METHODS: dict[str, Callable[[NDArray[np.float32], Videos], NDArray[np.float32]]] = {
    "zero_shot": best_frame_scores,
    "tf_prvr": lambda query_QD, videos: moment_scores(query_QD, [moments_of(frames) for frames in videos]),
}


def training_free_scores(store: Store, split: Split, method: str) -> NDArray[np.float32]:
    """Q × V by a method that is not trained. The store must hold vectors of one joint model.

    A query is one vector; where a store has several tokens of it, they are not of a joint model.
    """
    if method not in METHODS:
        raise unknown("method", method, METHODS)
    info, starts = store.info, store.token_offsets
    if info.video_width != info.text_width:
        raise HolmesError(
            f"{store.path} has frames of width {info.video_width} and text of width {info.text_width}; "
            f"'{method}' compares them as they are, so both must come from one joint model, such as CLIP."
        )
    if (np.diff(starts)[split.queries] != 1).any():
        raise HolmesError(
            f"{store.path} has several token vectors of a query; '{method}' needs one sentence vector each, "
            "as a joint model gives them."
        )
    query_QD = np.asarray(store.tokens[starts[split.queries]], np.float32)
    frames = [
        np.asarray(store.frames[slice(*store.frame_offsets[video : video + 2])], np.float32)
        for video in split.videos
    ]
    return METHODS[method](query_QD, frames)
