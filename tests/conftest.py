"""Settings that every test shares."""

from __future__ import annotations

import os

# The tensors of the tests are tiny: more threads would only wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

from hypothesis import settings

settings.register_profile("holmes", max_examples=30, deadline=None, derandomize=True)
settings.load_profile("holmes")
