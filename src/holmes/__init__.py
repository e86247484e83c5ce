"""Holmes finds the video that contains a moment, from one sentence, and says how sure it is."""

from __future__ import annotations

from importlib import import_module
from operator import attrgetter

from holmes.errors import HolmesError

__version__ = "0.1.0"

# Each public name lives where its work is done and is loaded when first used, so `import holmes` is instant.
# Type checkers and editors read `__init__.pyi` instead.
_DOORS = {
    "Answer": "holmes.index.answer.answers",
    "BuildSummary": "holmes.index.ingest.builder",
    "Checkpoint": "holmes.encoders.checkpoint",
    "Epoch": "holmes.results",
    "Evaluation": "holmes.results",
    "Hit": "holmes.index.answer.answers",
    "HolmesConfig": "holmes.config.schema",
    "Index": "holmes.index.answer.searcher",
    "IndexDescription": "holmes.index.storage.store",
    "Moment": "holmes.moments",
    "Protocol": "holmes.training.protocol",
    "QueryTable": "holmes.evaluation.per_query",
    "RemoteIndex": "holmes.serve.client",
    "RunOptions": "holmes.training.run",
    "RunReport": "holmes.results",
    "ShardedIndex": "holmes.cluster.index",
    "Store": "holmes.data.store",
    "TrainingResult": "holmes.results",
    "build_index": "holmes.api",
    "connect": "holmes.serve.client",
    "evaluate": "holmes.api",
    "load_checkpoint": "holmes.api",
    "open_index": "holmes.cluster.index",
    "open_store": "holmes.data.store:Store.open",
    "preset": "holmes.config.presets",
    "queries": "holmes.evaluation.runs.evaluate",
    "train": "holmes.api",
}
__all__ = ["HolmesError", *_DOORS]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> object:
    if name not in _DOORS:
        raise AttributeError(f"module 'holmes' has no attribute '{name}'")
    module, _, path = _DOORS[name].partition(":")
    return attrgetter(path or name)(import_module(module))
