"""A process that adds videos for a server: it reads its task as a line of JSON and reports in lines of JSON.

A process of its own keeps the server quick, and stops when the server does.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from holmes.base.progress import reported_to
from holmes.errors import HolmesError
from holmes.index.embedders.loading import recorded_embedder
from holmes.index.ingest.builder import add_videos
from holmes.index.storage.manifest import read_manifest


def main() -> None:
    order = json.loads(sys.stdin.readline())
    index = Path(order["index"])
    try:
        with reported_to(lambda what, done, total: tell(what=what, done=done, total=total)):
            embedder = recorded_embedder(read_manifest(index).model, order.get("model"))
            summary = add_videos(index, order["paths"], embedder, progress=True)
    except (HolmesError, OSError) as error:
        tell(failed=str(error))
        sys.exit(2)
    failures = [{"name": str(each.source), "reason": each.reason} for each in summary.failures]
    tell(added=summary.added, unchanged=summary.unchanged, failures=failures)


def tell(**news: Any) -> None:
    print(json.dumps(news), flush=True)


if __name__ == "__main__":
    main()
