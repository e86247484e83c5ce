"""Training mode against a golden file: how much the outputs vary under dropout, for all sites and for each.

The golden file, made elsewhere, holds the mean and the variance over many passes of frames, clips and
queries. A site is a place where dropout is applied; sites are numbered in the order in which a forward pass
reaches them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from operator import eq
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from holmes.encoders.dropout import dropout, kept_bytes, relu_dropout
from holmes.encoders.model import HolmesModel

PASSES = {"query": 320, "clips": 320, "frames": 80}  # frames have the most elements to average over
ALL_TOLERANCE = 0.03  # tolerance of the variance, all sites together
SITE_TOLERANCE = 0.12  # tolerance of one site's variance, which is smaller and so noisier
MEAN_TOLERANCE = 1.3  # tolerance of means, in deviations by chance alone

BLOCK_SITES = (
    "input", "position", "attention_weights", "attention_output", "feed_forward_inner", "feed_forward_output",
)  # fmt: skip
MIXTURE_SITES = (
    "mixture_attention_weights", "mixture_attention_output", "mixture_feed_forward_inner",
    "mixture_feed_forward_output", "mixing_head",
)  # fmt: skip
SITES = {"query": BLOCK_SITES, "frames": BLOCK_SITES + MIXTURE_SITES, "clips": BLOCK_SITES + MIXTURE_SITES}

Dropout = Callable[[Tensor, float, bool], Tensor | None]
CALLED: list[tuple[str, Dropout]] = [
    ("projection", dropout),
    ("gaussian", dropout),
    ("attention_by_heads", kept_bytes),
    ("blocks", dropout),
    ("blocks", relu_dropout),
    ("mixture", dropout),
    ("mixture", relu_dropout),
]
DROPOUT_CALLS = {f"holmes.encoders.{module}.{function.__name__}": function for module, function in CALLED}


@contextmanager
def active_sites(active: Callable[[int], bool]) -> Iterator[Callable[[], int]]:
    """Dropout only where `active` says so, by the number of the site; the result counts the sites passed."""
    passed = 0

    def switched(function: Dropout) -> Callable[..., Tensor | None]:
        def call(values: Tensor, rate: float, training: bool) -> Tensor | None:
            nonlocal passed
            passed += 1
            return function(values, rate, training and active(passed - 1))

        return call

    def count() -> int:
        nonlocal passed
        sites, passed = passed, 0
        return sites

    patches = [patch(name, switched(function)) for name, function in DROPOUT_CALLS.items()]
    for each in patches:
        each.start()
    try:
        yield count
    finally:
        for each in patches:
            each.stop()


class Encoders:
    """The three encoders of a golden model in training mode, one by one."""

    def __init__(self, golden: Any) -> None:
        rate = float(golden.arrays["rate"])
        self.model = HolmesModel(replace(golden.config.model, dropout=rate)).train()
        self.model.load_state_dict(golden.model.state_dict())
        self.golden = golden
        self.frame_mask_VF = golden.tensor("batch/frame_mask").bool()

    def encode(self, part: str) -> Tensor:
        model, tensor = self.model, self.golden.tensor
        if part == "query":
            return model.encode_queries(tensor("batch/query_tokens"), self.golden.token_lengths_Q).query_QD
        if part == "clips":
            clips_VCD: Tensor = model.clip_branch(tensor("batch/clips"))
            return clips_VCD
        frames_VFD: Tensor = model.frame_branch(tensor("batch/frames"), self.frame_mask_VF)
        return frames_VFD

    def valid(self, part: str, values: Tensor) -> Tensor:
        return values[self.frame_mask_VF] if part == "frames" else values

    @torch.no_grad()
    def moments(self, part: str, passes: int, active: Callable[[int], bool] | None) -> tuple[Tensor, Tensor]:
        """Mean and variance of the valid elements over the passes; all sites are on unless told otherwise."""
        with active_sites(active or (lambda _: True)) as sites_passed:
            values = []
            for _ in range(passes):
                values.append(self.valid(part, self.encode(part)))
                found = sites_passed()
                if found != len(SITES[part]):
                    raise AssertionError(f"{part}: dropout falls on {found} sites, not {len(SITES[part])}.")
        stacked = torch.stack(values).double()
        return stacked.mean(0), stacked.var(0)


def dropout_rows(golden: Any, row: Callable[..., Any]) -> Iterator[Any]:
    """The rows of the table: means and variances with every site on, then each site's variance alone."""
    encoders = Encoders(golden)
    golden_passes = int(golden.arrays["passes"])
    for part, sites in SITES.items():
        passes = PASSES[part]
        mean, variance = encoders.moments(part, passes, None)
        expected = encoders.valid(part, golden.tensor(f"all/{part}/mean")).double()
        chance = (variance * (1 / passes + 1 / golden_passes)).mean().sqrt()
        apart = (mean - expected).square().mean().sqrt() / chance
        yield row(f"{part}: mean, over chance", float(apart), tolerance=MEAN_TOLERANCE)
        outside = float(golden.arrays[f"all/{part}/variance"])
        yield row(f"{part}: variance", ratio_error(variance, outside), tolerance=ALL_TOLERANCE)
        for number, site in enumerate(sites):
            _, variance = encoders.moments(part, passes, partial(eq, number))
            outside = float(golden.arrays[f"{site}/{part}/variance"])
            error = ratio_error(variance, outside)
            yield row(f"{part}: variance, {site} alone", error, tolerance=SITE_TOLERANCE)


def ratio_error(ours: Tensor, outside: float) -> float:
    return abs(float(ours.mean()) / outside - 1)
