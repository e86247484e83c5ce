"""Baseline confidences: top score, margin, softmax entropy, agreement under dropout.

Each is larger where the answer is surer. None is a probability; a logistic curve fitted on held-out queries
makes it one, so that its calibration can be compared with ours.

Q queries, V videos, P passes
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from holmes.encoders.linear import many_rows
from holmes.encoders.model import HolmesModel
from holmes.encoders.precision import encoder_precision
from holmes.evaluation.scoring import Encoded, chunks, joined, score_all, taken, unit_queries
from holmes.evidence.logistic import fit_logistic
from holmes.records import QueryEmbedding

Floats = NDArray[np.float64]
QuerySource = Callable[[Tensor], tuple[Tensor, Tensor]]  # store indices → token features and lengths

PASSES = 20  # of dropout
QUERY_CHUNK = 2048
EQUALLY_LONG = 128  # queries encoded at once
SHRINKAGE = 1e-3


def top_score(score_QV: Tensor) -> Tensor:
    return score_QV.amax(1)


def margin(score_QV: Tensor) -> Tensor:
    """The difference between the scores of the best and the second video."""
    best_Q2 = score_QV.topk(min(2, score_QV.shape[1])).values
    return best_Q2[:, 0] - best_Q2[:, -1]


def negative_entropy(score_QV: Tensor, temperature: float = 1.0) -> Tensor:
    """Σ p log p of the softmax over the gallery, as a share of log V: -1 where nothing is known."""
    log_p_QV = (score_QV.double() / temperature).log_softmax(1)
    return (log_p_QV.exp() * log_p_QV).sum(1) / max(math.log(score_QV.shape[1]), 1e-12)


def standardised(values_Q: Floats) -> Floats:
    """Values in deviations from the mean over a gallery's queries.

    How far an entropy lies from log V shrinks with V, so that a curve fitted in a small gallery would find no
    query of a large one sure.
    """
    return (values_Q - values_Q.mean()) / max(float(values_Q.std()), 1e-12)


@torch.inference_mode()
def encode_queries(
    model: HolmesModel,
    source: QuerySource,
    queries: NDArray[np.int64],
    encoded: Encoded,
    by_length: bool = False,
) -> Encoded:
    """Other queries, or the same ones in another form, beside videos that are encoded already.

    `by_length` takes a third of the time, and differs from the split's own encoding by rounding.
    """
    device = encoded.owner_Q.device
    with encoder_precision(device), many_rows():  # as the split itself is encoded
        read = (source(index_Q) for index_Q in chunks(queries, QUERY_CHUNK))
        parts = [
            encode_by_length(model, *some) if by_length else unit_queries(model.encode_queries(*some))
            for some in read
        ]
    nobody_Q = torch.zeros(len(queries), dtype=torch.long, device=device)
    return replace(encoded, queries=joined(parts, len(queries)), owner_Q=nobody_Q)


def encode_by_length(model: HolmesModel, tokens_QTD: Tensor, lengths_Q: Tensor) -> QueryEmbedding:
    """Unit vectors of queries. Those of similar length go together, so that little of the work is padding."""
    if model.config.dual_query:  # their tokens are kept, and must be equally many
        return unit_queries(model.encode_queries(tokens_QTD, lengths_Q))
    order_Q = lengths_Q.argsort()
    parts = []
    for some_Q in order_Q.split(EQUALLY_LONG):
        longest = max(1, int(lengths_Q[some_Q[-1]]))
        parts.append(unit_queries(model.encode_queries(tokens_QTD[some_Q, :longest], lengths_Q[some_Q])))
    return taken(joined(parts, len(order_Q)), order_Q.argsort())


def dropout_agreement(
    model: HolmesModel,
    source: QuerySource,
    queries: NDArray[np.int64],
    encoded: Encoded,
    rank: Callable[..., Tensor],
    best_Q: Tensor,
    passes: int = PASSES,
    seed: int = 0,
) -> Tensor:
    """MC-dropout: the share of passes, with the query encoder's dropout on, that find the same best video."""
    same_Q = torch.zeros(len(queries), device=best_Q.device)
    with torch.random.fork_rng(devices=[best_Q.device] if best_Q.device.type == "cuda" else []):
        torch.manual_seed(seed)
        model.train()
        for _ in range(passes):
            again = encode_queries(model, source, queries, encoded, by_length=True)
            same_Q += rank(score_all(again)).argmax(1) == best_Q
        model.eval()
    return same_Q / passes


def logistic_curve(confidence_Q: Floats, correct_Q: NDArray[np.bool_]) -> Callable[[Floats], Floats]:
    """p = σ(a + b x); a little shrinkage keeps it finite."""
    mean, deviation = confidence_Q.mean(), max(confidence_Q.std(), 1e-12)

    def inputs(x_Q: Floats) -> Floats:
        return np.stack([np.ones(len(x_Q)), (x_Q - mean) / deviation], 1)

    fitted_2 = fit_logistic(torch.from_numpy(inputs(confidence_Q)), torch.from_numpy(correct_Q), SHRINKAGE)
    weights_2 = fitted_2.numpy()
    return lambda x_Q: sigmoid(inputs(x_Q) @ weights_2)


def sigmoid(x: Floats) -> Floats:
    return np.asarray(0.5 * (1 + np.tanh(x / 2)))
