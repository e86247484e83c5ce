"""How the C library gives memory back."""

from __future__ import annotations

import ctypes

TRIM_THRESHOLD, MMAP_MAX = -1, -4  # of glibc's mallopt


def keep_freed_memory() -> bool:
    """Let this process reuse large blocks in place of returning each to the system; False where it cannot.

    A training step on a CPU frees and takes the same blocks again and again. glibc maps every large one anew,
    and the system clears it page by page: half of the time of a step with the published model.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and bool(mallopt(MMAP_MAX, 0)) and bool(mallopt(TRIM_THRESHOLD, -1))
