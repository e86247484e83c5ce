"""Large blocks are taken again, not mapped anew."""

from __future__ import annotations

import resource

import pytest
import torch

from holmes.base.memory import keep_freed_memory

PAGES = (64 << 20) // resource.getpagesize()


def page_faults_of_a_large_block() -> int:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.empty(16 << 20).fill_(1.0)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def test_freed_blocks_are_reused() -> None:
    if not keep_freed_memory():
        pytest.skip("not glibc")
    page_faults_of_a_large_block()
    assert sum(page_faults_of_a_large_block() for _ in range(4)) < PAGES / 10
