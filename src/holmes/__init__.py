"""Holmes finds the video that contains a moment, from one sentence, and says how sure it is."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"
__all__ = ["open_index"]

# The public verbs live where their work is done and are loaded when first used: `import holmes` is instant.
_VERBS = {"open_index": "holmes.index.searcher"}


def __getattr__(name: str) -> Any:
    if name not in _VERBS:
        raise AttributeError(f"module 'holmes' has no attribute '{name}'")
    return getattr(import_module(_VERBS[name]), name)
