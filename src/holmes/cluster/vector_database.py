"""An index in a vector database that scores by MaxSim: our score in one query, by two marker dimensions.

A frame row v becomes [v, 1, 0] and a clip row [v, 0, 1]; a probe q with weights α_f and α_c becomes
[α_f q, 1, 0] and [α_c q, 0, 1]. The marker lets each find its own kind: with it a row scores at least 1 - α,
without it at most α. So Σ over these vectors of the best product is our score, plus one for each of them.

Such an engine does not report the mean and deviation of all scores, so there is no probability.

P rows of a part, D width, N vectors
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holmes.errors import HolmesError
from holmes.index.index_store import IndexStore
from holmes.index.scan import Probes
from holmes.index.stored_video import StoredVideo
from holmes.progress import progress_bar

AT_ONCE = 32  # parts sent together: 5 MB


def row_vectors(video: StoredVideo, part: int, clips: int) -> NDArray[np.float32]:
    """The rows of one part of a video with their markers; repeated frames are left out."""
    rows_PD = np.asarray(video.rows_SPD[part], np.float32)
    frames_FD, clips_CD = rows_PD[: video.frames], rows_PD[-clips:]
    return np.concatenate([_marked(frames_FD, (1, 0)), _marked(clips_CD, (0, 1))])


def query_vectors(probes: Probes, q: int) -> NDArray[np.float32]:
    """What to ask the engine for one query; its score is the result less the number of these vectors."""
    rows_TD = probes.rows_QTD[q].numpy()
    kinds = ((probes.frame_weight_QT[q], (1, 0)), (probes.clip_weight_QT[q], (0, 1)))
    vectors = []
    for weight_T, marker in kinds:
        used_T = weight_T.numpy() > 0
        vectors.append(_marked(weight_T.numpy()[used_T, None] * rows_TD[used_T], marker))
    return np.concatenate(vectors).astype(np.float32)


def _marked(rows_ND: NDArray[Any], marker: tuple[int, int]) -> NDArray[np.float32]:
    marker_N2 = np.tile(np.array(marker, np.float32), (len(rows_ND), 1))
    return np.concatenate([rows_ND, marker_N2], axis=1, dtype=np.float32)


def export_to_qdrant(store: IndexStore, client: Any, collection: str, *, progress: bool = False) -> int:
    """Put all parts of all videos into a new collection as points; return how many there are."""
    from qdrant_client import models

    if client.collection_exists(collection):
        raise HolmesError(f"there is a collection '{collection}' already; choose another name.")
    size = store.manifest.width + 2
    client.create_collection(
        collection,
        vectors_config=models.VectorParams(
            size=size,
            distance=models.Distance.DOT,
            multivector_config=models.MultiVectorConfig(comparator=models.MultiVectorComparator.MAX_SIM),
        ),
    )
    sent, waiting = 0, list[Any]()
    with progress_bar("exporting", len(store), progress=progress) as advance:
        for name in store.places:
            waiting += [models.PointStruct(**point) for point in points_of(store[name], store.manifest.clips)]
            if len(waiting) >= AT_ONCE:
                client.upsert(collection, waiting)
                sent, waiting = sent + len(waiting), []
            advance(1)
        if waiting:
            client.upsert(collection, waiting)
    return sent + len(waiting)


def points_of(video: StoredVideo, clips: int) -> Iterator[dict[str, Any]]:
    for part in range(len(video.rows_SPD)):
        spans_P2 = video.spans_SP2[part]
        yield {
            "id": str(uuid.uuid5(uuid.NAMESPACE_URL, f"{video.name}\0{part}")),
            "vector": row_vectors(video, part, clips).tolist(),
            "payload": {
                "video": video.name,
                "part": part,
                "start": float(spans_P2[:, 0].min()),
                "end": float(spans_P2[:, 1].max()),
            },
        }


def open_qdrant(where: str) -> Any:
    """A client of a server (http://…), or of a folder in the client's own local mode."""
    try:
        from qdrant_client import QdrantClient
    except ImportError:
        raise HolmesError("qdrant-client is not installed: pip install 'holmes[qdrant]'.") from None
    return QdrantClient(url=where) if "://" in where else QdrantClient(path=where)
