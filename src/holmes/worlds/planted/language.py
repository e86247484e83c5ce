"""The sentences of the planted world, and the vectors of their words.

A word's vector is fixed: family, value and synonym each add their part, so that related words are neighbours.
In a sentence every word takes something from its neighbours and from the whole, as a text encoder's states
do, and some noise. Nothing in the vectors is aligned with what frames look like.

Q queries, T tokens, W words, D width
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holmes.worlds.planted.vocabulary import ACTOR, ATTRIBUTES, FAMILY, OBJECT, Attribute
from holmes.worlds.planted.world import MASKS, WorldPlan

Floats = NDArray[np.float32]

FAMILY_PART, VALUE_PART, SYNONYM_PART = 0.5, 0.8, 0.35
NEIGHBOUR_PART, SENTENCE_PART, POSITION_PART, NOISE_PART = 0.35, 0.25, 0.1, 0.25
TEMPLATES = (
    "{actor} {manner} {action} {object} {place}",
    "{place} {actor} {action} {object} {manner}",
    "{actor} {action} {object} {place} {manner}",
    "we see how {actor} {manner} {action} {object} {place}",
    "{actor} is there and {action} {object} {manner} {place}",
)
VOCABULARY = {name.split()[-1] for attribute in ATTRIBUTES for names in attribute.values for name in names}
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def tell(plan: WorldPlan, rng: np.random.Generator) -> list[str]:
    """The caption of every query."""
    templates_Q = rng.integers(0, len(TEMPLATES), len(plan.query_event_Q))
    values_QA, told_QA = plan.values_EA[plan.query_event_Q], MASKS[plan.query_mask_Q]
    return [
        sentence(TEMPLATES[template], values_A, told_A, bool(corrupted), rng)
        for template, values_A, told_A, corrupted in zip(
            templates_Q, values_QA, told_QA, plan.corrupted_Q, strict=True
        )
    ]


def sentence(
    template: str,
    values_A: NDArray[np.int64],
    told_A: NDArray[np.bool_],
    corrupted: bool,
    rng: np.random.Generator,
) -> str:
    phrases = {
        attribute.name: phrase(attribute, int(value) if told else None, corrupted, rng)
        for attribute, value, told in zip(ATTRIBUTES, values_A, told_A, strict=True)
    }
    text = " ".join(template.format(**phrases).split())
    return f"{text[0].upper()}{text[1:]}."


def phrase(attribute: Attribute, value: int | None, corrupted: bool, rng: np.random.Generator) -> str:
    names = attribute.generic if value is None else attribute.values[value]
    name = names[rng.integers(len(names))]
    if value is None:
        return name
    if corrupted:
        *before, word = name.split()
        name = " ".join([*before, garbled(word, rng)])
    if attribute in (ACTOR, OBJECT):
        return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"
    return name


def garbled(word: str, rng: np.random.Generator) -> str:
    """The word with half of its letters replaced, at least two, so that it leaves the vocabulary."""
    letters = list(word)
    for position in rng.choice(len(letters), max(2, len(letters) // 2), replace=False):
        letters[position] = LETTERS[rng.integers(len(LETTERS))]
    result = "".join(letters)
    return garbled(word, rng) if result in VOCABULARY else result


class Dictionary:
    """Word → vector, made on demand; the same for every world of a width."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.numbers: dict[str, int] = {}
        self.vectors: list[Floats] = []
        for attribute in ATTRIBUTES:
            for value, names in enumerate(attribute.values):
                for name in names:
                    word = name.split()[-1]
                    self._add(word, self._meaning(attribute, value, word))

    def _meaning(self, attribute: Attribute, value: int, word: str) -> Floats:
        parts = (
            FAMILY_PART * self._random(f"{attribute.name} family {value // FAMILY}")
            + VALUE_PART * self._random(f"{attribute.name} value {value}")
            + SYNONYM_PART * self._random(f"word {word}")
        )
        return unit(parts)

    def _random(self, name: str) -> Floats:
        """A fixed random unit vector for a name."""
        seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")
        return unit(np.random.default_rng(seed).standard_normal(self.width))

    def _add(self, word: str, vector: Floats) -> int:
        self.vectors.append(vector)
        return self.numbers.setdefault(word, len(self.vectors) - 1)

    def number(self, word: str) -> int:
        """A word outside the vocabulary gets a vector that means nothing."""
        if word not in self.numbers:
            self._add(word, self._random(f"word {word}"))
        return self.numbers[word]


def unit(vectors: NDArray[Any]) -> Floats:
    """Vectors scaled to length 1 along the last axis."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, 1e-6), np.float32)


def words(caption: str) -> list[str]:
    return caption.lower().rstrip(".").split()


def token_vectors(
    captions: Sequence[str], dictionary: Dictionary, noise: float, rng: np.random.Generator
) -> tuple[Floats, NDArray[np.int64]]:
    """Every word of every caption in its sentence: all rows, and how many each caption has."""
    numbers_W = [[dictionary.number(word) for word in words(caption)] for caption in captions]
    lengths_Q = np.array([len(numbers) for numbers in numbers_W])
    valid_QT = np.arange(lengths_Q.max()) < lengths_Q[:, None]
    base_QTD = np.zeros((*valid_QT.shape, dictionary.width), np.float32)
    base_QTD[valid_QT] = np.stack(dictionary.vectors)[np.concatenate(numbers_W)]

    padded_QTD = np.pad(base_QTD, ((0, 0), (1, 1), (0, 0)))
    neighbours_QTD = padded_QTD[:, :-2] + padded_QTD[:, 2:]
    sentence_QD = base_QTD.sum(1) / lengths_Q[:, None]
    mixed_QTD = base_QTD + NEIGHBOUR_PART * neighbours_QTD + SENTENCE_PART * sentence_QD[:, None]
    mixed_QTD += POSITION_PART * position_vectors(valid_QT.shape[1], dictionary.width)
    rows = mixed_QTD[valid_QT]
    rows += noise * NOISE_PART * rng.standard_normal(rows.shape, np.float32) / np.sqrt(dictionary.width)
    return rows, lengths_Q


def position_vectors(length: int, width: int) -> Floats:
    """Sinusoids of unit length."""
    angle_TD = np.arange(length)[:, None] / 10.0 ** (4 * np.arange(width) / width)
    wave_TD = np.where(np.arange(width) % 2, np.cos(angle_TD), np.sin(angle_TD))
    return unit(wave_TD)
