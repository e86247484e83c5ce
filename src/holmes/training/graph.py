"""A training step as one CUDA graph: hundreds of kernels, one launch.

The first steps of a stage run as usual, so that everything compiled or allocated lazily is there. The next
one is recorded and from then on replayed on copies of its inputs. Random numbers continue as they would
without it.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from holmes.records import Batch, Stage
from holmes.training.step import StepReport, TrainStep

STEPS_BEFORE = 3


@dataclass(frozen=True)
class Recording:
    graph: torch.cuda.CUDAGraph
    inputs: list[Tensor]
    report: StepReport


class GraphedStep:
    """Called like the step it wraps."""

    def __init__(self, step: TrainStep) -> None:
        self.step = step
        self.stage: Stage | None = None
        self.seen = 0
        self.recording: Recording | None = None

    def __call__(self, batch: Batch, stage: Stage, uniform_QV: Tensor, learning_rate: Tensor) -> StepReport:
        if stage is not self.stage:
            self.stage, self.seen, self.recording = stage, 0, None
        self.seen += 1
        if self.seen <= STEPS_BEFORE:
            return self._aside(batch, stage, uniform_QV, learning_rate)
        if self.recording is None:
            self.recording = self._record(batch, stage, uniform_QV, learning_rate)
        recording = self.recording
        torch._foreach_copy_(recording.inputs, [*tensors_of(batch), uniform_QV, learning_rate])
        recording.graph.replay()
        return StepReport(recording.report.names, recording.report.values_N.clone())

    def _aside(self, *inputs: Any) -> StepReport:
        """Run a step on a stream of its own, as the steps before a recording must be."""
        current, side = torch.cuda.current_stream(), torch.cuda.Stream()
        side.wait_stream(current)
        with torch.cuda.stream(side):
            report = self.step(*inputs)
        current.wait_stream(side)
        return report

    def _record(self, batch: Batch, stage: Stage, uniform_QV: Tensor, learning_rate: Tensor) -> Recording:
        copies = [tensor.clone() for tensor in (*tensors_of(batch), uniform_QV, learning_rate)]
        *batch_copies, uniform_copy, rate_copy = copies
        fixed: dict[str, Any] = dict(zip(tensor_fields(batch), batch_copies, strict=True))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            report = self.step(replace(batch, **fixed), stage, uniform_copy, rate_copy)
        return Recording(graph, copies, report)


def tensor_fields(batch: Batch) -> list[str]:
    return [field.name for field in fields(batch) if isinstance(getattr(batch, field.name), Tensor)]


def tensors_of(batch: Batch) -> list[Tensor]:
    return [getattr(batch, name) for name in tensor_fields(batch)]
