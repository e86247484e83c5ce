"""Corrupt queries: drop, shuffle or misspell words.

Captions are corrupted where a text encoder is at hand to read them again; where only token features exist,
these are. That is milder, because a token's feature has seen its neighbours, and a misspelt word becomes a
word of another query.

Q queries, T tokens, D width
"""

from __future__ import annotations

import string
from collections.abc import Callable, Sequence
from enum import StrEnum

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from holmes.data.bank import FeatureBank
from holmes.data.pooling import query_tokens

Reader = Callable[[Sequence[str]], Sequence[NDArray[np.float32]]]  # captions → the token features of each

SHARE = 0.5  # share of the words or tokens that are dropped or misspelt


class Corruption(StrEnum):
    DROPPED = "dropped"
    SHUFFLED = "shuffled"
    MISSPELLED = "misspelled"


def corrupt_caption(caption: str, how: Corruption, rng: np.random.Generator) -> str:
    """The same sentence with half of its words dropped or misspelt, or all of them in another order."""
    words = caption.split()
    if how is Corruption.SHUFFLED:
        return " ".join(words[i] for i in rng.permutation(len(words)))
    hit = set(rng.choice(len(words), max(1, round(SHARE * len(words))), replace=False).tolist())
    if how is Corruption.DROPPED:
        kept = [word for i, word in enumerate(words) if i not in hit]
        return " ".join(kept or words[:1])
    return " ".join(misspelt(word, rng) if i in hit else word for i, word in enumerate(words))


def misspelt(word: str, rng: np.random.Generator) -> str:
    """The word with half of its letters replaced, at least one."""
    letters = list(word)
    for position in rng.choice(len(letters), max(1, len(letters) // 2), replace=False):
        letters[position] = string.ascii_lowercase[rng.integers(26)]
    return "".join(letters)


def corrupt_tokens(
    tokens_QTD: Tensor, lengths_Q: Tensor, how: Corruption, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """The same for padded token features; a padded query stays padded."""
    queries, tokens, _ = tokens_QTD.shape
    device = tokens_QTD.device
    position_T, length_Q1 = torch.arange(tokens, device=device), lengths_Q.unsqueeze(1)
    valid_QT = position_T < length_Q1
    random_QT = torch.rand((queries, tokens), generator=generator).to(device).masked_fill(~valid_QT, 2.0)
    order_QT = random_QT.argsort(1)
    if how is Corruption.SHUFFLED:
        return rows_at(tokens_QTD, order_QT), lengths_Q
    hits_Q = (SHARE * lengths_Q).round().long().clamp(min=1)
    hit_QT = (order_QT.argsort(1) < hits_Q.unsqueeze(1)) & valid_QT
    if how is Corruption.DROPPED:
        kept_Q = torch.where(lengths_Q > 1, lengths_Q - hits_Q, lengths_Q)
        kept_QT = (position_T + tokens * (hit_QT & (length_Q1 > 1)).long()).argsort(1)
        return rows_at(tokens_QTD, kept_QT) * (position_T < kept_Q.unsqueeze(1)).unsqueeze(-1), kept_Q
    valid_ND = tokens_QTD[valid_QT]
    drawn_QT = torch.randint(max(1, len(valid_ND)), (queries, tokens), generator=generator).to(device)
    return torch.where(hit_QT.unsqueeze(-1), valid_ND[drawn_QT], tokens_QTD), lengths_Q


def rows_at(tokens_QTD: Tensor, position_QT: Tensor) -> Tensor:
    return tokens_QTD.gather(1, position_QT.unsqueeze(-1).expand_as(tokens_QTD))


def corrupted_source(
    bank: FeatureBank, how: Corruption, reader: Reader | None, seed: int
) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    """The bank's queries, corrupted: their words where a reader is at hand, otherwise their tokens."""
    if reader is not None:
        rng = np.random.default_rng(seed)
        return read_source(reader, lambda i: corrupt_caption(bank.store.captions[i], how, rng), bank)
    generator = torch.Generator().manual_seed(seed)
    return lambda index_Q: corrupt_tokens(*bank.queries(index_Q), how, generator)


def read_source(
    reader: Reader, caption: Callable[[int], str], bank: FeatureBank
) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    """Captions by their numbers, read into the token features of the bank's store; -1 is padding."""

    def read(index_Q: Tensor) -> tuple[Tensor, Tensor]:
        read = reader([caption(i) for i in index_Q.tolist() if i >= 0])
        rows = [query_tokens(rows_TD, bank.store.info.tokens) for rows_TD in read]
        padded = np.zeros((len(index_Q), bank.store.info.tokens, bank.store.info.text_width), np.float32)
        for padded_TD, rows_TD in zip(padded, rows, strict=False):
            padded_TD[: len(rows_TD)] = rows_TD
        lengths = [*map(len, rows), *[0] * (len(index_Q) - len(rows))]
        return torch.from_numpy(padded).to(bank.device, bank.dtype), torch.tensor(lengths, device=bank.device)

    return read
