"""A word or two, and words in quotation marks: are they found where real sentences say them?

    python benchmarks/heard_words.py INDEX TEXT [--json FILE]

TEXT has a document a line, such as `gensim/test/test_data/lee_background.cor` of the package gensim, 300
pieces of news. Each is what one video of a copy of INDEX says, eight sentences at most. Up to 60 further
documents are asked about that no video says. A first hit is right if its video says the words.
"""

from __future__ import annotations

import argparse
import re
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from common import print_table, save_json

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
    """Let each video say a document in place of its own words; the names of the videos."""
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
    one, at = words[int(rng.integers(len(words)))].lower(), int(rng.integers(len(words) - 1))
    every = sentence.split()
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


def ask(given: Path, every: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
    """A row for each kind of query, of words that some video says, and of words that none says."""
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        index = Path(folder) / "index"
        shutil.copytree(given, index)
        names = give(index, every)
        spoken = dict(zip(names, every, strict=False))
        queries = [
            (kind, query, {name for name in spoken if says(spoken[name], kind, words)})
            for sentences in every[: len(names) + ABSENT]
            for kind, query, words in asked(sentences[int(rng.integers(len(sentences)))], rng)
        ]
        answers = open_index(index, device="cpu").search_many([query for _, query, _ in queries], 1)
    found = defaultdict(list)
    for (kind, _, right), answer in zip(queries, answers, strict=True):
        first = answer[0]
        one = (first.video in right, answer.diagnosis.kind == "not_here", first.probability or 0.0)
        found[kind, bool(right)].append(one)
    return [
        {
            "query": kind,
            "said by": "some video" if said else "none",
            "queries": len(each),
            **dict(zip(("right", "called not here", "mean P of the first"), np.mean(each, 0), strict=True)),
        }
        for (kind, said), each in sorted(found.items(), key=lambda item: (item[0][0], not item[0][1]))
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("index", type=Path)
    parser.add_argument("text", type=Path)
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results/heard-words.json"))
    options = parser.parse_args()
    if not (every := documents(options.text)):
        parser.error(f"{options.text} has no line with {LEAST_SENTENCES} sentences.")
    rows = ask(options.index, every)
    print_table("Words that videos say", rows)
    save_json(options.json, {"rows": rows})


if __name__ == "__main__":
    main()
