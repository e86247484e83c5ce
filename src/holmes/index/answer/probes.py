"""What an index is searched with: the probes of sentences, or of a vector such as a picture's."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from holmes.index.embedders.protocol import Embedder
from holmes.index.engine.scan import Probes, make_probes
from holmes.records import QueryEmbedding


def sentence_probes(embedder: Embedder, sentences: Sequence[str]) -> Probes:
    return make_probes(embedder.queries(sentences), embedder.frame_weight, embedder.clip_weight)


def vector_probes(embedder: Embedder, vector_D: NDArray[np.floating]) -> Probes:
    query_1D = torch.from_numpy(np.asarray(vector_D, np.float32)).unsqueeze(0)
    return make_probes(QueryEmbedding(query_1D), embedder.frame_weight, embedder.clip_weight)
