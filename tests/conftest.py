"""Settings that every test shares."""

from __future__ import annotations

import os

# The tensors of the tests are tiny: more threads would only wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
from hypothesis import settings

from browser import chromium
from holmes.media.backbones.torchvision_import import make_torchvision_importable

make_torchvision_importable()  # tests use transformers, timm and open_clip directly too

settings.register_profile("holmes", max_examples=30, deadline=None, derandomize=True)
settings.load_profile("holmes")

# The files whose tests take longest, the slowest first. `make check` skips them (marker `slow`). `make test`
# begins with them, so that no process waits at the end for the last file of another.
SLOW = (
    "test_killed_commands",
    "test_killed",
    "test_cluster_ray",
    "test_files_that_lie",
    "test_docs_commands",
    "test_index_kill",
    "test_serve_page",
    "test_lesser_files_that_lie",
    "test_cluster_shards",
    "test_training_mode",
    "test_side_by_side",
    "test_killed_shards",
    "test_demo",
    "test_training_run",
    "test_reproduce",
    "test_training_resume",
    "test_public_interface",
    "test_store_attacks",
    "test_training_distributed",
    "test_paths_from_files",
    "test_index_scan",
    "test_mended",
    "test_plots_report",
    "test_plots_page",
    "test_compare",
    "test_index_kernel",
    "test_cli_training",
    "test_site",
    "test_wheel",
    "test_notebook",
    "test_serve_manage",
    "test_any_encoder",
    "test_data_pack",
    "test_media_reader",
    "test_index_parts",
    "test_index_store",
    "test_released",
    "test_serve_streams",
    "test_media_backbones",
    "test_encoder_libraries",
    "test_baselines",
    "test_parity",
    "test_plots_figures",
    "test_every_index",
    "test_index_cli",
    "test_tuning",
    "test_serve_cli",
    "test_docstring_examples",
    "test_benchmarks",
    "test_api",
    "test_extend",
)


@pytest.hookimpl(tryfirst=True)  # before -m chooses by marker
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: SLOW.index(item.path.stem) if item.path.stem in SLOW else len(SLOW))
    for item in items:
        if item.path.stem in SLOW:
            item.add_marker(pytest.mark.slow)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name what was not tested, instead of only counting it."""
    if chromium() is None:
        terminalreporter.section("the page was not tested", yellow=True)
        terminalreporter.write_line(
            "There is no chromium here: 'apt-get install chromium', or HOLMES_CHROMIUM=PATH."
        )
