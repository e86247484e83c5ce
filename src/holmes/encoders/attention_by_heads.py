"""Gaussian attention for training on a CPU, head by head, so that each head fits into the cache.

Plain torch (`attend` in `gaussian.py`) writes eight tables of G × N × H × L × S to memory. Here two remain:
the shares, and the random bytes of dropout. Keys behind the longest sequence are left out, because after the
softmax a padded key counts exactly 0.

G blocks, N sequences, L positions, S positions of keys, H heads, E width of one head, D = H · E,
K = 2 (keys, values)
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from holmes.encoders.dropout import byte_threshold, kept_bytes, kept_scale
from holmes.encoders.padding import PADDED


def attend_by_heads(
    query_NLGD: Tensor,
    pair_NSKGD: Tensor,
    window_GLL: Tensor,
    mask_NL: Tensor | None,
    heads: int,
    dropout_rate: float,
    training: bool,
) -> Tensor:
    """softmax(M_σ ⊙ Q Kᵀ/√d) V from queries, and from keys and values side by side: G × N × L × D."""
    query_NLGHE, pair_NSKGHE = (each.unflatten(-1, (heads, -1)) for each in (query_NLGD, pair_NSKGD))
    keys = pair_NSKGD.shape[1]
    padding_NS = None
    if mask_NL is not None and not bool(mask_NL[:, :keys].all()):
        padding_NS = torch.where(mask_NL[:, :keys], 0.0, PADDED)
    scale_GLS = window_GLL[:, :, :keys] / math.sqrt(query_NLGHE.shape[-1])
    sequences, length, blocks, *_ = query_NLGHE.shape
    kept = (blocks, heads) if torch.is_grad_enabled() else (1, 1)  # without gradients one table serves all
    share_GHNLS = query_NLGHE.new_empty(*kept, sequences, length, keys).expand(blocks, heads, -1, -1, -1)
    bytes_GHNLS = kept_bytes(share_GHNLS, dropout_rate, training)
    tables = (scale_GLS, padding_NS, share_GHNLS, bytes_GHNLS)
    context_GNLD: Tensor = AttentionByHeads.apply(query_NLGHE, pair_NSKGHE, *tables, dropout_rate)
    return context_GNLD


class AttentionByHeads(torch.autograd.Function):
    """Fills `share_GHNLS` with the shares before dropout; bytes below the threshold drop one."""

    @staticmethod
    def forward(
        ctx: Any,
        query_NLGHE: Tensor,
        pair_NSKGHE: Tensor,
        scale_GLS: Tensor,
        padding_NS: Tensor | None,
        share_GHNLS: Tensor,
        bytes_GHNLS: Tensor | None,
        dropout_rate: float,
    ) -> Tensor:
        sequences, length, blocks, heads, width = query_NLGHE.shape
        threshold = byte_threshold(dropout_rate)
        context_GNLHE = query_NLGHE.new_empty(blocks, sequences, length, heads, width)
        table_NLS = share_GHNLS.new_empty(share_GHNLS.shape[2:])
        context_NLE = query_NLGHE.new_empty(sequences, length, width)
        for block in range(blocks):
            for head in range(heads):
                share_NLS = share_GHNLS[block, head]
                key_NSE, value_NSE = pair_NSKGHE[:, :, :, block, head].unbind(2)
                torch.bmm(query_NLGHE[:, :, block, head], key_NSE.transpose(1, 2), out=table_NLS)
                if padding_NS is None:
                    table_NLS.mul_(scale_GLS[block])
                else:
                    torch.addcmul(padding_NS.unsqueeze(1), table_NLS, scale_GLS[block], out=table_NLS)
                torch.softmax(table_NLS, -1, out=share_NLS)
                if bytes_GHNLS is not None:
                    torch.ge(bytes_GHNLS[block, head], threshold, out=table_NLS)
                    share_NLS = table_NLS.mul_(share_NLS)
                torch.bmm(share_NLS, value_NSE, out=context_NLE)
                context_GNLHE[block, :, :, head] = context_NLE
        ctx.save_for_backward(query_NLGHE, pair_NSKGHE, scale_GLS, share_GHNLS, bytes_GHNLS)
        ctx.threshold, ctx.scale = threshold, 1.0 if bytes_GHNLS is None else kept_scale(threshold)
        return context_GNLHE.mul_(ctx.scale).flatten(-2)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        query_NLGHE, pair_NSKGHE, scale_GLS, share_GHNLS, bytes_GHNLS = ctx.saved_tensors
        given_GNLHE = gradients[0].unflatten(-1, query_NLGHE.shape[-2:])
        of_query, of_pair = torch.empty_like(query_NLGHE), torch.empty_like(pair_NSKGHE)
        table_NLS, kept_NLS = share_GHNLS.new_empty((2, *share_GHNLS.shape[2:])).unbind()
        given_NLE = torch.empty_like(query_NLGHE[:, :, 0, 0], memory_format=torch.contiguous_format)
        for block, head in ((b, h) for b in range(len(scale_GLS)) for h in range(query_NLGHE.shape[3])):
            share_NLS = share_GHNLS[block, head]
            key_NSE, value_NSE = pair_NSKGHE[:, :, :, block, head].unbind(2)
            torch.mul(given_GNLHE[block, :, :, head], ctx.scale, out=given_NLE)
            torch.bmm(given_NLE, value_NSE.transpose(1, 2), out=table_NLS)
            if bytes_GHNLS is None:
                of_value_NSE = torch.bmm(share_NLS.transpose(1, 2), given_NLE)
            else:
                torch.ge(bytes_GHNLS[block, head], ctx.threshold, out=kept_NLS)
                table_NLS.mul_(kept_NLS)
                of_value_NSE = torch.bmm(kept_NLS.mul_(share_NLS).transpose(1, 2), given_NLE)
            of_logits_NLS = torch._softmax_backward_data(
                table_NLS, share_NLS, -1, share_NLS.dtype, grad_input=kept_NLS
            ).mul_(scale_GLS[block])
            of_query[:, :, block, head] = torch.bmm(of_logits_NLS, key_NSE)
            of_pair[:, :, 0, block, head] = torch.bmm(
                of_logits_NLS.transpose(1, 2), query_NLGHE[:, :, block, head]
            )
            of_pair[:, :, 1, block, head] = of_value_NSE
        return of_query, of_pair, *[None] * 5
