"""A process that extracts one video after another; started by `holmes.media.pool`, not by hand."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from holmes.media.backbones import VisualBackbone, load_visual
from holmes.media.feature_folder import FeatureFolder, VideoFeatures
from holmes.media.one_video import extract_video, outcome_of
from holmes.media.pool import Sign
from holmes.media.shared_encoder import RemoteEncoder


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints must not pass for an answer
    setup = json.loads(sys.argv[1])
    folder = FeatureFolder.open(setup["folder"])

    def answer(words: dict[str, Any]) -> None:
        print(json.dumps(words), file=answers, flush=True)

    def tell(sign: Sign) -> None:
        answer({"seconds": sign.seconds, "share": sign.share} if sign.seconds else {})

    def extract_it(source: Path) -> VideoFeatures:
        return extract_video(source, folder, backbone, setup["threads"], tell, setup["fast"])

    def ask(request: dict[str, Any]) -> str:
        answer(request)
        return str(json.loads(sys.stdin.readline())["failure"])

    backbone: VisualBackbone
    if "memory" in setup:
        backbone = RemoteEncoder(setup["encoder"], setup["memory"], ask)
    else:
        backbone = load_visual(setup["backbone"], threads=setup["threads"], device=setup["device"])
    for line in iter(sys.stdin.readline, ""):
        outcome = asdict(outcome_of(Path(json.loads(line)), extract_it))
        answer({name: value for name, value in outcome.items() if name != "source"})


if __name__ == "__main__":
    main()
