"""Scores without training: frames and sentences of one joint model, compared as they are.

Q queries, V videos, D width
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from holmes.data.store import Split, Store
from holmes.encoders.tf_prvr import best_frame_scores, moment_scores, moments_of
from holmes.errors import HolmesError, unknown

Videos = list[NDArray[np.floating]]
Encode = Callable[[Sequence[str]], NDArray[np.float32]]  # sentences to a joint model's vectors
METHODS: dict[str, Callable[[NDArray[np.float32], Videos], NDArray[np.float32]]] = {
    "zero_shot": best_frame_scores,
    "tf_prvr": lambda query_QD, videos: moment_scores(query_QD, [moments_of(frames) for frames in videos]),
}


def training_free_scores(
    store: Store, split: Split, method: str, encode: Encode | None = None
) -> NDArray[np.float32]:
    """Q × V by a method that is not trained. The store must hold vectors of one joint model.

    A query is one vector. Where a store has several tokens of it, `encode` makes one of each sentence.
    """
    if method not in METHODS:
        raise unknown("method", method, METHODS)
    info, starts = store.info, store.token_offsets
    if info.video_width != info.text_width:
        raise HolmesError(
            f"{store.path} has frames of width {info.video_width} and text of width {info.text_width}; "
            f"'{method}' compares them as they are, so both must come from one joint model, such as CLIP."
        )
    if (np.diff(starts)[split.queries] == 1).all():
        query_QD = np.asarray(store.tokens[starts[split.queries]], np.float32)
    elif encode is not None:
        query_QD = np.asarray(encode([store.captions[query] for query in split.queries]), np.float32)
    else:
        raise HolmesError(
            f"{store.path} has several token vectors of a query, and does not name one joint model of its "
            f"frames and sentences; '{method}' needs one sentence vector each. Make the store with 'holmes "
            "data caption --text MODEL', with the model that the frames were extracted with."
        )
    frames = [
        np.asarray(store.frames[slice(*store.frame_offsets[video : video + 2])], np.float32)
        for video in split.videos
    ]
    return METHODS[method](query_QD, frames)
