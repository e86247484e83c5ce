"""What kind of answer a query got, in the four ways a person would put it, from one distribution.

The distribution is the Dirichlet over the videos of the gallery: the probability of each, and the vacuity,
which no evidence supports. Kinds, sentences, numbers and bars all come from it, so none contradicts another:

    precise                one video holds most of the probability, or the copies of one moment do
    several fit            a small group holds it together
    too little to go on    no small group holds it
    not here, it seems     there is less evidence than queries with an answer had, and none is precise

Held-out queries decide how much "most" and "less" are (`holmes.evidence.fitting`). These are not the kinds of
training (`QueryKind`), where the right video is known.

Q queries, K candidates (best first)
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import torch
from torch import Tensor

SMALL_GROUP = 6  # the most videos that a person would look through
NUMBERS = ("No", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine", "Ten")


class AnswerKind(IntEnum):
    """Ordered by how much is left open."""

    PRECISE = 0
    SEVERAL_FIT = 1
    TOO_LITTLE = 2
    NOT_HERE = 3

    @property
    def words(self) -> str:
        return WORDS[self]


WORDS = {
    AnswerKind.PRECISE: "precise",
    AnswerKind.SEVERAL_FIT: "several fit",
    AnswerKind.TOO_LITTLE: "too little to go on",
    AnswerKind.NOT_HERE: "not here, it seems",
}


@dataclass(frozen=True)
class KindRules:
    """The least probability at which each kind is claimed."""

    precise: float = 0.5  # of the first video, with its copies
    group: float = 0.5  # of a small group together
    here: float = 0.05  # the share of answerable queries that had as little evidence


def kinds_of(
    probability_QK: Tensor, here_Q: Tensor, copies_Q: Tensor, rules: KindRules
) -> tuple[Tensor, Tensor]:
    """The kind of each query, and how many of its best candidates the sentence is about.

    `copies_Q` is how many of the first candidates show one and the same moment, the first included.
    """
    held_QK = probability_QK.cumsum(1)
    last = held_QK.shape[1]
    first_Q = held_QK.gather(1, (copies_Q.clamp(max=last) - 1).unsqueeze(1)).squeeze(1)
    together_Q = held_QK[:, min(SMALL_GROUP, last) - 1]
    size_Q = (held_QK < rules.group).sum(1) + 1
    kinds_Q = torch.full_like(copies_Q, AnswerKind.TOO_LITTLE)
    kinds_Q = kinds_Q.masked_fill(together_Q >= rules.group, AnswerKind.SEVERAL_FIT)
    kinds_Q = kinds_Q.masked_fill(here_Q < rules.here, AnswerKind.NOT_HERE)
    kinds_Q = kinds_Q.masked_fill(first_Q >= rules.precise, AnswerKind.PRECISE)
    group_Q = torch.where(kinds_Q == AnswerKind.PRECISE, copies_Q, 0)
    group_Q = torch.where(kinds_Q == AnswerKind.SEVERAL_FIT, size_Q.clamp(min=2, max=max(2, last)), group_Q)
    return kinds_Q, group_Q.clamp(max=last)


def explain(kind: AnswerKind, group: int, first: float, together: float) -> tuple[str, str]:
    """A sentence on the answer, and one on what would help.

    `first` and `together` are the probabilities of the first video and of the group.
    """
    many = NUMBERS[group] if group < len(NUMBERS) else str(group)
    match kind:
        case AnswerKind.PRECISE if group > 1:
            return (
                f"{many} videos show the same moment. If your collection contains it, "
                f"they are right with probability {together:.0%}.",
                "Any of them will do.",
            )
        case AnswerKind.PRECISE:
            return (
                f"One video stands out. {_first_hit(first)}",
                "Add a detail to be more certain.",
            )
        case AnswerKind.SEVERAL_FIT:
            return (
                f"{many} videos fit. If your collection contains it, one of them is right with probability "
                f"{together:.0%}, and the first with {first:.0%}.",
                "Add a detail that tells them apart.",
            )
        case AnswerKind.TOO_LITTLE:
            return (
                f"Too many videos fit. {_first_hit(first)}",
                "Say more about what can be seen: who or what is there, what happens, and where.",
            )
    return (
        f"It is probably not here; these videos come nearest. {_first_hit(first, after_all=True)}",
        "Other words for the same thing may find it.",
    )


def _first_hit(probability: float, after_all: bool = False) -> str:
    contained = f"If your collection contains it{' after all' * after_all}"
    return f"{contained}, the first hit is right with probability {probability:.0%}."
