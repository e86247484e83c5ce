"""Seen, said and written: does the fusion find what each source alone finds, and is its probability true?

    python benchmarks/heard.py WORLDS --seed 2 7 --fit
    python benchmarks/heard.py WORLDS --seed 61 73 89

A world of films with known facts is rendered for each seed, seen by a model that is trained as `holmes demo`
did before InfoNCE (or by --model pocket, which hardly sees painted shapes), and heard by real recognisers.
`--fit` fits the numbers that are shipped as `TextEvidence` to all queries of these worlds; report on others.
The plain sum has the weights that are best for it on these very queries. Run it again to continue: films and
what was heard in them are kept in WORLDS.
`--given-words` takes the words from the plan in place of the recognisers, with every fifth word of what is
said lost: it measures the fusion alone, in a quarter of the time.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import by_group
from fact_films import FactFilm, FactQuery, plan_facts, render_facts

from holmes.cli import demo
from holmes.config.schema import with_changes
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
from holmes.index.engine.passages import Counts, PassageIndex, SegmentSearch, WordQuery
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
SOURCES = ("seen", "said", "written")
METHODS = (*SOURCES, "RRF", "weighted sum", "fused")
SIZES = (104, 40, 10, 4)  # of the galleries to fit on
RRF = 60.0
LOST = 0.2  # of the words that are said, with --given-words
BINS = 10
DRAWS = 200  # of the answers that are right, if they are as often right as they are said to be
SUMS = [(1.0, said, written) for said in (0.5, 1, 2, 4, 8) for written in (0.5, 1, 2, 4, 8)]  # weights


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
    """A model that sees painted scenes, trained on a world of its own as `holmes demo` did before InfoNCE.

    The numbers of the fusion were fitted beside this weaker model.
    """
    parts = demo.Demo(folder)
    demo.render(parts)
    demo.extract_features(parts)
    demo.pack_store(parts)
    config = with_changes(demo.settings(), {"contrastive_cosine": 0})
    train(parts.store, config, parts.run, options=RunOptions(progress=False))
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
    present = tuple(q for q, film in enumerate(film_Q) if film >= 0)
    absent = tuple(q for q, film in enumerate(film_Q) if film < 0)
    probed = {group: probe(index, names, [queries[q].text for q in group]) for group in (present, absent)}
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
            found.append(gather(index, names, probed[asked], chosen, owners, weight))
    return found


@dataclass(frozen=True)
class Probed:
    """Sentences, and how well the pictures of every film fit each."""

    words: Sequence[WordQuery]
    score_QV: torch.Tensor


def probe(index: Index, names: Sequence[str], texts: Sequence[str]) -> Probed:
    place = [names.index(name) for name in index.videos]
    scores = index.every_score(pictured(texts))
    assert isinstance(index.judge, CalibratedJudge)
    fitted = index.judge.calibration
    score_QV = torch.empty(len(texts), len(names), dtype=torch.float64)
    score_QV[:, place] = fitted.score(Scores(scores.frame_QV.double(), scores.clip_QV.double())).double()
    return Probed(word_queries(texts, index.passages.encoder), score_QV)


def gather(
    index: Index,
    names: Sequence[str],
    probed: Probed,
    galleries: Sequence[Sequence[int]],
    owners: Sequence[int],
    weight: float,
) -> HeldOut:
    """What pictures and passages say of sentences, each in a gallery of its own."""
    words, score_QV, judge = probed.words, probed.score_QV, index.judge
    assert isinstance(judge, CalibratedJudge)
    segments = [SegmentSearch(segment, None) for segment in index.passages.segments]
    owner_N = np.concatenate([[names.index(s.segment.names[at]) for at in s.owner_N] for s in segments])
    slot_N = torch.from_numpy(2 * owner_N + np.concatenate([s.kind_N for s in segments]))
    clauses = max(len(query.clauses) for query in words)
    seen_QV, there_QV = torch.zeros_like(score_QV), torch.zeros_like(score_QV, dtype=torch.bool)
    none_Q = torch.zeros(len(words), dtype=torch.float64)
    features_QCNF = torch.zeros(len(words), clauses, len(slot_N), 5, dtype=torch.float64)
    slot_QN = torch.full((len(words), len(slot_N)), 2 * len(names))
    clause_QC = torch.full((len(words), clauses), int(ClauseKind.ABSENT))
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
        torch.full((len(words),), weight, dtype=torch.float64),
    )


def calibration_error(probability: np.ndarray, right: np.ndarray) -> float:
    at = np.minimum((probability * BINS).astype(int), BINS - 1)
    return float(np.abs(np.bincount(at, probability - right)).sum() / len(at))


def least_error(probability: np.ndarray) -> float:
    """The calibration error of probabilities that are true: chance alone makes some."""
    rng = np.random.default_rng(0)
    drawn = (rng.random(len(probability)) < probability for _ in range(DRAWS))
    return float(np.mean([calibration_error(probability, right) for right in drawn]))


@dataclass(frozen=True)
class Asked:
    """The queries of one world, and what was found for each."""

    queries: list[FactQuery]
    found: dict[str, list[str | None]]  # by each method
    sums: dict[tuple[float, ...], list[str | None]]  # by the plain sum with these weights
    probability: dict[str, np.ndarray]  # of the first video: fused, and by pictures alone
    here: np.ndarray
    missed: np.ndarray  # called "not here"
    starts: np.ndarray  # of the first moments

    @property
    def kinds(self) -> np.ndarray:
        return np.array([query.kind for query in self.queries])

    @property
    def present(self) -> np.ndarray:
        return np.array([query.film is not None for query in self.queries])

    def right(self, found: Sequence[str | None]) -> np.ndarray:
        pairs = zip(found, self.queries, strict=True)
        return np.array([query.film is not None and video == query.film for video, query in pairs])

    def error(self, method: str) -> float:
        return calibration_error(self.probability[method], self.right(self.found[method]))


def ask(index: Index, queries: list[FactQuery]) -> Asked:
    texts = [query.text for query in queries]
    pictures = silent(index).search_many(texts, len(index))
    rows = rankings(index, texts, pictures)
    answers = index.search_many(texts, 1)
    every = range(len(queries))
    return Asked(
        queries,
        {source: [best(row) for row in rows[source]] for source in SOURCES}
        | {
            "RRF": [best(reciprocal([rows[s][q] for s in SOURCES])) for q in every],
            "fused": [name_of(answer[0].video) for answer in answers],
        },
        {w: [best(weighted([rows[s][q] for s in SOURCES], w)) for q in every] for w in SUMS},
        {
            "fused": np.array([answer[0].probability or 0.0 for answer in answers]),
            "seen": np.array([answer[0].probability or 0.0 for answer in pictures]),
        },
        np.array([answer.diagnosis.here or 0.0 for answer in answers]),
        np.array([answer.diagnosis.kind == "not_here" for answer in answers]),
        np.array([answer[0].moments[0].start for answer in answers]),
    )


def report(worlds: Sequence[Asked]) -> dict[str, Any]:
    """Figures over all worlds: shares of queries, and how true the probability is in each world."""
    kinds, present, missed, here = (
        np.concatenate([getattr(world, name) for world in worlds])
        for name in ("kinds", "present", "missed", "here")
    )
    films = np.array([f"{at} {query.film}" for at, world in enumerate(worlds) for query in world.queries])
    right = {
        method: np.concatenate([world.right(world.found[method]) for world in worlds]).astype(float)
        for method in worlds[0].found
    }
    sums = {w: np.concatenate([world.right(world.sums[w]) for world in worlds]).astype(float) for w in SUMS}
    right["weighted sum"] = max(sums.values(), key=lambda of_sum: float(of_sum.sum()))
    table = {}
    for kind in KINDS:
        asked = (kinds == kind) & present
        shares = {method: float(right[method][asked].mean()) for method in METHODS}
        source = max(SOURCES, key=shares.__getitem__)
        table[kind] = shares | {
            "fused above the best source": by_group((right["fused"] - right[source])[asked], films[asked]),
            "not here: absent": float(missed[(kinds == kind) & ~present].mean()),
            "not here: present": float(missed[asked].mean()),
        }
    late = np.concatenate([world.starts - [query.start for query in world.queries] for world in worlds])
    of_words = (right["fused"] > 0) & np.isin(kinds, ("said", "quoted", "written"))
    return {
        "R@1": table,
        "ECE of fused": [world.error("fused") for world in worlds],
        "ECE of a true probability": [least_error(world.probability["fused"]) for world in worlds],
        "ECE of pictures alone": [world.error("seen") for world in worlds],
        "moments within 2 s": float((np.abs(late[of_words]) <= 2.0).mean()),
        "P(here) of present": float(here[present].mean()),
        "P(here) of absent": float(here[~present].mean()),
        "not here: present": float(missed[present].mean()),
        "not here: absent": float(missed[~present].mean()),
    }


def in_fewer_films(
    worlds: Sequence[tuple[Index, Sequence[FactQuery]]], seeds: Sequence[int], size: int
) -> dict[str, Any]:
    """The probabilities in collections of this many films, drawn for each query."""
    errors, here = list[float](), list[list[float]]()
    for (index, queries), seed in zip(worlds, seeds, strict=True):
        first, right, of_world = list[np.ndarray](), list[np.ndarray](), list[float]()
        for some in held_out(index, queries, seed, (size,)):
            log_QV, log_none_Q = log_posterior(some, numbers_of(index.text_evidence))
            first.append(log_QV.amax(1).exp().numpy())
            right.append((log_QV.argmax(1) == some.owner_Q).numpy())
            of_world.append(1 - log_none_Q.exp().mean().item())
        asked = slice(None, None, 2)  # films taken away are no queries of their own
        errors.append(calibration_error(np.concatenate(first[asked]), np.concatenate(right[asked])))
        here.append(of_world)
    present, taken, absent = np.mean(here, axis=0).tolist()
    return {
        "ECE": errors,
        "P(here) of present": present,
        "P(here) of taken away": taken,
        "P(here) of absent": absent,
    }


def show(found: dict[str, Any]) -> None:
    columns = (*METHODS, "fused above the best source", "not here: absent", "not here: present")
    print("R@1 in percent\n| query | " + " | ".join(columns) + " |\n|" + " --- |" * (len(columns) + 1))
    for kind, row in found["R@1"].items():
        print(f"| {kind} | " + " | ".join(percent(row[column]) for column in columns) + " |")
    for name, value in found.items():
        if name != "R@1":
            print(f"{name}: {value}")


def percent(value: float | tuple[float, float]) -> str:
    if isinstance(value, tuple):
        return f"{100 * value[0]:+.0f} ± {100 * value[1]:.0f}"
    return f"{100 * value:.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("worlds", type=Path)
    parser.add_argument("--films", type=int, default=104)
    parser.add_argument("--seed", type=int, nargs="+", default=[2])
    parser.add_argument("--model", help="pocket, or the folder of the trained model (WORLDS/model)")
    parser.add_argument("--given-words", action="store_true", help="take the words from the plan")
    parser.add_argument("--fit", action="store_true", help="fit the numbers of TextEvidence, and use them")
    parser.add_argument("--json", type=Path, help="write the figures here")
    asked = parser.parse_args()
    model = asked.model or str(asked.worlds / "model")
    worlds = [
        world(asked.worlds / str(seed), asked.films, seed, asked.given_words, model) for seed in asked.seed
    ]
    if asked.fit:
        held = [
            some
            for (index, queries), seed in zip(worlds, asked.seed, strict=True)
            for some in held_out(index, queries, seed)
            if some.weight_Q.sum() > 0
        ]
        fitted = fit_text_evidence(held)
        print(fitted)
        for index, _ in worlds:
            index.__dict__["text_evidence"] = fitted
    found = report([ask(index, queries) for index, queries in worlds])
    print(f"{len(worlds)} worlds of {asked.films} films, {len(worlds[0][1])} queries each")
    found["in fewer films"] = {
        size: in_fewer_films(worlds, asked.seed, size) for size in SIZES if size < asked.films
    }
    show(found)
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
