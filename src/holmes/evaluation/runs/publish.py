"""Publish a trained model: checkpoint, figures with intervals and a card, to a hub or a folder."""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from holmes.base.files import write_json
from holmes.encoders.checkpoint import ENCODERS, FORMAT, MANIFEST, CheckpointManifest, read_manifest
from holmes.encoders.hub import CARD, METRICS, PREFIX, check_model, endpoint, folder_of
from holmes.encoders.released import checkpoint_in
from holmes.errors import HolmesError, first_sentence, missing_packages
from holmes.evaluation.intervals import over_seeds, read_ranks
from holmes.evidence.calibration import EXTRA as CALIBRATION
from holmes.results import METRICS as SHOWN
from holmes.results import TrainingResult, summary_of
from holmes.training.resume import RANKS, RESULT, read_result

SIDES = (("frames", "visual"), ("sentences", "text"))


def push(
    run: Path | str, name: Path | str, *, private: bool = True, licence: str | None = None, about: str = ""
) -> str:
    """Publish the best model of a run under a name; returns where it is.

    Args:
        run: A finished run of `holmes train`, or a checkpoint.
        name: OWNER/NAME on the hub, or a folder such as ./NAME.
        private: Whether only you see it on the hub.
        licence: The licence that the card names, such as "apache-2.0".
        about: A paragraph for the card: what the videos are, what the model is for.

    Example:
        >>> holmes.push("RUN", "./shared/model", about="Trained on the demo's videos.")
        './shared/model'
    """
    folder = folder_of(name)
    with tempfile.TemporaryDirectory() as staged:
        model = Path(staged) / "model"
        model.mkdir()
        called = str(name).removeprefix(PREFIX)
        if isinstance(name, Path) or called.startswith((".", "/", "~")):
            called = Path(called).name
        assemble(Path(run), model, called, licence, about)
        if folder is None:
            return _upload(model, str(name).removeprefix(PREFIX), private)
        folder.mkdir(parents=True, exist_ok=True)
        for file in sorted(model.iterdir(), key=lambda each: each.name == MANIFEST):  # the manifest last
            shutil.copyfile(file, folder / f".{file.name}.part")
            os.replace(folder / f".{file.name}.part", folder / file.name)
    return str(name)


def assemble(run: Path, model: Path, name: str, licence: str | None, about: str) -> None:
    """Write the files of a model into an empty folder."""
    found = checkpoint_in(run)
    if found is None or not found.is_dir():
        raise HolmesError(f"{run} holds no checkpoint of 'holmes train'; name a run, or its folder 'best'.")
    manifest = read_manifest(found)
    shutil.copyfile(found / manifest.weights, model / manifest.weights)
    kept = replace(manifest, extras=without_paths(manifest.extras))
    FORMAT.write(model / MANIFEST, asdict(kept))
    metrics = figures_of(run)
    write_json(model / METRICS, metrics)
    (model / CARD).write_text(card(name, kept, metrics, licence, about))
    check_model(model)


def without_paths(extras: dict[str, Any]) -> dict[str, Any]:
    """Extras that name no folder of this machine: of an encoder's path the last part is kept."""
    encoders = extras.get(ENCODERS)
    if not isinstance(encoders, dict):
        return extras
    kept = {
        side: {**each, "name": _plain(str(each["name"]))}
        if isinstance(each, dict) and "name" in each
        else each
        for side, each in encoders.items()
    }
    return extras | {ENCODERS: kept}


def _plain(name: str) -> str:
    library, colon, rest = name.partition(":")
    if colon and os.path.isabs(rest):
        return f"{library}:{Path(rest).name}"
    model, at, file = name.partition("@")
    if at:
        return f"{model}@{Path(file).name}"
    return Path(name).name if os.path.isabs(name) else name


def figures_of(run: Path) -> dict[str, Any]:
    """The figures of a finished run with intervals over videos; empty for a lone checkpoint."""
    if not (run / RESULT).exists():
        return {}
    result: TrainingResult = read_result(run / RESULT)
    ranks = read_ranks(run / RANKS)
    known = () if ranks is None else (ranks[0][None], ranks[1])
    summary = summary_of(over_seeds([result.metrics], *known))
    return {
        "format": "holmes-metrics",
        "version": 1,
        "split": result.split,
        "protocol": result.protocol,
        "seed": result.seed,
        "epoch": result.epoch,
        "queries": None if ranks is None else len(ranks[0]),
        "metrics": summary,
    }


CARD_TEXT = """---
library_name: holmes
tags: [video-retrieval, partially-relevant-video-retrieval]{licence}
---

# {name}

A Holmes model: it finds the video that contains a moment from one sentence. {sure}
{about}
## Use

```bash
holmes index build INDEX VIDEOS --model hub:{name}
holmes evaluate hub:{name} STORE
```

It reads features of these encoders, and refuses others:

| | encoder | width | digest |
| --- | --- | --- | --- |
{encoders}

{figures}## Made with

Preset `{preset}`, encoder `{encoder}`, width {width}, at most {epochs} epochs. All settings are in
`checkpoint.json`. The weights are safetensors; nothing in this folder is code.
"""
FIGURES_TEXT = """## Figures

{split} split, {queries} queries; the best epoch was selected by the protocol '{protocol}'. Intervals are 95%,
over videos.

| | percent | interval |
| --- | --- | --- |
{rows}

"""


def card(
    name: str, manifest: CheckpointManifest, metrics: dict[str, Any], licence: str | None, about: str
) -> str:
    """The model card: what it is, how to use it, what it was measured on, what it was made with."""
    config, encoders = manifest.config, manifest.extras.get(ENCODERS) or {}
    sure = "It says how sure it is." if CALIBRATION in manifest.extras else "It gives no probabilities."
    figures = ""
    if metrics:
        found = metrics["metrics"]
        rows = "\n".join(f"| {each} | {_figure(found[each])} |" for each in SHOWN if each in found)
        figures = FIGURES_TEXT.format(**metrics, rows=rows)
    return CARD_TEXT.format(
        name=name,
        licence=f"\nlicense: {licence}" if licence else "",
        sure=sure,
        about=f"\n{about}\n" if about else "",
        encoders="\n".join(_encoder(side, encoders.get(key)) for side, key in SIDES),
        figures=figures,
        preset=config.name,
        encoder=config.model.encoder,
        width=config.model.width,
        epochs=config.training.epochs,
    )


def _encoder(side: str, known: Any) -> str:
    about = known if isinstance(known, dict) else {}
    name, digest = about.get("name", "unknown"), str(about.get("digest", ""))[:12]
    return f"| {side} | `{name}` | {about.get('width', '')} | `{digest}` |"


def _figure(value: Any) -> str:
    if not isinstance(value, dict):
        return f"{float(value):.1f} | "
    mean = value["mean"] if "mean" in value else value["value"]
    low, high = value.get("low"), value.get("high")
    return f"{float(mean):.1f} | " + ("" if low is None or high is None else f"{low:.1f}–{high:.1f}")


def _upload(model: Path, name: str, private: bool) -> str:
    try:
        from huggingface_hub import HfApi
    except ImportError:
        raise missing_packages(f"'{PREFIX}{name}'", "transformers") from None
    try:
        hub = HfApi(endpoint=endpoint())
        hub.create_repo(name, private=private, exist_ok=True)
        hub.upload_folder(repo_id=name, folder_path=str(model), commit_message="Publish a Holmes model")
    except Exception as error:
        raise HolmesError(
            f"'{name}' cannot be pushed ({first_sentence(error)}). Log in with 'hf auth login', or push into "
            "a folder such as ./NAME."
        ) from None
    return f"{PREFIX}{name}"
