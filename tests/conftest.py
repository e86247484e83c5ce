"""Settings that every test shares."""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path

# The tensors of the tests are tiny: more threads would only wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HOLMES_HEAR", "off")  # only the tests of words recognise any: it takes seconds a film
# Read by the C library of the processes that run the tests, and of their children. A process of 2 GB in large
# pages forks in a seventh of the time, and freed memory that a process keeps need not be cleared again.
os.environ.setdefault("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1")
os.environ.setdefault("MALLOC_MMAP_THRESHOLD_", str(32 << 20))
os.environ.setdefault("MALLOC_TRIM_THRESHOLD_", str(256 << 20))

import pytest
import typer.main
from hypothesis import settings

from browser import chromium
from holmes.media.backbones.pretrained import make_torchvision_importable

# Tests make and delete thousands of small files, which a disk can take as long for as the tests themselves.
MEMORY, ENOUGH = Path("/dev/shm"), 4 << 30
if "TMPDIR" not in os.environ and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ENOUGH:
    os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)

# No test survives a loss of power: waiting for the disk thousands of times would prove nothing.
os.fsync = lambda descriptor: None  # type: ignore[assignment]

# Tests run hundreds of commands in one process, and typer would describe all of them to itself for each.
typer.main.get_command = cache(typer.main.get_command)

settings.register_profile("holmes", max_examples=30, deadline=None, derandomize=True)
settings.load_profile("holmes")

# Files that fork the tests' process again and again. They come first, because a process that has grown forks
# more slowly, even in large pages.
FORKING = (
    "test_files_that_lie",
    "test_index_kill",
    "test_killed",
    "test_killed_commands",
    "test_killed_shards",
    "test_docs_commands",
    "test_lesser_files_that_lie",
    "test_docstring_examples",
    "test_reproduce",
    "test_demo",
    "test_words_in_an_index",
    "test_side_by_side",
    "test_tuning",
)
# The files whose tests take longest, the slowest first. `make check` skips them (marker `slow`). `make test`
# begins with them, so that no process waits at the end for the last file of another.
SLOW = (
    "test_cluster_ray",
    *FORKING,
    "test_serve_page",
    "test_benchmarks",
    "test_kernels",
    "test_serve_schema",
    "test_serve_uploads_page",
    "test_benchmark_flags",
    "test_serve_manage",
    "test_soak",
    "test_every_index",
    "test_cluster_shards",
    "test_serve_uploads",
    "test_paths_from_files",
    "test_training_mode",
    "test_plots_report",
    "test_serve_streams",
    "test_baselines",
    "test_serve_libraries",
    "test_training_run",
    "test_no_contradiction",
    "test_encoder_libraries",
    "test_training_distributed",
    "test_cut_page",
    "test_parity",
    "test_training_resume",
    "test_serve_cli",
    "test_processes",
    "test_compare",
    "test_wheel",
    "test_cluster_mistakes",
    "test_plots_page",
    "test_saved_searches",
    "test_media_pool",
    "test_score_files",
    "test_any_encoder",
    "test_words_served",
    "test_serve_proxy",
    "test_index_kernel",
    "test_cli_training",
    "test_startup",
    "test_index_scan",
    "test_distribution",
    "test_listening",
    "test_extend",
    "test_serve_compose",
    "test_site",
    "test_media_reader",
    "test_alone_or_among_others",
    "test_released",
    "test_alignment",
    "test_agents",
    "test_data_pack",
    "test_mended",
    "test_index_cli",
    "test_notebook",
    "test_bad_input",
    "test_media_backbones",
    "test_plots_figures",
    "test_index_parts",
    "test_index_videos",
    "test_store_attacks",
    "test_sinkhorn",
    "test_index_models",
    "test_serve_connections",
    "test_hub",
    "test_editing_cut",
    "test_api",
    "test_index_store",
    "test_public_interface",
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection() -> None:
    """Imports make a million objects that stay: a quarter of the time goes into looking for garbage there."""
    gc.disable()


def pytest_pycollect_makemodule() -> None:
    """Tests use transformers, timm and open_clip directly too. Not at import: this loads torch, which the
    process that hands out the files to others does not need."""
    make_torchvision_importable()


def pytest_collection_finish() -> None:
    """Nor are they looked through again and again while the tests run."""
    gc.freeze()
    gc.enable()


def pytest_sessionfinish() -> None:
    gc.unfreeze()  # so that libraries find nothing left when they are unloaded


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Where slow tests are not wanted, their files are not even imported: this alone takes a while."""
    return True if config.option.markexpr == "not slow" and collection_path.stem in SLOW else None


@pytest.hookimpl(tryfirst=True)  # before -m chooses by marker
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: SLOW.index(item.path.stem) if item.path.stem in SLOW else len(SLOW))
    for item in items:
        if item.path.stem in SLOW:
            item.add_marker(pytest.mark.slow)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name what was not tested, instead of only counting it."""
    if shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin") is None:
        terminalreporter.section("the server behind a proxy was not tested", yellow=True)
        terminalreporter.write_line("There is no nginx here: 'apt-get install nginx-light'.")
    if chromium() is None:
        terminalreporter.section("the page was not tested", yellow=True)
        terminalreporter.write_line(
            "There is no chromium here: 'apt-get install chromium', or HOLMES_CHROMIUM=PATH."
        )
