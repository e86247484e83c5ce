"""The optimiser of the published runs, on one flat buffer with all parameters.

Adam without bias correction, decoupled weight decay, and each tensor's gradient clipped on its own. One
buffer means one update, one all-reduce and one finite check, however many parameters there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from holmes.config.schema import TrainingConfig

if TYPE_CHECKING:
    from holmes.training.optimizer_kernel import Chunks

ALIGNMENT = 64  # elements; keeps every parameter aligned for vectorised loads
MANY_STEPS = 1e9  # the library corrects Adam's bias by the number of steps: after so many there is none


def linear_schedule(step: int, steps: int, warm_up: float) -> float:
    """Share of the peak learning rate at a step: up to 1 over `warm_up` of the run, then down to 0."""
    progress = step / steps
    if progress < warm_up:
        return progress / warm_up
    return max((1 - progress) / (1 - warm_up), 0.0)


def learning_rates(training: TrainingConfig, epoch: int, steps: int) -> Tensor:
    """The learning rate of every step of an epoch."""
    total = steps * training.epochs
    return torch.tensor(
        [
            training.learning_rate * linear_schedule(epoch * steps + step, total, training.lr_warm_up)
            for step in range(steps)
        ]
    )


class FlatAdam:
    """Owns the parameters' memory: after construction every parameter is a view into `self.values`."""

    def __init__(
        self,
        model: nn.Module,
        weight_decay: float = 0.01,
        gradient_norm: float = 1.0,
        betas: tuple[float, float] = (0.9, 0.999),
        tiny: float = 1e-6,
    ) -> None:
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.gradient_norm, self.betas, self.tiny = gradient_norm, betas, tiny
        device = self.parameters[0].device
        sizes = [-(-p.numel() // ALIGNMENT) * ALIGNMENT for p in self.parameters]
        self.offsets = [0, *torch.tensor(sizes).cumsum(0).tolist()]
        total = self.offsets[-1]
        self.values = torch.zeros(total, device=device)
        self.first = torch.zeros(total, device=device)
        self.second = torch.zeros(total, device=device)
        self.gradients = torch.zeros(total, device=device)

        self.stacks = self._stack_counts(model)
        exempt = self._exempt_from_decay(model)
        tensor_index = torch.zeros(total, dtype=torch.int32)
        self.decay = torch.zeros(total, dtype=torch.bool)
        count = 0
        for parameter, offset, stack in zip(self.parameters, self.offsets, self.stacks, strict=False):
            size = parameter.numel()
            part = slice(offset, offset + size)
            self.values[part] = parameter.detach().flatten()
            parameter.data = self.values[part].view_as(parameter)
            tensor_index[part] = torch.arange(count, count + stack).repeat_interleave(size // stack).int()
            self.decay[part] = parameter not in exempt
            count += stack
        self.tensor_index = tensor_index.to(device)
        self.decay = weight_decay * self.decay.float().to(device)
        self.one_pass = device.type == "cpu"
        self.chunks: Chunks | None = None

    def fuse(self) -> None:
        """Update in GPU kernels from now on."""
        from holmes.training.optimizer_kernel import cut

        sizes = [p.numel() // stack for p, stack in zip(self.parameters, self.stacks, strict=True)]
        places = [
            (offset + number * size, size)
            for offset, size, stack in zip(self.offsets, sizes, self.stacks, strict=False)
            for number in range(stack)
        ]
        decay = self.decay.cpu()
        self.chunks = cut(
            [start for start, _ in places],
            [size for _, size in places],
            [float(decay[start]) for start, _ in places],
            self.values.device,
        )

    @torch.no_grad()
    def collect_gradients(self) -> Tensor:
        """Gather every gradient into the flat buffer and forget the originals."""
        torch._foreach_copy_(list(self._views(self.gradients)), [self._gradient(p) for p in self.parameters])
        for parameter in self.parameters:
            parameter.grad = None
        return self.gradients

    @torch.no_grad()
    def step(self, learning_rate: Tensor) -> Tensor:
        """One update from the collected gradients; returns each tensor's gradient norm before clipping."""
        if self.chunks is not None:
            from holmes.training.optimizer_kernel import clipped_update_fused

            buffers = (self.values, self.gradients, self.first, self.second)
            how = (learning_rate, self.gradient_norm, self.betas, self.tiny)
            return clipped_update_fused(*buffers, self.chunks, *how)
        norms_N = torch.stack(torch._foreach_norm(self._tensors(self.gradients)))
        clip_N = (self.gradient_norm / (norms_N + 1e-6)).clamp(max=1)
        buffers = (self.values, self.gradients, self.first, self.second)
        if self.one_pass:
            torch._foreach_mul_(self._tensors(self.gradients), clip_N.tolist())
            adam_update_in_one_pass(*buffers, self.decay, float(learning_rate), *self.betas, self.tiny)
        else:
            by_element = (clip_N, self.tensor_index, self.decay)
            adam_update(*buffers, *by_element, learning_rate, *self.betas, self.tiny)
        return norms_N

    def state_dict(self) -> dict[str, Tensor]:
        return {"first": self.first, "second": self.second}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.first.copy_(state["first"])
        self.second.copy_(state["second"])

    def _gradient(self, parameter: nn.Parameter) -> Tensor:
        return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad

    def _views(self, flat: Tensor) -> Iterator[Tensor]:
        for parameter, offset in zip(self.parameters, self.offsets, strict=False):
            yield flat[offset : offset + parameter.numel()].view_as(parameter)

    def _tensors(self, flat: Tensor) -> list[Tensor]:
        """The separately clipped tensors."""
        return [
            tensor
            for view, stack in zip(self._views(flat), self.stacks, strict=True)
            for tensor in view.reshape(stack, -1).unbind()
        ]

    def _stack_counts(self, model: nn.Module) -> list[int]:
        """How many separately clipped tensors each parameter holds."""
        dims = {
            parameter: getattr(module, "stack_dims", 0)
            for module in model.modules()
            for parameter in module.parameters(recurse=False)
        }
        return [int(torch.tensor(p.shape[: dims[p]]).prod()) for p in self.parameters]

    @staticmethod
    def _exempt_from_decay(model: nn.Module) -> set[nn.Parameter]:
        """Biases, and the norms called `norm`: those that the releases call LayerNorm."""
        return {
            parameter
            for name, parameter in model.named_parameters()
            if "bias" in name.split(".")[-1] or name.endswith((".norm.weight", ".norm.weight_GD"))
        }


def adam_update(
    values: Tensor,
    gradients: Tensor,
    first: Tensor,
    second: Tensor,
    clip_N: Tensor,
    tensor_index: Tensor,
    decay: Tensor,
    learning_rate: Tensor,
    beta_first: float,
    beta_second: float,
    tiny: float,
) -> None:
    """m ← β₁m + (1-β₁)g, v ← β₂v + (1-β₂)g², θ ← θ - η (m/(√v + ε) + λθ), in part."""
    clipped = gradients * clip_N[tensor_index]
    first.mul_(beta_first).add_(clipped, alpha=1 - beta_first)
    second.mul_(beta_second).addcmul_(clipped, clipped, value=1 - beta_second)
    values.sub_(learning_rate * (first / (second.sqrt() + tiny) + decay * values))


def adam_update_in_one_pass(
    values: Tensor,
    clipped: Tensor,
    first: Tensor,
    second: Tensor,
    decay: Tensor,
    learning_rate: float,
    beta_first: float,
    beta_second: float,
    tiny: float,
) -> None:
    """`adam_update` by the library's kernel for a CPU, which writes nothing on the way."""
    values.addcmul_(decay, values, value=-learning_rate)
    torch._fused_adam_(
        [values], [clipped], [first], [second], [], [torch.tensor(MANY_STEPS)],
        lr=learning_rate, beta1=beta_first, beta2=beta_second, eps=tiny,
        weight_decay=0.0, amsgrad=False, maximize=False,
    )  # fmt: skip
