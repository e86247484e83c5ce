"""Do the kinds that training gives to queries agree with the known ones?

Q queries, V videos, B videos of a batch
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from holmes.records import QueryKind, Scores

BATCH_VIDEOS = 128  # uncertainty depends on the number of videos: the usual batch
Identify = Callable[[Scores, Tensor], Tensor]  # both branches' cosines and the owners → kinds


@torch.inference_mode()
def partition(
    cosine: Scores, owner_Q: Tensor, identify: Identify, batch_videos: int = BATCH_VIDEOS, seed: int = 0
) -> NDArray[np.int64]:
    """The kind of every query, found as in training: in batches of videos drawn at random.

    The last batch reaches back to be as large as the others, so a few queries are judged a second time.
    """
    videos, device = cosine.clip_QV.shape[1], owner_Q.device
    order_V = torch.from_numpy(np.random.default_rng(seed).permutation(videos)).to(device)
    kinds_Q = torch.empty_like(owner_Q)
    for start in range(0, videos, batch_videos):
        members_B = order_V[max(0, min(start, videos - batch_videos)) :][:batch_videos]
        place_V = torch.full((videos,), -1, device=device)
        place_V[members_B] = torch.arange(len(members_B), device=device)
        rows_Q = (place_V[owner_Q] >= 0).nonzero().squeeze(1)
        among = Scores(cosine.frame_QV[rows_Q][:, members_B], cosine.clip_QV[rows_Q][:, members_B])
        kinds_Q[rows_Q] = identify(among, place_V[owner_Q[rows_Q]])
    return kinds_Q.cpu().numpy()


def agreement(found_Q: NDArray[np.int64], known_Q: NDArray[np.int8]) -> dict[str, Any] | None:
    """Confusion matrix (rows known, columns found), F1 of each kind, and their mean.

    `chance_macro_F1` is what drawing each query's kind with the found shares would give. None where no kind
    is known.
    """
    rows_Q = known_Q >= 0
    if not rows_Q.any():
        return None
    kinds = len(QueryKind)
    pairs_Q = known_Q[rows_Q].astype(np.int64) * kinds + found_Q[rows_Q]
    confusion = np.bincount(pairs_Q, minlength=kinds * kinds).reshape(kinds, kinds)
    by_chance = np.outer(confusion.sum(1), confusion.sum(0)) / confusion.sum()
    return {
        "kinds": [kind.name.lower() for kind in QueryKind],
        "confusion": confusion.tolist(),
        "F1": f1_scores(confusion).tolist(),
        "macro_F1": float(f1_scores(confusion).mean()),
        "chance_macro_F1": float(f1_scores(by_chance).mean()),
        "accuracy": float(confusion.trace() / confusion.sum()),
    }


def f1_scores(confusion: NDArray[Any]) -> NDArray[np.float64]:
    """2·right / (known + found) of each kind; 0 for a kind that occurs on neither side."""
    return 2 * confusion.diagonal() / np.maximum(confusion.sum(0) + confusion.sum(1), 1e-12)
