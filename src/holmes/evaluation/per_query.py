"""One row per query: rank of its video, confidence, and best moment.

Q queries, V videos, C clips
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch

from holmes.base.files import atomic_file
from holmes.data.store import Store
from holmes.errors import HolmesError, missing_packages
from holmes.evaluation.localisation import overlap, similarity_along
from holmes.evaluation.scoring import Encoded
from holmes.evaluation.split_report import Evaluated
from holmes.evidence.calibration import Calibration
from holmes.evidence.fitting import CANDIDATES, judge_all
from holmes.evidence.kinds import AnswerKind
from holmes.evidence.quantities import Quantities, candidate_quantities
from holmes.evidence.query_kinds import label_consistency
from holmes.moments import best_windows
from holmes.records import QueryKind, Scores

Cell: TypeAlias = str | int | float | None  # one cell of a table
KINDS = {int(kind): kind.name.lower() for kind in QueryKind}


@dataclass(frozen=True)
class QueryTable:
    """Columns by name, all equally long. `pandas.DataFrame(table.columns)` makes a data frame of it."""

    columns: Mapping[str, Sequence[Cell]]

    def __len__(self) -> int:
        return len(self.columns["id"])

    def rows(self) -> Iterator[dict[str, Cell]]:
        for values in zip(*self.columns.values(), strict=True):
            yield dict(zip(self.columns, values, strict=True))

    @classmethod
    def joined(cls, tables: Sequence[QueryTable]) -> QueryTable:
        """The rows of all tables, one table after the other."""
        names = list(tables[0].columns)
        return cls({name: [cell for table in tables for cell in table.columns[name]] for name in names})

    def with_column(self, name: str, value: Cell) -> QueryTable:
        """The table with a further first column, the same value in every row."""
        return QueryTable({name: [value] * len(self), **self.columns})

    def save(self, path: Path) -> None:
        """Write JSON lines, or Parquet if the file name says so."""
        writer_of(path)(self, path)

    def to_dict(self) -> dict[str, list[Cell]]:
        return {name: list(column) for name, column in self.columns.items()}


@torch.inference_mode()
def query_table(
    found: Evaluated, store: Store, calibration: Calibration | None, temperature: float | None
) -> QueryTable:
    """What is known of every query of an evaluated split.

    `kind` and `probability` need a calibration and are null without one; u and ξ then have training's τ.
    Scores from outside have no branches, no moments and no τ.
    """
    split, scores, queries = found.split, found.scores, found.split.queries
    owner_Q = torch.from_numpy(split.owner).to(found.score_QV.device)
    own_Q1 = owner_Q.unsqueeze(1)
    best = found.score_QV.max(1)
    moments_Q2 = store.moments_Q2[queries].astype(np.float64)
    seen_Q2 = np.full(moments_Q2.shape, np.nan) if found.encoded is None else seen_moments(found.encoded)
    seconds_Q = store.durations_V[split.videos][split.owner].astype(np.float64)
    judged = None if calibration is None else judge_all(scores, calibration)
    quantities = judged.quantities if judged else None
    if quantities is None and temperature is not None:
        quantities = uncalibrated(scores, found.score_QV, temperature)
    known_Q, nothing = store.kinds_Q[queries], [None] * len(queries)
    branches = {"frame_score": scores.frame_QV, "clip_score": scores.clip_QV}
    fitting_Q = found.rank_Q if found.fitting_Q is None else found.fitting_Q
    return QueryTable(
        {
            "id": [store.query_ids[query] for query in queries],
            "text": [store.captions[query] for query in queries],
            "video": [store.video_ids[video] for video in split.videos[split.owner]],
            "rank": found.rank_Q.tolist(),
            "rank_fitting": fitting_Q.tolist(),
            "best_video": [store.video_ids[video] for video in split.videos[best.indices.cpu().numpy()]],
            "score": found.score_QV.gather(1, own_Q1).squeeze(1).tolist(),
            **{
                name: nothing if found.encoded is None else branch_QV.gather(1, own_Q1).squeeze(1).tolist()
                for name, branch_QV in branches.items()
            },
            "best_score": best.values.tolist(),
            "kind": [AnswerKind(kind).name.lower() for kind in judged.kinds_Q.tolist()]
            if judged
            else nothing,
            "kind_in_training": nothing
            if found.kind_Q is None
            else [KINDS[kind] for kind in found.kind_Q.tolist()],
            "kind_known": [KINDS.get(int(kind)) for kind in known_Q],
            "u": quantities.uncertainty_Q.tolist() if quantities else nothing,
            "xi": quantities.entropy_Q.tolist() if quantities else nothing,
            "c": label_consistency(found.score_QV, owner_Q).tolist(),
            "probability": judged.gallery.probability_top(1).tolist() if judged else nothing,
            "probability_here": judged.here_Q.tolist() if judged else nothing,
            "moment_start": finite(seen_Q2[:, 0]),
            "moment_end": finite(seen_Q2[:, 1]),
            "true_start": finite(moments_Q2[:, 0]),
            "true_end": finite(moments_Q2[:, 1]),
            "moment_iou": finite(overlap(seen_Q2, moments_Q2)),
            "moment_ratio": finite(moments_Q2[:, 1] - moments_Q2[:, 0]),
            "words": [len(store.captions[query].split()) for query in queries],
            "video_seconds": finite(seconds_Q),
        }
    )


def seen_moments(encoded: Encoded) -> np.ndarray:
    """Start and end, as shares of the right video, of the window grown around its best clip."""
    clip_QC = similarity_along(encoded.queries.query_QD, encoded.timeline_VCD, encoded.owner_Q).cpu().numpy()
    return np.asarray((best_windows(clip_QC) + np.array([0, 1])) / clip_QC.shape[1])


def uncalibrated(scores: Scores, score_QV: torch.Tensor, temperature: float) -> Quantities:
    best_QK = score_QV.topk(min(CANDIDATES, score_QV.shape[1])).indices
    best = Scores(scores.frame_QV.gather(1, best_QK), scores.clip_QV.gather(1, best_QK))
    return candidate_quantities(best, CANDIDATES, temperature)


def finite(values: np.ndarray) -> list[float | None]:
    return [float(value) if np.isfinite(value) else None for value in values]


def writer_of(path: Path) -> Callable[[QueryTable, Path], None]:
    """How a file of this name is written; an unknown ending is refused before anything is computed."""
    if path.suffix == ".jsonl":
        return write_jsonl
    if path.suffix == ".parquet":
        try:
            import pyarrow  # noqa: F401
        except ImportError:
            raise missing_packages(f"{path} is a Parquet file, which", "pyarrow") from None
        return write_parquet
    raise HolmesError(f"{path}: the results of queries are written as .jsonl or .parquet.")


def write_jsonl(table: QueryTable, path: Path) -> None:
    with atomic_file(path) as file:
        for row in table.rows():
            file.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")


def write_parquet(table: QueryTable, path: Path) -> None:
    import pyarrow
    from pyarrow import parquet

    with atomic_file(path) as file:
        parquet.write_table(pyarrow.table(table.to_dict()), file)
