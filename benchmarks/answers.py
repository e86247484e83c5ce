"""Are the answers of an index believable? Kinds, absence, confidence, and moments, on videos with captions.

    python benchmarks/answers.py INDEX CAPTIONS.json [--json FILE]

INDEX is an index of captioned clips, CAPTIONS.json says which captions each file has ({"a.mp4": ["…", …],
…}). Every caption is searched, as it is and with its video taken away, and so are the sentences of
`absent_sentences.txt`, written before any was asked, and single words that one clip's captions have. Then the
model's calibration is hidden: what a guess says, and what it learns from a few dozen captions, is measured on
the others. Last, the clips are joined to a film, and the moment shown for each caption is compared with its
clip.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter, defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from common import print_table, save_json

from holmes.evaluation.confidence.metrics import calibration_error
from holmes.evidence.calibration import Calibration, read_calibration
from holmes.evidence.fitting import fit_calibration, judge_all, without
from holmes.evidence.kinds import AnswerKind
from holmes.index.answer.searcher import Index, open_single_index
from holmes.index.ingest.builder import build_index
from holmes.media.feature_folder import FeatureFolder, VideoFeatures, video_id
from holmes.media.origin import Fingerprint
from holmes.records import Scores

ABSENT = Path(__file__).with_name("absent_sentences.txt")
TAUGHT = (20, 40, 60, 120, 240)  # captions to learn from
DRAWS = 5
CLIPS_A_FILM = 90
OFTEN, ALONE = 5, 0.8  # captions of a clip that have its word, and the share of all that have it
AROUND = 5.0  # seconds to either side of the peak: the window to beat


def kinds(
    calibration: Calibration, scores: Scores, owner_Q: torch.Tensor, absent: Scores
) -> list[dict[str, Any]]:
    """How often each kind is given and is right: for what is there, was taken away, or never was there."""
    there, gone, never = (judge_all(s, calibration) for s in (scores, without(scores, owner_Q), absent))
    right_Q = calibration.score(scores).argmax(1) == owner_Q

    def row(name: str, kind: AnswerKind, doubted: bool = False) -> dict[str, Any]:
        said_Q, gone_Q, never_Q = (
            (judged.kinds_Q == kind) & (judged.little_Q | (not doubted)) for judged in (there, gone, never)
        )
        return {
            "kind": name,
            "share": share(said_Q),
            "R@1": share(right_Q[said_Q]),
            "said": there.gallery.probability_QK[:, 0][said_Q].mean().item(),
            "taken away": share(gone_Q),
            "never there": share(never_Q),
        }

    doubted = row("precise, on little evidence", AnswerKind.PRECISE, doubted=True)
    return [*(row(kind.words, kind) for kind in AnswerKind), doubted]


def single_words(index: Index, captions: dict[str, list[str]]) -> list[dict[str, Any]]:
    """The kinds of words that describe one clip, each asked alone: their evidence says nothing of absence."""
    count: dict[str, Counter[int]] = defaultdict(Counter)
    for place, name in enumerate(index.videos):
        for caption in captions[Path(name).name]:
            for word in set(re.findall("[a-z]{3,}", caption.lower())):
                count[word][place] += 1
    best = {word: places.most_common(1)[0] for word, places in count.items()}
    chosen = {
        word: place
        for word, (place, often) in best.items()
        if often >= max(OFTEN, ALONE * count[word].total())
    }
    owners = [index.videos[place] for place in chosen.values()]
    answers = index.search_many(list(chosen), 5)
    kinds = np.array([answer.diagnosis.words for answer in answers])
    found = [[hit.video for hit in answer.hits] for answer in answers]
    first = torch.tensor([videos[0] == own for videos, own in zip(found, owners, strict=True)])
    five = torch.tensor([own in videos for videos, own in zip(found, owners, strict=True)])
    return [
        {
            "kind": kind.words,
            "words": int((kinds == kind.words).sum()),
            "R@1": share(first[kinds == kind.words]),
            "R@5": share(five[kinds == kind.words]),
        }
        for kind in AnswerKind
    ]


def share(chosen: torch.Tensor) -> float:
    return chosen.double().mean().item()


def confidence(index: Index, own: Calibration, scores: Scores, owner_Q: torch.Tensor) -> list[dict[str, Any]]:
    """The mean claimed probability and the calibration error, for calibrations learned in several ways."""
    rows = [trust("its own", own, scores, owner_Q)]
    for count in TAUGHT:
        draws = []
        for seed in range(DRAWS):
            order = torch.randperm(len(owner_Q), generator=torch.Generator().manual_seed(seed))
            some, others = order[:count], order[count:]
            fitted = fit_calibration(
                rows_of(scores, some), owner_Q[some], own.frame_weight, own.clip_weight, own.model
            )
            if fitted is not None:
                draws.append(trust("", fitted, rows_of(scores, others), owner_Q[others]))
        mean = {name: float(np.mean([draw[name] for draw in draws])) for name in ("said", "right", "ece")}
        rows.append({"learned": f"from {count} captions", **mean})
    return rows


def rows_of(scores: Scores, some_Q: torch.Tensor) -> Scores:
    return Scores(scores.frame_QV[some_Q], scores.clip_QV[some_Q])


def trust(name: str, calibration: Calibration, scores: Scores, owner_Q: torch.Tensor) -> dict[str, Any]:
    said_Q = judge_all(scores, calibration).gallery.probability_QK[:, 0].double().numpy()
    right_Q = (calibration.score(scores).argmax(1) == owner_Q).numpy()
    error = float(calibration_error(said_Q, right_Q, np.ones((1, len(right_Q)), np.int64))[0])
    return {"learned": name, "said": float(said_Q.mean()), "right": float(right_Q.mean()), "ece": error}


def moments(index: Index, captions: dict[str, list[str]], folder: Path) -> list[dict[str, Any]]:
    """The clips as films: the shown window and the peak with seconds around it, beside the true clip."""
    joined, clips = join(index, folder / "films")
    build_index(folder / "index", [joined.path], index.embedder)
    films = open_single_index(folder / "index", device="cpu")
    films.embedder = index.embedder
    found: dict[str, list[tuple[float, float, float]]] = {"window shown": [], "peak ± 5 s": []}
    for film, parts in clips.items():
        asked = [(text, start, end) for name, start, end in parts for text in captions[Path(name).name]]
        answers = films.search_many([text for text, _, _ in asked], 1, filter=[film])
        for (text, start, end), answer in zip(asked, answers, strict=True):
            (timeline,) = films.timelines(text, [film])
            peak = float(timeline.spans_F2[timeline.similarity_F.argmax()].mean())
            best = answer.hits[0].moments[0]
            for name, window in (
                ("window shown", (best.start, best.end)),
                ("peak ± 5 s", (max(0.0, peak - AROUND), peak + AROUND)),
            ):
                found[name].append(beside(window, (start, end)))
    return [
        {
            "moment": name,
            "captions": len(rows),
            "IoU": float(np.mean([row[0] for row in rows])),
            "centre inside": float(np.mean([row[1] for row in rows])),
            "median seconds": float(np.median([row[2] for row in rows])),
            "longest": float(np.max([row[2] for row in rows])),
        }
        for name, rows in found.items()
    ]


def join(index: Index, path: Path) -> tuple[FeatureFolder, dict[str, list[tuple[str, float, float]]]]:
    """Features of films, and the clips of each with their seconds."""
    features = FeatureFolder.open(index.store.path / "features")
    videos = {str(video.source): video for video in features}
    names = np.random.default_rng(0).permutation([name for name in index.videos if name in videos]).tolist()
    joined = FeatureFolder.create(path, features.backbone, features.rate)
    clips: dict[str, list[tuple[str, float, float]]] = {}
    for first in range(0, len(names), CLIPS_A_FILM):
        source, start = Path(f"/films/{first}.mp4"), 0.0
        parts, rows, times = [], [], []
        for name in names[first : first + CLIPS_A_FILM]:
            video = videos[name]
            parts.append((name, start, start + video.duration))
            rows.append(video.rows)
            times.append(video.times + start)
            start += video.duration
        film = VideoFeatures(video_id(source), source, start, np.concatenate(rows), np.concatenate(times))
        joined.write(film, Fingerprint(1, 1))
        clips[str(source)] = parts
    return joined, clips


def beside(window: tuple[float, float], true: tuple[float, float]) -> tuple[float, float, float]:
    """IoU, whether the window's centre lies in the true one, and its seconds."""
    shared = max(0.0, min(window[1], true[1]) - max(window[0], true[0]))
    union = window[1] - window[0] + true[1] - true[0] - shared
    return shared / union, float(true[0] <= sum(window) / 2 <= true[1]), window[1] - window[0]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("index", type=Path)
    parser.add_argument("captions", type=Path)
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results/answers.json"))
    options = parser.parse_args()
    index = open_single_index(options.index, device="cpu")
    captions = json.loads(options.captions.read_bytes())
    asked = [(text, at) for at, name in enumerate(index.videos) for text in captions[Path(name).name]]
    scores, owner_Q = index.every_score([text for text, _ in asked]), torch.tensor([at for _, at in asked])
    own = read_calibration(index.embedder.calibration, index.embedder.record["digest"])
    assert own is not None, "kinds are measured with a calibrated model"
    found = {"kinds": kinds(own, scores, owner_Q, index.every_score(ABSENT.read_text().splitlines()))}
    print_table("Kinds", found["kinds"])
    found["single words"] = single_words(index, captions)
    print_table("Single words, each of one clip", found["single words"])
    found["confidence"] = confidence(index, own, scores, owner_Q)
    print_table("Confidence of the first hit", found["confidence"])
    with TemporaryDirectory() as folder:
        found["moments"] = moments(index, captions, Path(folder))
    print_table("Moments in films of the clips", found["moments"])
    save_json(options.json, found)


if __name__ == "__main__":
    main()
