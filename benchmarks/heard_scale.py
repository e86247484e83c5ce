"""Search in the passages of 100,000 hours of synthetic text, beside the scan of the pictures.

    python benchmarks/heard_scale.py FOLDER [--hours 100000] [--measured 1000] [--json FILE]

A segment of `--measured` hours is written and searched. Processor time is given for it and, in proportion,
for all hours, since every segment is searched in the same way; the most common words are even left out when
there are many passages. Words follow Zipf's law.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
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
# Of an index of pictures with the pocket model: parts of 64 s that overlap by a quarter.
PARTS_AN_HOUR, ROWS_OF_A_PART, PICTURE_WIDTH = 75, 160, 256
KINDS = {
    "five words, common to rare": "word00020 word00200 word02000 word09000 word40000",
    "three rare words": "word20000 word30000 word50000",
    "a phrase": '"word00300 word00004"',
}


def write(folder: Path, hours: int) -> tuple[PassageEntry, float]:
    """A segment of synthetic passages, and the seconds of processor time that writing took."""
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
    began = time.process_time()
    entry = write_passages(target, videos, "synthetic")
    return entry, time.process_time() - began


def best_of(work: Callable[[], object], times: int = 5) -> float:
    """The least seconds of processor time, which other work on the machine hardly changes."""
    taken = []
    for _ in range(times):
        began = time.process_time()
        work()
        taken.append(time.process_time() - began)
    return min(taken)


def ask(index: PassageIndex, query: WordQuery) -> None:
    index.find([query], index.count([query]), TextEvidence())


def with_meaning(sentence: str, vector: np.ndarray | None) -> WordQuery:
    clauses = WordQuery.of(sentence).clauses
    return WordQuery(tuple(replace(clause, vector_D=vector) for clause in clauses))


def measure(index: PassageIndex, hours: int) -> dict[str, float]:
    """Seconds of each kind of query, and of the scan of the pictures of so many hours."""
    vector = np.random.default_rng(1).normal(size=WIDTH).astype(np.float32)
    vector /= np.linalg.norm(vector)
    found = {
        name: best_of(partial(ask, index, with_meaning(sentence, meaning)))
        for meaning, ending in ((None, ""), (vector, ", and their meaning"))
        for name, sentence in ((kind + ending, sentence) for kind, sentence in KINDS.items())
    }
    held = min(hours, 40)  # in memory
    shape = (PARTS_AN_HOUR * held, ROWS_OF_A_PART, PICTURE_WIDTH)
    codes = torch.randint(-127, 128, shape, dtype=torch.int8)
    best = best_codes(torch.randint(-127, 128, (1, PICTURE_WIDTH), dtype=torch.int8))
    found["the scan of the pictures, in memory"] = best_of(lambda: best(codes, 32)) * hours / held
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--hours", type=int, default=100_000)
    parser.add_argument("--measured", type=int, default=1000)
    parser.add_argument("--json", type=Path, help="write the figures here")
    asked = parser.parse_args()
    shutil.rmtree(asked.folder, ignore_errors=True)
    entry, took = write(asked.folder, asked.measured)
    index = PassageIndex(IndexStore(asked.folder, Manifest({}, {}, WIDTH, 32, passages=(entry,))))
    size = entry.bytes / asked.measured / 1e6
    print(f"{asked.measured:,} hours: {size:.2f} MB an hour, written in {took:.0f} s of processor time")
    print(f"| query | ms | s for {asked.hours:,} hours |\n| --- | ---: | ---: |")
    rows = []
    for name, seconds in measure(index, asked.measured).items():
        rows.append({"query": name, "seconds": seconds, "all": seconds * asked.hours / asked.measured})
        print(f"| {name} | {1e3 * seconds:.1f} | {rows[-1]['all']:.2f} |")
    if asked.json:
        asked.json.write_text(json.dumps({"MB an hour": size, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
