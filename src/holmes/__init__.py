"""Holmes finds the video that contains a moment, from one sentence, and says how sure it is."""

from __future__ import annotations

from importlib import import_module
from operator import attrgetter
from typing import Any

__version__ = "0.1.0"
__all__ = ["connect", "open_index", "open_store", "preset", "queries", "train"]

# The public verbs live where their work is done and are loaded when first used: `import holmes` is instant.
_VERBS = {
    "connect": ("holmes.serve.client", "connect"),
    "open_index": ("holmes.cluster.opening", "open_index"),
    "open_store": ("holmes.data.store", "Store.open"),
    "preset": ("holmes.config.presets", "preset"),
    "queries": ("holmes.runs.evaluated", "queries"),
    "train": ("holmes.training.run", "train"),
}


def __getattr__(name: str) -> Any:
    if name not in _VERBS:
        raise AttributeError(f"module 'holmes' has no attribute '{name}'")
    module, path = _VERBS[name]
    return attrgetter(path)(import_module(module))
