"""The words that captions are about, without function words and without those that stand in most captions."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

MOST = 200
FEWEST = 3  # captions with a word
COMMON = 0.3  # a word in a larger share of the captions tells nothing
PLAIN_WORDS = (
    "a an the and or of in on at to from with by for is are was were be being has have his her their its it "
    "he she they who which while into over under up down out off this that there some someone something "
    "two one how we see as then"
)
PLAIN = frozenset(PLAIN_WORDS.split())


def telling_words(captions: Sequence[str]) -> list[str]:
    """The most frequent words first, equally frequent ones in alphabetical order."""
    counts = Counter(word for caption in captions for word in set(re.findall(r"[^\W\d_]+", caption.lower())))
    most = COMMON * len(captions)
    told = [(-count, word) for word, count in counts.items() if FEWEST <= count <= most and word not in PLAIN]
    return [word for _, word in sorted(told)[:MOST]]
