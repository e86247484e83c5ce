"""Search in the passages of 100,000 hours of synthetic text, beside the scan of the pictures.

    python benchmarks/heard_scale.py FOLDER [--hours 100000] [--measured 1000]

A segment of `--measured` hours is written and searched; times are given for it and, in proportion, for all
hours, since every segment is searched in the same way. Words follow Zipf's law.
"""

from __future__ import annotations

import argparse
import shutil
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch

from holmes.evidence.sources import TextEvidence
from holmes.heard.passages import Heard, Passage, WordSource
from holmes.index.engine.kernels import best_codes
from holmes.index.engine.passages import PassageIndex, WordQuery
from holmes.index.storage.manifest import Manifest, PassageEntry
from holmes.index.storage.passages import StoredWords, write_passages
from holmes.index.storage.store import IndexStore

PASSAGES_AN_HOUR, WORDS_A_PASSAGE = 300, 25
VOCABULARY = 60_000
WIDTH = 384
PARTS_AN_HOUR, ROWS_OF_A_PART = 75, 160  # of an index of pictures: parts of 64 s that overlap by a quarter


def write(folder: Path, hours: int) -> tuple[PassageEntry, float]:
    """A segment of synthetic passages, and the seconds that writing took."""
    rng = np.random.default_rng(0)
    rank = np.arange(1, VOCABULARY + 1)
    share = 1 / (rank + 2.7)
    words = np.array([f"word{number:05}" for number in range(VOCABULARY)])
    videos = []
    for hour in range(hours):
        drawn = words[rng.choice(VOCABULARY, (PASSAGES_AN_HOUR, WORDS_A_PASSAGE), p=share / share.sum())]
        passages = tuple(
            Passage(12.0 * n, 12.0 * n + 10, " ".join(row), WordSource.SUBTITLES)
            for n, row in enumerate(drawn)
        )
        codes = rng.integers(-127, 128, (PASSAGES_AN_HOUR, WIDTH), dtype=np.int8)
        scale = np.full(PASSAGES_AN_HOUR, 1 / 1400, np.float32)
        videos.append(StoredWords(f"film{hour:06}.mp4", Heard(passages), passages, codes, scale))
    target = folder / "segments" / "000000010000"
    target.mkdir(parents=True)
    began = time.perf_counter()
    entry = write_passages(target, videos, "synthetic")
    return entry, time.perf_counter() - began


def best_of(work: Callable[[], object], times: int = 3) -> float:
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        taken.append(time.perf_counter() - began)
    return min(taken)


def ask(index: PassageIndex, query: WordQuery) -> None:
    index.find([query], index.count([query]), TextEvidence())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--hours", type=int, default=100_000)
    parser.add_argument("--measured", type=int, default=1000)
    asked = parser.parse_args()
    shutil.rmtree(asked.folder, ignore_errors=True)
    entry, took = write(asked.folder, asked.measured)
    index = PassageIndex(IndexStore(asked.folder, Manifest({}, {}, WIDTH, 32, passages=(entry,))))
    vector = np.random.default_rng(1).normal(size=WIDTH).astype(np.float32)
    vector /= np.linalg.norm(vector)
    scale = asked.hours / asked.measured
    size = entry.bytes / asked.measured / 1e6
    print(f"{asked.measured:,} hours: {size:.2f} MB an hour, written in {took:.0f} s")
    print("| query | ms | s for all hours |\n| --- | --- | --- |")
    kinds = {
        "five words, common to rare": "word00020 word00200 word02000 word09000 word40000",
        "three rare words": "word20000 word30000 word50000",
        "a phrase": '"word00300 word00004"',
    }
    for name, sentence in kinds.items():
        seconds = best_of(partial(ask, index, WordQuery.of(sentence)))
        print(f"| {name} | {1e3 * seconds:.0f} | {scale * seconds:.1f} |")
    meant = WordQuery.of(kinds["five words, common to rare"], vector)
    seconds = best_of(partial(ask, index, meant))
    print(f"| the five words and their meaning | {1e3 * seconds:.0f} | {scale * seconds:.1f} |")
    hours = min(asked.measured, 40)
    codes = torch.randint(-127, 128, (PARTS_AN_HOUR * hours, ROWS_OF_A_PART, WIDTH), dtype=torch.int8)
    best = best_codes(torch.randint(-127, 128, (1, WIDTH), dtype=torch.int8))
    seconds = best_of(lambda: best(codes, 32)) * asked.measured / hours
    print(f"| the scan of the pictures, in memory | {1e3 * seconds:.0f} | {scale * seconds:.1f} |")


if __name__ == "__main__":
    main()
