"""A word or two, and words in quotation marks: are they found where real sentences say them?

    python benchmarks/heard_words.py INDEX TEXT

TEXT has a document a line, such as `gensim/test/test_data/lee_background.cor` of the package gensim, 300
pieces of news. Each is what one video of a copy of INDEX says, eight sentences at most; 60 more are asked
about that no video says. A first hit is right if its video says the words.
"""

from __future__ import annotations

import argparse
import re
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from holmes.cluster.index import open_index
from holmes.heard.passages import Heard, Passage, WordSource
from holmes.index.answer.words import marks
from holmes.index.engine.passages import COMMON, FRAME, WordQuery
from holmes.index.ingest.hearing import encoder_digest, sentence_vectors
from holmes.index.storage.passages import pack_words, searched
from holmes.index.storage.store import IndexStore
from holmes.index.storage.writer import IndexWriter

SENTENCES, LEAST_SENTENCES, LEAST_WORDS = 8, 4, 3
ABSENT = 60  # documents that no video says
SENTENCE_END, WORD = re.compile(r"(?<=[.!?])\s+"), re.compile(r"[A-Za-z]{4,}")


def documents(text: Path) -> list[list[str]]:
    split = (
        [s for s in SENTENCE_END.split(line.strip()) if len(s.split()) >= LEAST_WORDS]
        for line in text.read_text(errors="replace").splitlines()
    )
    return [sentences[:SENTENCES] for sentences in split if len(sentences) >= LEAST_SENTENCES]


def give(index: Path, said: Sequence[Sequence[str]]) -> list[str]:
    """Put the documents into the videos' mouths, in place of their own words; the names of the videos."""
    names = sorted(IndexStore.open(index).positions)
    words = []
    for name, sentences in zip(names, said, strict=False):
        passages = tuple(Passage(at, at + 1.0, text, WordSource.SPEECH) for at, text in enumerate(sentences))
        heard = Heard(passages, {"speech": "the documents"})
        words.append(pack_words(name, heard, sentence_vectors([p.text for p in searched(heard)])))
    with IndexWriter(index) as writer:
        writer.hear(words, encoder_digest())
    return names


def asked(sentence: str, rng: np.random.Generator) -> Iterator[tuple[str, str, str]]:
    """Kinds of queries about a sentence, the queries, and the words that they look for."""
    words = [w for w in dict.fromkeys(WORD.findall(sentence)) if w.lower() not in COMMON | FRAME]
    if len(words) < LEAST_WORDS:
        return
    one, at, every = (
        words[int(rng.integers(len(words)))].lower(),
        int(rng.integers(len(words) - 1)),
        sentence.split(),
    )
    two = " ".join(words[at : at + 2]).lower()
    five = " ".join(every[len(every) // 3 :][:5])
    yield "someone mentions a word", f"someone mentions {one}", one
    yield "someone talks about two words", f"someone talks about {two}", two
    yield "a word in quotation marks", f'"{one}"', one
    yield "five words in quotation marks", f'"{five}"', five
    yield "a word alone", one, one


def says(sentences: Sequence[str], kind: str, words: str) -> bool:
    if kind == "five words in quotation marks":
        return any(words.lower() in sentence.lower() for sentence in sentences)
    text = " ".join(sentences)
    return all(marks(text, WordQuery.of(word)) for word in words.split())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("index", type=Path)
    parser.add_argument("text", type=Path)
    given = parser.parse_args()
    every, rng = documents(given.text), np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "index"
        shutil.copytree(given.index, copy)
        names = give(copy, every)
        queries = [
            (
                kind,
                query,
                [name for name, sentences in zip(names, every, strict=False) if says(sentences, kind, words)],
            )
            for sentences in every[: len(names) + ABSENT]
            for kind, query, words in asked(sentences[int(rng.integers(len(sentences)))], rng)
        ]
        answers = open_index(copy, device="cpu").search_many([query for _, query, _ in queries], 1)
    rows = defaultdict(list)
    for (kind, _, right), answer in zip(queries, answers, strict=True):
        found = answer[0].video in right
        rows[kind, bool(right)].append(
            (found, answer.diagnosis.kind == "not_here", answer[0].probability or 0.0)
        )
    print("| query | said by some video | queries | right % | called not here % | mean P of the first |")
    print("| --- | --- | ---: | ---: | ---: | ---: |")
    for (kind, said), row in sorted(rows.items(), key=lambda each: (each[0][0], not each[0][1])):
        right, missed, probability = np.mean(row, axis=0)
        print(f"| {kind} | {'yes' if said else 'no'} | {len(row)} | ", end="")
        print(f"{100 * right:.0f} | {100 * missed:.0f} | {probability:.2f} |")


if __name__ == "__main__":
    main()
