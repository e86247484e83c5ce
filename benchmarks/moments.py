"""Do the moments that search shows lie where the scenes are? On the rendered world of `holmes demo`.

    holmes demo demo && python benchmarks/moments.py demo

Every caption of a test video is searched in the demo's index, among all its videos and among the test videos
alone. Where the right video comes first, the best moment is compared with the true scene.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from common import save_json
from rich.console import Console
from rich.table import Table

import holmes
from holmes.index.answers import Answer
from holmes.moments import Moment
from holmes.records import QueryKind
from holmes.worlds.rendered import Caption, RenderedWorld


def main(
    demo: Annotated[Path, typer.Argument(help="The folder that 'holmes demo' filled.")] = Path("demo"),
    out: Annotated[Path, typer.Option(help="Folder for the JSON file.")] = Path("benchmarks/results"),
) -> None:
    world, index = RenderedWorld.open(demo / "videos"), holmes.open_index(demo / "index", device="cpu")
    paths = {video.id: str(world.path(video).absolute()) for video in world.videos}
    captions = world.captions_of("test")
    table = Table("searched among", "kind", "captions", "found first", "mean IoU", "IoU ≥ .5", box=None)
    result = []
    for among in ("*", "*/test/*"):
        answers = index.search_many([caption.text for caption in captions], top=1, filter=among)
        for kind in QueryKind:
            pairs = [(c, a) for c, a in zip(captions, answers, strict=True) if c.kind == kind]
            found = [overlap(a.hits[0].moments[0], c) for c, a in pairs if is_right(a, paths[c.video])]
            row = {
                "among": among,
                "kind": kind.name.lower(),
                "captions": len(pairs),
                "found": len(found),
                "mean_iou": float(np.mean(found)) if found else None,
                "iou_at_least_half": float(np.mean(np.array(found) >= 0.5)) if found else None,
            }
            result.append(row)
            table.add_row(
                *(f"{value:.3f}" if isinstance(value, float) else str(value) for value in row.values())
            )
    Console().print(table)
    save_json(out / "moments.json", result)


def is_right(answer: Answer, path: str) -> bool:
    return bool(answer.hits) and answer.hits[0].video == path


def overlap(moment: Moment, caption: Caption) -> float:
    """Intersection over union, in seconds."""
    shared = min(moment.end, caption.end) - max(moment.start, caption.start)
    return max(0.0, shared) / (max(moment.end, caption.end) - min(moment.start, caption.start))


if __name__ == "__main__":
    typer.run(main)
