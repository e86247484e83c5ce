"""Everything the figures of a report need, from trained models and a split, as plain numbers."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from holmes.data.bank import FeatureBank
from holmes.data.store import Split
from holmes.encoders.checkpoint import Checkpoint
from holmes.plots.report_data import FigureData
from holmes.report.kind_figures import KindRules, kind_examples, sample_batch
from holmes.report.moment_figures import (
    find_query,
    find_video,
    look,
    timelines,
    transport,
    typical_video,
)


@torch.inference_mode()
def figure_data(
    checkpoints: Sequence[Checkpoint],
    bank: FeatureBank,
    split: Split,
    rules: KindRules,
    video: str | None = None,
    query: str | None = None,
) -> FigureData:
    """What the first model makes of a split; a second one is drawn beside it along the timelines.

    `video` and `query` choose what the transport and the timelines show; otherwise typical ones are taken.
    """
    store, config = bank.store, checkpoints[0].config
    row = None if query is None else find_query(store, split, query)
    place = None if video is None else find_video(store, split, video)
    seen, *others = (look(one.model, bank, split, one.config.score) for one in checkpoints)
    batch = sample_batch(seen, rules, config.training.batch_videos)
    if place is None:
        place = typical_video(seen, store, split, config.alignment, batch.videos_V.tolist())
    return FigureData(
        planes=(batch.frame, batch.clip),
        batch_videos=len(batch.videos_V),
        examples=kind_examples(seen, batch, store, split),
        transport=transport(seen, store, split, config.alignment, place),
        timelines=timelines([seen, *others], store, split, row),
    )
