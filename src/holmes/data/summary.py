"""The contents of a store as printed tables."""

from __future__ import annotations

from typing import Any

import numpy as np
from rich.table import Table
from rich.text import Text

from holmes.base.printing import printable
from holmes.data.store import Store
from holmes.records import QueryKind


def summary_tables(store: Store) -> list[Table]:
    return [overview(store), splits_table(store)]


def overview(store: Store) -> Table:
    info = store.info
    title = Text(printable(str(store.path)), style="table.title")
    table = Table(title=title, show_header=False, title_justify="left")
    rows = {
        "collection": info.collection,
        "visual features": f"{info.visual}, {info.video_width} wide, {info.frame_rows:,} frames",
        "text features": f"{info.text}, {info.text_width} wide, {info.token_rows:,} tokens",
        "encoders": encoders_of(store),
        "size": f"{info.bytes / 2**20:,.1f} MiB",
        "digest": info.digest[:16],
        "made from": spoken({key: value for key, value in info.provenance.items() if key != "files"}),
    }
    for name, value in rows.items():
        table.add_row(name, Text(printable(value)))
    return table


def encoders_of(store: Store) -> str:
    """What made the features, as a line."""
    origin = store.info.encoders
    known = [f"{it.name} ({it.digest[:12]})" for it in (origin.visual, origin.text) if it is not None]
    if origin.rate is not None:
        known.append(f"{origin.rate:g} samples per second")
    return ", ".join(known) or "not known"


def spoken(value: dict[str, Any]) -> str:
    """A dictionary in a line, without its brackets."""
    return ", ".join(
        f"{key.replace('_', ' ')}: {spoken(item)}"
        if isinstance(item, dict)
        else f"{key.replace('_', ' ')} {item}"
        for key, item in value.items()
    )


def splits_table(store: Store) -> Table:
    table = Table("")
    for name in store.splits:
        table.add_column(Text(printable(name)))
    columns = [split_figures(store, name) for name in store.splits]
    for figure in columns[0]:
        table.add_row(figure, *(column[figure] for column in columns))
    return table


def split_figures(store: Store, name: str) -> dict[str, str]:
    split = store.split(name)
    lengths = (store.moments_Q2[:, 1] - store.moments_Q2[:, 0])[split.queries]
    known, kinds = ~np.isnan(lengths), store.kinds_Q[split.queries]
    fits = np.mean([int(query) in store.also_fits for query in split.queries])
    figures = {
        "videos": f"{len(split.videos):,}",
        "queries": f"{len(split.queries):,}",
        "queries per video": f"{split.queries_of_video.mean():.1f}, at most {split.queries_of_video.max()}",
        "frames per video": f"{np.diff(store.frame_offsets)[split.videos].mean():.1f}",
        "tokens per query": f"{np.diff(store.token_offsets)[split.queries].mean():.1f}",
        "moments known": f"{known.mean():.0%}",
        "moment / video": f"{lengths[known].mean():.2f} on average" if known.any() else "-",
        "other videos fit": f"{fits:.0%} of queries",
    }
    for kind in QueryKind:
        figures[kind.name.lower()] = f"{np.mean(kinds == kind):.0%} of queries" if (kinds >= 0).any() else "-"
    return figures
