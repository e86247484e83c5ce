"""Are the answers of an index believable? One distribution, held against captions, absence and wording.

    python benchmarks/answers.py INDEX CAPTIONS.json [--demo DEMO] [--json FILE] [--figure FILE.svg]

INDEX is an index of captioned clips, CAPTIONS.json says which captions each file has ({"a.mp4": ["…", …],
…}). Every caption is asked, as it is and with its video taken away, and so are the sentences of
`absent_sentences.txt`, written before any was asked. Calibrations are cross-validated: a caption is judged by
one that saw no caption of its video. With their video taken away captions count a quarter as much, so that a
fifth has no answer. Then nouns are asked in four wordings, the clips are joined to a film that is searched
beside them, and the demo's index is asked its captions and random sentences. `--figure` draws the curve of
what is noticed against what is mistaken.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from glob import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from common import by_group, print_table, save_json
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn.functional import normalize

from holmes.evaluation.confidence.metrics import auroc, calibration_error
from holmes.evidence.calibration import Calibration, read_calibration
from holmes.evidence.fitting import fit_calibration, judge_all, without
from holmes.evidence.judging import Judgement
from holmes.evidence.kinds import FITS, MAY_FIT, AnswerKind
from holmes.index.answer.answers import Answer
from holmes.index.answer.calibration import SAME_MEANING, rows_of
from holmes.index.answer.searcher import Index, open_single_index
from holmes.index.ingest.builder import build_index
from holmes.media.feature_folder import FeatureFolder, VideoFeatures, video_id
from holmes.media.origin import Fingerprint
from holmes.records import Scores
from holmes.report.figures.style import LIGHT, WIDTH, svg
from holmes.worlds.rendered import RenderedWorld

ABSENT = Path(__file__).with_name("absent_sentences.txt")
FOLDS = 5
THERE, GONE = 4, 1  # how often a caption counts with its video, and without it
CLIPS_A_FILM = 45
FIRST = 10  # hits whose words are measured
NOUNS = """guitar video_game dog cat car kitchen makeup football piano horse baby cartoon robot swimming_pool
cake wok camel soldier motorcycle train airplane map puzzle_cube microphone stage beach mountain computer
phone book shark doll dress chef teacher wrestler singer band boat tree"""
WORDINGS = ("{}", "a {}", "there is a {}", "a video of a {}")
RANDOM_SENTENCES = 500
RANDOM_WORDS = """red blue green box circle ball dog man woman runs jumps sits falls turns left right up fast
slowly makeup economy the a of and under water night city music two three someone ?! 17 x"""
TARGETS = {
    "ECE of the first hit": "≤ .05",
    "ECE of none": "≤ .05",
    "precise, right": "≥ .70",
    "absent called precise": "≤ .05",
    "there, called not here": "≤ .08",
    "absent noticed": "≥ .70",
    "nouns of one kind in four wordings": "≥ .90",
    "contradictions": "0",
    "shortest moment, seconds": "≥ 2",
}


Rows = list[dict[str, Any]]


def figure(name: str, measured: float, off: float | None = None) -> dict[str, Any]:
    """`off` is how far a share may be off (95%), where that is known."""
    return {
        "figure": name,
        "target": TARGETS.get(name, ""),
        "measured": measured,
        "±": "" if off is None else off,
    }


@dataclass(frozen=True)
class Asked:
    """Captions with their scores, each by the calibration of its fold."""

    scores: Scores
    owner_Q: Tensor
    fold_Q: Tensor
    calibrations: Sequence[Calibration]

    def judged(self, scores: Scores) -> dict[str, Tensor]:
        """What is said of these captions, each by the calibration that did not see its video."""
        parts = [
            judge_all(rows_of(scores, self.fold_Q == fold), calibration)
            for fold, calibration in enumerate(self.calibrations)
        ]
        order_Q = torch.cat([(self.fold_Q == fold).nonzero()[:, 0] for fold in range(FOLDS)]).argsort()
        return {
            name: torch.cat([column(part) for part in parts])[order_Q] for name, column in COLUMNS.items()
        }


COLUMNS = {
    "first": lambda judged: judged.gallery.probability_QK[:, 0],
    "none": lambda judged: judged.gallery.none_Q,
    "kind": lambda judged: judged.kinds_Q,
    "fit": lambda judged: judged.fit_QK[:, :FIRST],
}


def cross_validated(scores: Scores, owner_Q: Tensor, fits_QV: Tensor, own: Calibration) -> Asked:
    order_V = torch.randperm(scores.clip_QV.shape[1], generator=torch.Generator().manual_seed(0))
    fold_Q = order_V[owner_Q] % FOLDS
    fitted = []
    for fold in range(FOLDS):
        some = fold_Q != fold
        found = fit_calibration(
            rows_of(scores, some), owner_Q[some], own.frame_weight, own.clip_weight, own.model, fits_QV[some]
        )
        assert found is not None
        fitted.append(found)
    return Asked(scores, owner_Q, fold_Q, fitted)


def by_name(index: Index, sentences: Sequence[str]) -> Scores:
    """Scores of all videos in the order of their names, whatever their order in the index."""
    order_V = sorted(range(len(index)), key=index.videos.__getitem__)
    scores = index.every_score(sentences)
    return Scores(scores.frame_QV[:, order_V], scores.clip_QV[:, order_V])


def fitting_videos(index: Index, sentences: Sequence[str], owner_Q: Tensor) -> Tensor:
    """Q × V: which other clips have a caption that says nearly the same, by the text encoder alone."""
    encoder: Any = getattr(index.embedder.visual, "_minilm", None) or index.embedder.visual
    rows_QD = normalize(torch.from_numpy(np.asarray(encoder.sentences(sentences), np.float32)), dim=-1)
    same_QQ = (rows_QD @ rows_QD.T >= SAME_MEANING).float()
    fits_QV = torch.zeros(len(sentences), len(index)).index_add(1, owner_Q, same_QQ) > 0
    return fits_QV.scatter(1, owner_Q.unsqueeze(1), False)


def weighted_error(said: Sequence[Tensor], true: Sequence[Tensor]) -> float:
    """ECE with captions counted `THERE` times with their video, and `GONE` times without it."""
    counts = np.repeat([THERE, GONE], [len(said[0]), len(said[1])])
    said_Q, true_Q = (torch.cat(list(part)).double().numpy() for part in (said, true))
    return float(calibration_error(said_Q, true_Q, counts[None])[0])


def figures(
    asked: Asked, absent: Scores, fits_QV: Tensor, drawn: Path | None = None
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The figures that have a target, and the curve of what is noticed against what is mistaken."""
    own = asked.calibrations[0]
    score_QV = own.score(asked.scores)
    right_Q = score_QV.argmax(1) == asked.owner_Q
    there, gone = asked.judged(asked.scores), asked.judged(without(asked.scores, asked.owner_Q))
    never = [judge_all(absent, calibration) for calibration in asked.calibrations]
    wrong_Q = torch.zeros_like(right_Q)
    precise_Q, gone_precise_Q = (said["kind"] == AnswerKind.PRECISE for said in (there, gone))

    def of_never(kind: AnswerKind) -> Tensor:
        """How often each absent sentence is of this kind."""
        return torch.stack([judged.kinds_Q == kind for judged in never]).double().mean(0)

    order_QK = score_QV.argsort(dim=1, descending=True)[:, :FIRST]
    true_QK = fits_QV.scatter(1, asked.owner_Q.unsqueeze(1), True).gather(1, order_QK)
    fit_QK = there["fit"]
    once = np.ones((1, fit_QK.numel()), np.int64)
    none_never_Q = torch.stack([judged.gallery.none_Q for judged in never]).mean(0)
    # Precise answers as a fifth of the queries without an answer makes them: right, said, and the clip.
    right_M, said_M, clip_M = (
        torch.cat([there_Q[precise_Q]] * THERE + [gone_Q[gone_precise_Q]] * GONE)
        for there_Q, gone_Q in (
            (right_Q, wrong_Q),
            (there["first"], gone["first"]),
            (asked.owner_Q, asked.owner_Q),
        )
    )
    sentence_N = torch.arange(len(none_never_Q))
    shares = {  # of whom, and what is independent of each other
        "R@1": (right_Q, asked.owner_Q),
        "precise, share": (precise_Q, asked.owner_Q),
        "precise, right": (right_Q[precise_Q], asked.owner_Q[precise_Q]),
        "precise, right, with a fifth missing": (right_M, clip_M),
        "precise, said, with a fifth missing": (said_M, clip_M),
        "absent called precise": (of_never(AnswerKind.PRECISE), sentence_N),
        "there, called not here": (there["kind"] == AnswerKind.NOT_HERE, asked.owner_Q),
        "taken away, called not here": (gone["kind"] == AnswerKind.NOT_HERE, asked.owner_Q),
        "absent noticed": (of_never(AnswerKind.NOT_HERE), sentence_N),
    }
    rows = [
        figure(name, *by_group(of.double().numpy(), by.numpy())) if len(of) else figure(name, float("nan"))
        for name, (of, by) in shares.items()
    ]
    measured = {
        "ECE of the first hit": weighted_error((there["first"], gone["first"]), (right_Q, wrong_Q)),
        "ECE of none": weighted_error((there["none"], gone["none"]), (wrong_Q, ~wrong_Q)),
        "AUROC of none, absent against there": roc(none_never_Q, there["none"]),
        "AUROC of none, taken away against there": roc(gone["none"], there["none"]),
        "fits: share of the first ten": share(fit_QK >= FITS),
        "fits: precision": share(true_QK[fit_QK >= FITS]),
        "may fit: precision": share(true_QK[(fit_QK >= MAY_FIT) & (fit_QK < FITS)]),
        "nearest: precision": share(true_QK[fit_QK < MAY_FIT]),
        "fits: ECE": float(
            calibration_error(fit_QK.double().flatten().numpy(), true_QK.flatten().numpy(), once)[0]
        ),
    }
    rows += [figure(name, value) for name, value in measured.items()]
    if drawn is not None:
        noticed, mistaken = (share(shares[name][0]) for name in ("absent noticed", "there, called not here"))
        unlike = {"never there": none_never_Q, "taken away": gone["none"]}
        draw_curve(there["none"], unlike, (mistaken, noticed), drawn)
    curve = [
        {
            "mistaken": mistaken,
            "probability of none from": (line := there["none"].quantile(1 - mistaken).item()),
            "absent noticed": share(none_never_Q >= line),
            "taken away noticed": share(gone["none"] >= line),
        }
        for mistaken in (0.01, 0.02, 0.05, 0.08, 0.1, 0.2, 0.3, 0.5)
    ]
    return rows, curve


def roc(positive_Q: Tensor, negative_Q: Tensor) -> float:
    values = torch.cat([positive_Q, negative_Q]).double().numpy()
    marks = np.arange(len(values)) < len(positive_Q)
    return float(auroc(values, marks, np.ones((1, len(values)), np.int64))[0])


def draw_curve(there_Q: Tensor, unlike: dict[str, Tensor], at: tuple[float, float], file: Path) -> None:
    """The share noticed over the share mistaken, whatever P(none) is asked for; `at` is where the rule is."""
    with LIGHT.applied():
        figure = Figure((WIDTH / 2, 2.7), layout="constrained")
        axes = figure.subplots()
        for (name, none_Q), colour in zip(unlike.items(), LIGHT.series, strict=False):
            line_N = torch.cat([there_Q, none_Q]).unique()
            noticed, mistaken = ((part_Q >= line_N[:, None]).double().mean(1) for part_Q in (none_Q, there_Q))
            axes.plot(mistaken, noticed, color=colour, label=f"{name}, AUROC {roc(none_Q, there_Q):.2f}")
        axes.plot(*at, "o", color=LIGHT.ink, markersize=4, label="as the rule decides")
        axes.set(xlabel="there, called “not here”", ylabel="called “not here”", xlim=(0, 1), ylim=(0, 1))
        axes.legend(frameon=False, fontsize=7.5, loc="lower right")
    file.write_bytes(svg(figure))


def kinds(asked: Asked, absent: Scores) -> list[dict[str, Any]]:
    """How often each kind is given and is right: for what is there, was taken away, or never was there."""
    there, gone = asked.judged(asked.scores), asked.judged(without(asked.scores, asked.owner_Q))
    never = judge_all(absent, asked.calibrations[0])
    right_Q = asked.calibrations[0].score(asked.scores).argmax(1) == asked.owner_Q
    return [
        {
            "kind": kind.words,
            "share": share(there["kind"] == kind),
            "R@1": share(right_Q[there["kind"] == kind]),
            "said": there["first"][there["kind"] == kind].mean().item(),
            "taken away": share(gone["kind"] == kind),
            "never there": share(never.kinds_Q == kind),
        }
        for kind in AnswerKind
    ]


def shipped(
    own: Calibration, scores: Scores, owner_Q: Tensor, absent: Scores, fits_QV: Tensor
) -> list[dict[str, Any]]:
    """The same figures of the calibration that comes with the model."""
    there, gone, never = (judge_all(s, own) for s in (scores, without(scores, owner_Q), absent))
    right_Q = own.score(scores).argmax(1) == owner_Q
    wrong_Q = torch.zeros_like(right_Q)

    def first(judged: Judgement) -> Tensor:
        return judged.gallery.probability_QK[:, 0]

    precise_Q, gone_precise_Q = (said.kinds_Q == AnswerKind.PRECISE for said in (there, gone))
    order_QK = own.score(scores).argsort(dim=1, descending=True)[:, :FIRST]
    true_QK = fits_QV.scatter(1, owner_Q.unsqueeze(1), True).gather(1, order_QK)
    measured = {
        "ECE of the first hit": weighted_error((first(there), first(gone)), (right_Q, wrong_Q)),
        "ECE of none": weighted_error((there.gallery.none_Q, gone.gallery.none_Q), (wrong_Q, ~wrong_Q)),
        "precise, right": share(right_Q[precise_Q]),
        "precise, right, with a fifth missing": (
            THERE * (right_Q & precise_Q).sum() / (THERE * precise_Q.sum() + GONE * gone_precise_Q.sum())
        ).item(),
        "absent called precise": share(never.kinds_Q == AnswerKind.PRECISE),
        "there, called not here": share(there.kinds_Q == AnswerKind.NOT_HERE),
        "absent noticed": share(never.kinds_Q == AnswerKind.NOT_HERE),
        "AUROC of none, absent against there": roc(never.gallery.none_Q, there.gallery.none_Q),
        "fits: precision": share(true_QK[there.fit_QK[:, :FIRST] >= FITS]),
    }
    return [figure(name, value) for name, value in measured.items()]


def wordings(index: Index) -> dict[str, Any]:
    said = [
        index.search_many([form.format(noun.replace("_", " ")) for noun in NOUNS.split()], 1)
        for form in WORDINGS
    ]
    same = [len({answer.diagnosis.kind for answer in forms}) == 1 for forms in zip(*said, strict=True)]
    return figure("nouns of one kind in four wordings", float(np.mean(same)))


def contradictions(answers: Sequence[Answer]) -> int:
    """Answers whose order, kind or words cannot be true beside their numbers."""
    count = 0
    for answer in answers:
        said, shares = (
            answer.diagnosis,
            [hit.probability for hit in answer.hits if hit.probability is not None],
        )
        if not shares or said.here is None:
            continue
        one, held = (sum(said.probabilities[:size]) for size in (said.copies, said.group))
        none, first, held = (round(100 * p) for p in (1 - said.here, one, held))
        second = round(100 * max([0.0, *said.probabilities[said.copies :]]))
        tags = {hit.fit for hit in answer.group}
        wrong = (
            shares != sorted(shares, reverse=True),
            sum(said.probabilities) + 1 - said.here > 1 + 1e-4,
            said.kind in ("precise", "several_fit") and held < 50,
            said.kind == "not_here" and not none > first,
            said.kind == "too_little" and none >= 30 and none > first,
            said.kind != "precise" and first >= 50 and 2 * second <= first,
            said.kind == "not_here" and {hit.fit for hit in answer.hits} != {"nearest"},
            said.kind == "precise" and tags != {"fits"},
            said.kind == "several_fit" and "nearest" in tags,
        )
        count += any(wrong)
    return count


def with_film(index: Index, captions: dict[str, list[str]], folder: Path) -> list[dict[str, Any]]:
    """The clips, and half of them again as one film: order, numbers, and moments in the film."""
    joined, clips = join(index, folder / "film")
    both = folder / "index"
    build_index(both, [index.store.path / "features", joined.path], index.embedder)
    films = open_single_index(both, device="cpu")
    films.embedder = index.embedder
    (film, parts), *_ = clips.items()
    asked = [(text, name) for name in sorted(index.videos) for text in captions[Path(name).name][:3]]
    answers = films.search_many([text for text, _ in asked], 10)
    inside = {name for name, _, _ in parts}
    right = [
        answer.hits[0].video in ((name, film) if name in inside else (name,))
        for (_, name), answer in zip(asked, answers, strict=True)
    ]
    moments = [(text, start, end) for name, start, end in parts for text in captions[Path(name).name]]
    found = films.search_many([text for text, _, _ in moments], 1, filter=[film])
    overlaps = [
        beside((answer.hits[0].moments[0].start, answer.hits[0].moments[0].end), (start, end))
        for (_, start, end), answer in zip(moments, found, strict=True)
    ]
    shown = [moment for answer in answers for hit in answer.hits for moment in hit.moments]
    return [
        figure("contradictions", contradictions(answers)),
        figure("R@1, clip or film", float(np.mean(right))),
        figure("moment in the film: centre inside", float(np.mean([each[1] for each in overlaps]))),
        figure("moment in the film: IoU", float(np.mean([each[0] for each in overlaps]))),
        figure("shortest moment, seconds", min(moment.end - moment.start for moment in shown)),
    ]


def join(index: Index, path: Path) -> tuple[FeatureFolder, dict[str, list[tuple[str, float, float]]]]:
    """Features of films, and the clips of each with their seconds."""
    features = FeatureFolder.open(index.store.path / "features")
    videos = {str(video.source): video for video in features}
    known = sorted(name for name in index.videos if name in videos)
    names = np.random.default_rng(0).permutation(known).tolist()
    joined = FeatureFolder.create(path, features.backbone, features.rate)
    source, start = Path("/films/joined.mp4"), 0.0
    parts, rows, times = [], [], []
    for name in names[:CLIPS_A_FILM]:
        video = videos[name]
        parts.append((name, start, start + video.duration))
        rows.append(video.rows)
        times.append(video.times + start)
        start += video.duration
    film = VideoFeatures(video_id(source), source, start, np.concatenate(rows), np.concatenate(times))
    joined.write(film, Fingerprint(1, 1))
    return joined, {str(source): parts}


def beside(window: tuple[float, float], true: tuple[float, float]) -> tuple[float, float]:
    """IoU, and whether the window's centre lies in the true one."""
    shared = max(0.0, min(window[1], true[1]) - max(window[0], true[0]))
    union = window[1] - window[0] + true[1] - true[0] - shared
    return shared / union, float(true[0] <= sum(window) / 2 <= true[1])


def demo(folder: Path) -> list[dict[str, Any]]:
    """The demo's index: its test captions, and sentences of random words."""
    index = open_single_index(folder / "index", device="cpu")
    rng = np.random.default_rng(0)
    told = [caption.text for caption in RenderedWorld.open(folder / "videos").captions_of("test")]
    drawn = [" ".join(rng.choice(RANDOM_WORDS.split(), rng.integers(1, 9))) for _ in range(RANDOM_SENTENCES)]
    rows = []
    for name, sentences in (("its captions", told), ("random sentences", drawn)):
        answers = index.search_many(sentences, 10)
        said = [answer.diagnosis for answer in answers]
        below = sum(each.kind == "precise" and (each.probability or 0) < 0.495 for each in said)
        counts = {kind.words: sum(each.kind == kind.name.lower() for each in said) for kind in AnswerKind}
        row = {"asked": name, "sentences": len(said), "contradictions": contradictions(answers)}
        rows.append({**row, "precise below half": below, **counts})
    return rows


def demo_tags(folder: Path) -> Rows:
    """The captions asked within the test videos, of which the world knows which fit: are the words true?"""
    index = open_single_index(folder / "index", device="cpu")
    captions = RenderedWorld.open(folder / "videos").captions_of("test")
    tests = f"{escape(str((folder / 'videos').resolve()))}/test/*"
    answers = index.search_many([caption.text for caption in captions], FIRST, filter=tests)
    said = [
        (hit.fit, answer.diagnosis.kind == "not_here", Path(hit.video).stem in (told.video, *told.also_fits))
        for told, answer in zip(captions, answers, strict=True)
        for hit in answer.hits
    ]
    rows = []
    for fit in ("fits", "may fit", "nearest"):
        true, otherwise = (
            [fits for f, gone, fits in said if f == fit and gone is not_here] for not_here in (False, True)
        )
        rows.append(
            {
                "tag": fit,
                "hits": len(true),
                "that fit": mean_of(true),
                "where 'not here'": len(otherwise),
                "fit": mean_of(otherwise),
            }
        )
    return rows


def mean_of(marks: Sequence[bool]) -> float:
    return float(np.mean(marks)) if marks else float("nan")


def share(chosen: Tensor) -> float:
    return chosen.double().mean().item()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("index", type=Path)
    parser.add_argument("captions", type=Path)
    parser.add_argument("--demo", type=Path)
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results/answers.json"))
    parser.add_argument("--figure", type=Path)
    options = parser.parse_args()
    index = open_single_index(options.index, device="cpu")
    captions = json.loads(options.captions.read_bytes())
    asked = [(text, at) for at, name in enumerate(sorted(index.videos)) for text in captions[Path(name).name]]
    texts, owner_Q = [text for text, _ in asked], torch.tensor([at for _, at in asked])
    scores, absent = by_name(index, texts), by_name(index, ABSENT.read_text().splitlines())
    own = read_calibration(index.embedder.calibration, index.embedder.record["digest"])
    assert own is not None, "kinds are measured with a calibrated model"
    fits_QV = fitting_videos(index, texts, owner_Q)
    folds = cross_validated(scores, owner_Q, fits_QV, own)
    found: dict[str, Any] = {}
    found["cross-validated"], found["curve"] = figures(folds, absent, fits_QV, options.figure)
    found["cross-validated"].append(wordings(index))
    answers = index.search_many(texts, 10)
    found["cross-validated"].append(figure("contradictions", contradictions(answers)))
    print_table("Captions, cross-validated", found["cross-validated"])
    print_table("Noticed against mistaken", found["curve"])
    found["kinds"] = kinds(folds, absent)
    print_table("Kinds", found["kinds"])
    found["shipped"] = shipped(own, scores, owner_Q, absent, fits_QV)
    print_table("The calibration that comes with the model", found["shipped"])
    with TemporaryDirectory() as folder:
        found["film"] = with_film(index, captions, Path(folder))
    print_table("With a film of half of the clips", found["film"])
    if options.demo is not None:
        found["demo"] = demo(options.demo)
        print_table("The demo's index", found["demo"])
        found["tags"] = demo_tags(options.demo)
        print_table("Tags of the demo's captions among its test videos", found["tags"])
    save_json(options.json, found)


if __name__ == "__main__":
    main()
