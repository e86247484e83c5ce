"""Export the embeddings of an index as one Parquet table.

video, part, kind (frame or clip), start, end (seconds), vector (the width of the index, length 1)
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from holmes.base.files import atomic_file
from holmes.base.progress import progress_bar
from holmes.errors import missing_packages
from holmes.index.storage.segments import StoredVideo
from holmes.index.storage.store import IndexStore

ROWS_AT_ONCE = 50_000  # rows of a row group
KINDS = ("frame", "clip")


def export_parquet(index: Path | str, out: Path | str, *, progress: bool = False) -> int:
    """Write one row for each vector of an index; returns how many. The file appears when it is complete."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise missing_packages("an export as Parquet", "pyarrow") from None
    store = IndexStore.open(index)
    width, clips = store.manifest.width, store.manifest.clips
    fields = [("video", pyarrow.string()), ("part", pyarrow.int32()), ("kind", pyarrow.string())]
    fields += [("start", pyarrow.float32()), ("end", pyarrow.float32())]
    schema = pyarrow.schema([*fields, ("vector", pyarrow.list_(pyarrow.float32(), width))])
    about = {"holmes.model": str(store.manifest.model.get("name")), "holmes.width": str(width)}
    schema = schema.with_metadata(about)
    total, waiting = 0, list[Any]()

    def write(writer: Any) -> None:
        if waiting:
            writer.write_table(pyarrow.Table.from_batches(waiting, schema))
            waiting.clear()

    with (
        progress_bar("exporting videos", len(store), progress=progress) as advance,
        atomic_file(Path(out)) as file,
        parquet.ParquetWriter(file, schema, compression="zstd") as writer,
    ):
        held = 0
        for name in store.positions:
            columns = _columns(pyarrow, store[name], clips, width)
            batch = pyarrow.RecordBatch.from_arrays(columns, schema=schema)
            waiting.append(batch)
            total, held = total + batch.num_rows, held + batch.num_rows
            if held >= ROWS_AT_ONCE:
                write(writer)
                held = 0
            advance(1)
        write(writer)
    return total


def _columns(pyarrow: Any, video: StoredVideo, clips: int, width: int) -> list[Any]:
    """The columns of one video: of each part its frames without padding, then its clips."""
    parts, rows = video.rows_SPD.shape[:2]
    frame_P = np.arange(rows) < video.frames
    kept_P = frame_P | (np.arange(rows) >= rows - clips)
    vectors = np.asarray(video.rows_SPD[:, kept_P], np.float32).reshape(-1)
    count = len(vectors) // width
    kind_P = np.where(frame_P, *KINDS)[kept_P]
    spans = np.asarray(video.spans_SP2[:, kept_P], np.float32).reshape(-1, 2)
    name = video.name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return [
        pyarrow.array([name] * count, pyarrow.string()),
        pyarrow.array(np.repeat(np.arange(parts, dtype=np.int32), kept_P.sum())),
        pyarrow.array(np.tile(kind_P, parts).tolist(), pyarrow.string()),
        pyarrow.array(np.ascontiguousarray(spans[:, 0])),
        pyarrow.array(np.ascontiguousarray(spans[:, 1])),
        pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(vectors), width),
    ]
