"""Seen, said and written: does the fusion find what each source alone finds, and is its probability true?

    python benchmarks/heard.py WORLD [--films 104] [--fit] [--given-words]

A world of films with known facts is rendered, seen by a model that is trained as `holmes demo` trains it (or
by --model pocket, which hardly sees painted shapes), and heard by the real recognisers. Queries about the odd
films fit the numbers (`--fit` prints those that are shipped as `TextEvidence`) and the weights of the plain
sum; queries about the even films are reported on. Run it again to continue: films and what was heard in them
are kept in WORLD. `--given-words` takes the words from the plan in place of the recognisers, with every fifth
word of what is said lost: it measures the fusion alone, in a quarter of the time.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import by_group
from fact_films import QUERIES, FactFilm, FactQuery, plan_facts, render_facts

from holmes.cli import demo
from holmes.evidence.distribution import EXPECT_MISSING, gallery_distribution
from holmes.evidence.judging import CalibratedJudge
from holmes.evidence.sources import ClauseKind, HeldOut, fit_text_evidence, log_posterior, numbers_of
from holmes.heard.hearing import Hearing
from holmes.heard.passages import Heard, Passage, WordSource, in_order
from holmes.index.answer.answers import Answer
from holmes.index.answer.searcher import Index, open_single_index
from holmes.index.answer.words import pictured, word_queries
from holmes.index.embedders.loading import load_embedder
from holmes.index.embedders.protocol import Embedder
from holmes.index.engine.passages import Counts, PassageIndex, SegmentSearch
from holmes.index.ingest.builder import build_index
from holmes.index.ingest.hearing import encoder_digest, sentence_vectors
from holmes.index.storage.passages import pack_words, searched
from holmes.index.storage.writer import IndexWriter
from holmes.records import Scores
from holmes.training.run import RunOptions, train

KINDS = (
    "seen",
    "said",
    "quoted",
    "written",
    "seen and said",
    "seen and written",
    "said and written",
    "said, bare",
    "written, bare",
)
SIZES = (104, 40, 10, 4)  # of the galleries to fit on
RRF = 60.0
LOST = 0.2  # of the words that are said, with --given-words
BINS = 10


def world(folder: Path, films: int, seed: int, given: bool, model: str) -> tuple[Index, list[FactQuery]]:
    """An index of a rendered world, and its queries."""
    planned, queries = plan_facts(films, seed)
    paths = render_facts(folder / "films", planned, seed)
    embedder = load_embedder("pocket") if model == "pocket" else trained(Path(model))
    index = folder / ("given" if given else "index")
    hearing = None if given else Hearing()
    build_index(index, paths, embedder, progress=True, hearing=hearing)
    if given:
        give_words(index, planned, paths, seed)
    return open_single_index(index, device="cpu", model=embedder), queries


def trained(folder: Path) -> Embedder:
    """A model that sees painted scenes, trained as `holmes demo` trains it, on a world of its own."""
    parts = demo.Demo(folder)
    demo.render(parts)
    demo.extract_features(parts)
    demo.pack_store(parts)
    train(parts.store, demo.settings(), parts.run, options=RunOptions(progress=False))
    return load_embedder(str(parts.run), "lite2", "minilm")


def give_words(index: Path, films: Sequence[FactFilm], paths: Sequence[Path], seed: int) -> None:
    """The words of the plan, of which a recogniser that hears four words of five would find these."""
    rng = np.random.default_rng([seed, 99])
    words = []
    for film, path in zip(films, paths, strict=True):
        passages = []
        for fact in (*film.own, *film.shared):
            kept = fact.text.split()
            if fact.kind == "said":
                kept = [word for word in kept if rng.random() > LOST]
            source = WordSource.SCREEN if fact.kind == "written" else WordSource.SPEECH
            if fact.kind != "seen" and kept:
                passages.append(Passage(fact.start, fact.end, " ".join(kept), source))
        heard = Heard(in_order(passages), {"speech": "the plan", "screen": "the plan"})
        vectors = sentence_vectors([passage.text for passage in searched(heard)])
        words.append(pack_words(str(path), heard, vectors))
    with IndexWriter(index) as writer:
        writer.hear([video for video in words if video.name in writer.store], encoder_digest())


def name_of(video: str) -> str:
    return Path(video).stem


def silent(index: Index) -> Index:
    """The same index, which has heard nothing."""
    other = replace(index)
    empty = PassageIndex(index.store)
    empty.segments = []
    other.__dict__["passages"] = empty
    return other


def rankings(
    index: Index, texts: Sequence[str], pictures: Sequence[Answer]
) -> dict[str, list[dict[str, float]]]:
    """The score of every video by each source alone: seen (in `pictures`), said, written."""
    seen = [{name_of(hit.video): hit.probability or 0.0 for hit in answer} for answer in pictures]
    queries = word_queries(texts, index.passages.encoder)
    counts = index.passages.count(queries)
    found = index.passages.find(queries, counts, index.text_evidence, None, len(index))
    words = [
        [{name_of(each.video): alone(each.log_ratios, kind) for each in row} for row in found]
        for kind in (0, 1)
    ]
    return {"seen": seen, "said": words[0], "written": words[1]}


def alone(log_ratios: Sequence[tuple[float, float]], kind: int) -> float:
    """What one source says of a video: of the clause that fits it best."""
    return max(ratios[kind] for ratios in log_ratios)


def best(scores: dict[str, float]) -> str | None:
    finite = {name: score for name, score in scores.items() if np.isfinite(score)}
    return max(finite, key=lambda name: (finite[name], name)) if finite else None


def reciprocal(rows: Sequence[dict[str, float]]) -> dict[str, float]:
    total: dict[str, float] = {}
    for scores in rows:
        finite = [name for name, score in scores.items() if np.isfinite(score)]
        for rank, name in enumerate(sorted(finite, key=lambda n: (-scores[n], n)), 1):
            total[name] = total.get(name, 0.0) + 1 / (RRF + rank)
    return total


def weighted(rows: Sequence[dict[str, float]], weights: Sequence[float]) -> dict[str, float]:
    total: dict[str, float] = {}
    for scores, weight in zip(rows, weights, strict=True):
        finite = {name: score for name, score in scores.items() if np.isfinite(score)}
        if not finite:
            continue
        low, high = min(finite.values()), max(finite.values())
        for name, score in finite.items():
            total[name] = total.get(name, 0.0) + weight * (score - low) / max(high - low, 1e-9)
    return total


def held_out(
    index: Index, queries: Sequence[FactQuery], seed: int, sizes: Sequence[int] = SIZES
) -> list[HeldOut]:
    """Queries in galleries of several sizes: of each size those with their film, the same without it (which
    have no weight: they are reported on), and those that are about no film.
    """
    names = sorted(index.videos)
    number = {name_of(name): at for at, name in enumerate(names)}
    film_Q = [-1 if query.film is None else number[query.film] for query in queries]
    present = [q for q, film in enumerate(film_Q) if film >= 0]
    absent = [q for q, film in enumerate(film_Q) if film < 0]
    rng, found = np.random.default_rng(seed), list[HeldOut]()
    for size in sizes:
        there = {}
        for q, film in enumerate(film_Q):
            others = [at for at in rng.permutation(len(names)).tolist() if at != film]
            there[q] = sorted(others[: size - (film >= 0)] + [film] * (film >= 0))
        gone = {q: [at for at in there[q] if at != film_Q[q]] for q in present}
        weights = ((1 - EXPECT_MISSING) / len(present), 0.0, EXPECT_MISSING / len(absent))
        for asked, galleries, weight in zip(
            (present, present, absent), (there, gone, there), weights, strict=True
        ):
            with_film = galleries is there
            owners = [film_Q[q] if with_film else -1 for q in asked]
            chosen = [galleries[q] for q in asked]
            found.append(gather(index, names, [queries[q].text for q in asked], chosen, owners, weight))
    return found


def gather(
    index: Index,
    names: Sequence[str],
    texts: Sequence[str],
    galleries: Sequence[Sequence[int]],
    owners: Sequence[int],
    weight: float,
) -> HeldOut:
    """What pictures and passages say of sentences, each in a gallery of its own."""
    place = [names.index(name) for name in index.videos]
    scores = index.every_score(pictured(texts))
    judge = index.judge
    assert isinstance(judge, CalibratedJudge)
    fitted = judge.calibration
    score_QV = torch.empty(len(texts), len(names), dtype=torch.float64)
    score_QV[:, place] = fitted.score(Scores(scores.frame_QV.double(), scores.clip_QV.double())).double()
    words = word_queries(texts, index.passages.encoder)
    segments = [SegmentSearch(segment, None) for segment in index.passages.segments]
    owner_N = np.concatenate([[names.index(s.segment.names[at]) for at in s.owner_N] for s in segments])
    slot_N = torch.from_numpy(2 * owner_N + np.concatenate([s.kind_N for s in segments]))
    clauses = max(len(query.clauses) for query in words)
    seen_QV, there_QV = torch.zeros_like(score_QV), torch.zeros_like(score_QV, dtype=torch.bool)
    none_Q = torch.zeros(len(texts), dtype=torch.float64)
    features_QCNF = torch.zeros(len(texts), clauses, len(slot_N), 5, dtype=torch.float64)
    slot_QN = torch.full((len(texts), len(slot_N)), 2 * len(names))
    clause_QC = torch.full((len(texts), clauses), int(ClauseKind.ABSENT))
    for q, (query, gallery) in enumerate(zip(words, galleries, strict=True)):
        ranked = sorted(gallery, key=lambda at: -score_QV[q, at].item())
        known = gallery_distribution(
            score_QV[q, ranked].unsqueeze(0),
            len(ranked),
            judge.calibration.evidence,
            judge.calibration.absence,
        )
        seen_QV[q, ranked], none_Q[q] = known.probability_QK[0].double(), known.none_Q[0].double()
        there_QV[q, gallery] = True
        inside_N = np.isin(owner_N, gallery)
        slot_QN[q] = torch.where(torch.from_numpy(inside_N), slot_N, 2 * len(names))
        clause_QC[q, : len(query.clauses)] = torch.tensor(query.kinds)
        for c, clause in enumerate(query.clauses):
            counts, start = Counts(int(inside_N.sum())), 0
            for each in segments:
                own_N = inside_N[start : start + len(each.owner_N)]
                more = {term: int(own_N[each.rows_with(term)].sum()) for term in clause.terms}
                counts, start = counts + Counts(0, more), start + len(own_N)
            features = [each.features(clause, each.cosines([clause])[0], counts) for each in segments]
            features_QCNF[q, c] = torch.from_numpy(np.concatenate(features)).double()
    return HeldOut(
        seen_QV,
        none_Q,
        there_QV,
        features_QCNF,
        slot_QN,
        clause_QC,
        torch.tensor(owners),
        torch.full((len(texts),), weight, dtype=torch.float64),
    )


def choose_weights(
    rows: dict[str, list[dict[str, float]]], queries: Sequence[FactQuery]
) -> tuple[float, ...]:
    """The weights of the plain sum that find most first, on the world to fit on."""
    grid = [(1.0, said, written) for said in (0.5, 1, 2, 4, 8) for written in (0.5, 1, 2, 4, 8)]
    asked = [q for q, query in enumerate(queries) if query.film is not None]

    def right(weights: tuple[float, ...]) -> int:
        return sum(best(weighted([rows[s][q] for s in rows], weights)) == queries[q].film for q in asked)

    return max(grid, key=right)


def calibration_error(probability: Sequence[float], right: Sequence[bool]) -> float:
    p, r = np.array(probability), np.array(right, float)
    bins = np.minimum((p * BINS).astype(int), BINS - 1)
    return float(
        sum(abs(p[bins == b].mean() - r[bins == b].mean()) * (bins == b).mean() for b in set(bins.tolist()))
    )


def report(index: Index, queries: Sequence[FactQuery], weights: tuple[float, ...]) -> dict[str, Any]:
    texts = [query.text for query in queries]
    pictures = silent(index).search_many(texts, len(index))
    rows = rankings(index, texts, pictures)
    answers = index.search_many(texts, 1)
    methods: dict[str, list[str | None]] = {s: [best(row) for row in rows[s]] for s in rows}
    methods["RRF"] = [best(reciprocal([rows[s][q] for s in rows])) for q in range(len(queries))]
    methods["weighted sum"] = [
        best(weighted([rows[s][q] for s in rows], weights)) for q in range(len(queries))
    ]
    methods["fused"] = [name_of(answer[0].video) for answer in answers]
    about = {
        kind: [q for q, query in enumerate(queries) if query.kind == kind and query.film is not None]
        for kind in KINDS
    }
    table = {
        kind: {
            method: float(np.mean([found[q] == queries[q].film for q in about[kind]]))
            for method, found in methods.items()
        }
        for kind in KINDS
    }
    above = {kind: above_best_source(kind, methods, table[kind], queries) for kind in KINDS}
    first = [answer[0].probability or 0.0 for answer in answers]
    right = [found == query.film for found, query in zip(methods["fused"], queries, strict=True)]
    alone = [answer[0].probability or 0.0 for answer in pictures]
    alone_right = [name_of(a[0].video) == q.film for a, q in zip(pictures, queries, strict=True)]
    inside = [
        any(m.start < query.end and query.start < m.end for m in answer[0].moments[:1])
        and abs(answer[0].moments[0].start - query.start) <= 2.0
        for answer, query, ok in zip(answers, queries, right, strict=True)
        if ok and query.kind in ("said", "quoted", "written")
    ]
    here = np.array([answer.diagnosis.here or 0.0 for answer in answers])
    missed = np.array([answer.diagnosis.kind == "not_here" for answer in answers])
    absent = np.array([query.film is None for query in queries])
    of_kind = {kind: np.array([query.kind == kind for query in queries]) for kind in KINDS}
    return {
        "videos": len(index),
        "queries": len(queries),
        "R@1": table,
        "fused above the best source": above,
        "ECE of fused": calibration_error(first, right),
        "ECE of pictures alone": calibration_error(alone, alone_right),
        "moments inside": float(np.mean(inside)),
        "mean P(here) of absent": float(here[absent].mean()),
        "mean P(here) of present": float(here[~absent].mean()),
        "called not here, absent": float(missed[absent].mean()),
        "called not here, present": float(missed[~absent].mean()),
        "called not here by kind": {
            kind: (float(missed[some & absent].mean()), float(missed[some & ~absent].mean()))
            for kind, some in of_kind.items()
        },
        "weights": weights,
    }


def in_fewer_films(index: Index, queries: Sequence[FactQuery], seed: int, size: int) -> dict[str, float]:
    """The probabilities in collections of this many films, drawn for each query."""
    first, right, here = list[list[float]](), list[list[bool]](), list[float]()
    for some in held_out(index, queries, seed, (size,)):
        log_QV, log_none_Q = log_posterior(some, numbers_of(index.text_evidence))
        first.append(log_QV.amax(1).exp().tolist())
        right.append((log_QV.argmax(1) == some.owner_Q).tolist())
        here.append(1 - log_none_Q.exp().mean().item())
    return {
        "ECE": calibration_error(first[0] + first[2], right[0] + right[2]),
        "P(here) of present": here[0],
        "P(here) of taken away": here[1],
        "P(here) of absent": here[2],
    }


def above_best_source(
    kind: str,
    methods: dict[str, list[str | None]],
    shares: dict[str, float],
    queries: Sequence[FactQuery],
) -> tuple[float, float]:
    """By how much more queries fused sources find first than the best single source: mean, 95% over films."""
    source = max(("seen", "said", "written"), key=shares.__getitem__)
    asked = [q for q, query in enumerate(queries) if query.kind == kind and query.film is not None]
    right = {name: [methods[name][q] == queries[q].film for q in asked] for name in ("fused", source)}
    films = np.array([str(queries[q].film) for q in asked])
    return by_group(np.array(right["fused"], float) - np.array(right[source], float), films)


def show(found: dict[str, Any]) -> None:
    methods = ("seen", "said", "written", "RRF", "weighted sum", "fused")
    print(f"{found['videos']} films, {found['queries']} queries; R@1 in percent")
    columns = (*methods, "fused above the best source", "not here: absent", "present")
    print("| query | " + " | ".join(columns) + " |\n|" + " --- |" * (len(columns) + 1))
    for kind, row in found["R@1"].items():
        mean, wide = found["fused above the best source"][kind]
        values = [f"{100 * row[method]:.0f}" for method in methods] + [
            f"{100 * mean:+.0f} ± {100 * wide:.0f}"
        ]
        noticed, wrongly = found["called not here by kind"][kind]
        values += [f"{100 * noticed:.0f}", f"{100 * wrongly:.0f}"]
        print(f"| {kind} | " + " | ".join(values) + " |")
    for name, value in found.items():
        if name not in ("R@1", "videos", "queries", "fused above the best source", "called not here by kind"):
            print(f"{name}: {value if isinstance(value, tuple) else round(value, 3)}")


def halves(queries: Sequence[FactQuery]) -> tuple[list[FactQuery], list[FactQuery]]:
    """Queries to fit on and queries to report on: no film has some of each."""
    films = sorted({query.film for query in queries if query.film is not None})
    odd = set(films[1::2])
    absent = [query for query in queries if query.film is None]
    # Those about one film that is not there follow each other, and go to one half.
    halved = [[query for at, query in enumerate(absent) if at // QUERIES % 2 == half] for half in (1, 0)]
    fitting = [query for query in queries if query.film in odd]
    reported = [query for query in queries if query.film is not None and query.film not in odd]
    return fitting + halved[0], reported + halved[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("world", type=Path)
    parser.add_argument("--films", type=int, default=104)
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--model", help="pocket, or the folder of the trained model (WORLD/model)")
    parser.add_argument("--given-words", action="store_true", help="take the words from the plan")
    parser.add_argument("--fit", action="store_true", help="fit the numbers of TextEvidence, and use them")
    parser.add_argument("--json", type=Path, help="write the figures here")
    asked = parser.parse_args()
    model = asked.model or str(asked.world / "model")
    index, queries = world(asked.world, asked.films, asked.seed, asked.given_words, model)
    to_fit, to_report = halves(queries)
    if asked.fit:
        held = held_out(index, to_fit, asked.seed)
        fitted = fit_text_evidence([some for some in held if some.weight_Q.sum() > 0])
        print(fitted)
        index.__dict__["text_evidence"] = fitted
    texts = [query.text for query in to_fit]
    pictures = silent(index).search_many(texts, len(index))
    weights = choose_weights(rankings(index, texts, pictures), to_fit)
    found = report(index, to_report, weights)
    show(found)
    found["fewer films"] = {
        size: in_fewer_films(index, to_report, asked.seed, size) for size in SIZES if size < len(index)
    }
    print(f"in fewer films: {found['fewer films']}")
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
