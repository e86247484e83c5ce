"""`holmes try`: a joint model on your own captions, as it is, calibrated, and trained."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holmes.cli.options import (
    Device,
    Form,
    Rate,
    Settings,
    TestShare,
    VideoFiles,
    check_form,
    configured,
    counted,
    say,
    say_files,
    show,
)
from holmes.errors import HolmesError


def try_model(
    videos: VideoFiles,
    captions: Annotated[
        Path,
        typer.Option(help="A CSV with a header, or JSONL: video, sentence; where known split, start, end."),
    ],
    out: Annotated[
        Path, typer.Option(metavar="FOLDER", help="A folder for everything: a new one, or one to continue.")
    ],
    model: Annotated[str, typer.Option(help="A joint encoder ('holmes models' lists some).")] = "pocket",
    preset: Annotated[
        str, typer.Option(help="Settings to train with: clip_b32, clip_l14, siglip2, small.")
    ] = "small",
    settings: Settings = None,
    test_share: TestShare = 0.2,
    rate: Rate = None,
    device: Device = "auto",
    form: Form = None,
) -> None:
    """Find out whether training pays off: compare a joint model as it is, calibrated, and trained.

    The captions of some videos are kept for testing. The others calibrate the model and train on top of it.
    All three models search all videos with the test captions. Run it again to continue.
    """
    from holmes.cli.index_lines import comparison_grid
    from holmes.data.store import Store
    from holmes.evidence.judging import UncalibratedJudge
    from holmes.index.answer.comparison import rank_videos
    from holmes.index.answer.searcher import open_single_index
    from holmes.index.embedders.loading import load_embedder
    from holmes.index.embedders.zero_shot import ZeroShot
    from holmes.index.ingest.builder import build_index
    from holmes.media.extraction import extract
    from holmes.media.own_captions import caption_videos
    from holmes.training.run import RunOptions, train

    check_form(form)
    config = configured(preset, settings)
    if not captions.is_file():
        raise HolmesError(f"{captions} does not exist, or is not a file; name a file of captions.")
    joint = load_embedder(model, device=device)
    if not isinstance(joint, ZeroShot):
        raise HolmesError(f"'{model}' is not a joint encoder; name one of 'holmes models'.")
    out.mkdir(parents=True, exist_ok=True)
    made = extract(videos, out / "features", joint.extractor, rate=rate, device=device, progress=True)
    say_files(made.partial, made.failures)
    store_path = out / "store"
    if not (store_path / "store.json").exists():
        text = joint.backbone
        caption_videos(captions, made.folder, store_path, text, test_share=test_share, progress=True)
    store = Store.open(store_path)
    source = {id: str(origin.source) for id in made.folder.ids() if (origin := made.folder.origin(id))}
    splits = {
        name: [
            (store.captions[query], source.get(store.video_ids[video], store.video_ids[video]))
            for query, video in zip(split.queries, split.videos[split.owner], strict=True)
        ]
        for name in ("train", "test")
        if (split := store.split(name))
    }
    say(f"{counted(len(splits['train']), 'caption')} to learn from, {len(splits['test'])} to test")
    train(store, config, out / "run", options=RunOptions(device=device))
    build_index(out / "index", [made.folder.path], joint, progress=True)
    trained = load_embedder(str(out / "run"), joint.backbone, joint.backbone, device)
    build_index(out / "trained", [made.folder.path], trained, progress=True)

    ranks = {}
    with open_single_index(out / "index", device="cpu", model=joint, diagnose=UncalibratedJudge()) as index:
        ranks["as it is"] = rank_videos(index, splits["test"])
    with open_single_index(out / "index", device="cpu", model=joint) as index:
        try:
            index.calibrate(splits["train"])
            ranks["calibrated"] = rank_videos(index, splits["test"])
        except HolmesError as error:
            say(f"it cannot be calibrated: {error}")
    with open_single_index(out / "trained", device="cpu", model=trained) as index:
        ranks["trained"] = rank_videos(index, splits["test"])
    title = f"{model} on {counted(len(splits['test']), 'caption')} of {captions.name}"
    show(comparison_grid(title, ranks, splits["test"]), form=form)
    say(f'search with the trained model: holmes search {out / "trained"} "…"')
