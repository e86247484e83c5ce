"""Holmes finds the video that contains a moment, from one sentence, with a probability."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path

__version__ = "0.1.0"


def _public_names() -> dict[str, str]:
    """Every public name and its module, as the stub beside this file imports it."""
    stub = ast.parse(Path(__file__).with_suffix(".pyi").read_text())
    found = (node for node in stub.body if isinstance(node, ast.ImportFrom))
    return {alias.name: str(node.module) for node in found for alias in node.names}


# A name is loaded when it is first used, so `import holmes` is instant. `lazy_loader.attach_stub` does the
# same. It is not used, because Holmes must also import where torch is installed and little else.
_MODULES = _public_names()
__all__ = sorted(_MODULES)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module 'holmes' has no attribute '{name}'")
    return getattr(import_module(_MODULES[name]), name)
