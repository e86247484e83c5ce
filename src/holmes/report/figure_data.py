"""Everything the figures of a report need, from a split as trained models see it, as plain numbers."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from holmes.config.schema import HolmesConfig
from holmes.data.store import Split, Store
from holmes.report.figures.data import FigureData
from holmes.report.kinds import PartitionRules, kind_examples, sample_batch
from holmes.report.moments import Seen, timelines, transport, typical_video


@torch.inference_mode()
def figure_data(
    models: Sequence[Seen],
    store: Store,
    split: Split,
    config: HolmesConfig,
    rules: PartitionRules,
    video: int | None = None,
    query: int | None = None,
) -> FigureData:
    """What the first model makes of a split; a second one is drawn beside it along the timelines.

    `video` and `query`, positions in the split, choose what the transport and the timelines show; otherwise
    typical ones are taken.
    """
    seen = models[0]
    batch = sample_batch(seen, rules, config.training.batch_videos)
    if video is None:
        video = typical_video(seen, store, split, config.alignment, batch.videos_V.tolist())
    return FigureData(
        planes=(batch.frame, batch.clip),
        batch_videos=len(batch.videos_V),
        examples=kind_examples(seen, batch, store, split),
        transport=transport(seen, store, split, config.alignment, video),
        timelines=timelines([*models], store, split, query),
    )
