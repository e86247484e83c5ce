"""Imports point down only; nothing is heavier than it must be; nothing names a machine."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "holmes"

# Part of the package → the parts it may import. A new part must say here what it stands on.
LEAVES = {"base", "errors", "moments", "records", "results"}
MATHS = {"evidence", "transport", "similarity"}
# Parts inside a package that stand above or below the rest of it.
INNER = {"evaluation.confidence", "evaluation.runs", "report.figures"}
INDEX = {"index.storage", "index.embedders", "index.engine", "index.ingest", "index.answer"}
INNER |= INDEX
MAY_IMPORT: dict[str, set[str]] = {
    **{leaf: LEAVES for leaf in LEAVES},
    **{part: {"records"} for part in MATHS},
    "evidence": {"records", "errors", "base"},
    "losses": {"records", *MATHS},
    "config": LEAVES,
    "encoders": {"config", "similarity", *LEAVES},
    "data": {"config", *LEAVES},
    "media": {"config", "data", *LEAVES},
    # The spoken and written words of videos, as passages.
    "heard": {"media", *LEAVES},
    # Worlds made on purpose: planted as features, rendered as video files.
    "worlds": {"config", "data", "media", *LEAVES},
    "evaluation": {"config", "data", "encoders", *MATHS, *LEAVES},
    # How sure an answer is, measured on retrieval; worlds and text backbones read corrupted captions again.
    "evaluation.confidence": {"config", "data", "encoders", "evaluation", "media", "worlds", *MATHS, *LEAVES},
    "training": {"config", "data", "encoders", "evaluation", "losses", *MATHS, *LEAVES},
    # Finished runs: nothing in training knows of them.
    "evaluation.runs": {"config", "data", "encoders", "evaluation", "evaluation.confidence", "training"}
    | {*MATHS, *LEAVES},
    # An index: files below the engine that searches them, below the answers; ingest stands beside both.
    "index": set(),
    "index.storage": {"heard", "media", *LEAVES},
    "index.embedders": {"data", "encoders", "evidence", "media", *LEAVES},
    "index.engine": {"evidence", "heard", "index.storage", *LEAVES},
    "index.ingest": {"data", "heard", "media", "index.embedders", "index.storage", *LEAVES},
    "index.answer": {"data", "evidence", "heard", "media", "similarity", *INDEX - {"index.answer"}, *LEAVES},
    # What was found, for other programs: timelines, clips as files, chapters.
    "editing": {"evidence", "media", *INDEX, *LEAVES},
    # The client of a server only reads answers over HTTP; the rest is the page and its API.
    "serve": {"config", "data", "editing", "encoders", "heard", "media", "evidence", *INDEX, *LEAVES},
    # Many machines: shards of an index, and extraction over nodes.
    "cluster": {"config", "data", "encoders", "heard", "media", "evidence", *INDEX, *LEAVES},
    # Figures come from report files: no torch, and so no records either.
    "report.figures": {"errors", "base"},
    # A report's data, as the records that its figures draw.
    "report": {"config", "data", "encoders", "evaluation", "evaluation.confidence", "evaluation.runs"}
    | {"report.figures", "training", *MATHS, *LEAVES},
    # The paper's tables from the field's folders: everything that trains, evaluates and draws.
    "reproduce": {"config", "data", "encoders", "evaluation", "evaluation.runs", "report", "report.figures"}
    | {"training", *LEAVES},
    # Adds to the tables of losses, encoders, alignments, forms of evidence and encoders of frames.
    "extend": {*LEAVES, *MATHS, "config", "encoders", "losses", "media", "training"},
    # The public functions: what `import holmes` offers.
    "api": {*LEAVES, "cluster", "config", "data", "encoders", "heard", "evaluation.runs", "training", *INDEX},
    "cli": {
        *LEAVES,
        *MATHS,
        "api",
        "cluster",
        "config",
        "data",
        "encoders",
        "evaluation",
        "evaluation.confidence",
        "heard",
    }
    | {"evaluation.runs", "editing", "extend", *INDEX, "losses", "media", "report", "report.figures", "serve"}
    | {"reproduce", "training", "worlds"},
}
# Always installed.
REQUIRED = {"filelock", "torch", "numpy", "h5py", "safetensors", "typer", "rich", "matplotlib"}


def modules() -> list[str]:
    """Every module of the package by its dotted name."""
    return sorted(
        ".".join(("holmes", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")
        for path in SOURCE.rglob("*.py")
    )


def file_of(module: str) -> Path:
    path = SOURCE.parent.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def part_of(module: str) -> str:
    first, second, *_ = *module.split(".")[1:], "", ""
    return f"{first}.{second}" if f"{first}.{second}" in INNER else first


def imports_in(nodes: Iterator[ast.AST], module: str) -> set[str]:
    known, found = set(modules()), set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} has a relative import"
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                found.add(whole if whole in known else str(node.module))
    return found


@cache
def every_import(module: str) -> set[str]:
    """Also those inside functions."""
    return imports_in(ast.walk(ast.parse(file_of(module).read_text())), module)


@cache
def imports_at_once(module: str) -> set[str]:
    """Those that run, and must succeed, when the module is imported."""

    def waits(node: ast.AST) -> bool:
        if isinstance(node, ast.If):
            return "TYPE_CHECKING" in ast.unparse(node.test)
        if isinstance(node, ast.Try):
            return any("ImportError" in ast.unparse(handler.type or node) for handler in node.handlers)
        return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)

    def outside(node: ast.AST) -> Iterator[ast.AST]:
        for child in ast.iter_child_nodes(node):
            if not waits(child):
                yield child
                yield from outside(child)

    return imports_in(outside(ast.parse(file_of(module).read_text())), module)


def reached(start: list[str], imports) -> set[str]:
    """Everything an import of these modules brings along, the packages that contain them too."""
    seen, waiting = set(), list(start)
    while waiting:
        module = waiting.pop()
        if module in seen:
            continue
        seen.add(module)
        if part_of(module) or module == "holmes":
            parents = [module.rsplit(".", n)[0] for n in range(1, module.count(".") + 1)]
            waiting += [*parents, *(imports(module) if file_of(module).exists() else ())]
    return seen


def of_part(part: str) -> list[str]:
    return [module for module in modules() if part_of(module) == part]


@pytest.mark.parametrize("module", [m for m in modules() if part_of(m) not in ("", "__main__")])
def test_imports_point_down(module):
    part = part_of(module)
    assert part in MAY_IMPORT, f"say in MAY_IMPORT what holmes.{part} may import"
    parts = {part_of(name) for name in every_import(module) if name.startswith("holmes.")} - {part}
    assert parts <= MAY_IMPORT[part], f"{module} imports {sorted(parts - MAY_IMPORT[part])}"


def test_the_table_itself_points_down():
    """No two parts may import each other, directly or through others; leaves are one layer."""
    below: dict[str, set[str]] = {}

    def depth(part: str, above: tuple[str, ...] = ()) -> set[str]:
        assert part not in above, f"{' → '.join((*above, part))} is a circle"
        if part not in below:
            nearer = MAY_IMPORT[part] - LEAVES
            below[part] = nearer.union(*(depth(other, (*above, part)) for other in nearer))
        return below[part]

    for part in MAY_IMPORT.keys() - LEAVES:
        assert part not in depth(part)


def test_no_file_imports_itself_through_others():
    """Not even for its types: whoever reads a file has read what it stands on."""
    known = set(modules())
    done: set[str] = set()

    def visit(module: str, above: tuple[str, ...]) -> None:
        assert module not in above, f"{' → '.join((*above[above.index(module) :], module))} is a circle"
        if module in done:
            return
        for imported in sorted(every_import(module) & known - {module}):
            visit(imported, (*above, module))
        done.add(module)

    for module in known:
        visit(module, ())


@pytest.mark.parametrize("part", sorted([*MATHS, "losses"]))
def test_maths_knows_only_torch_and_records(part):
    """And Triton for fused kernels, but only where it is installed."""

    def outside(imports) -> set[str]:
        names = {name.split(".")[0] for module in of_part(part) for name in imports(module)}
        return names - set(sys.stdlib_module_names) - {"holmes"}

    assert outside(imports_at_once) == {"torch"}
    assert outside(every_import) <= {"torch", "triton"}


def test_maths_takes_numbers_never_settings():
    for part in (*MATHS, "losses"):
        assert not [name for name in reached(of_part(part), every_import) if part_of(name) == "config"]


def test_search_reaches_neither_training_nor_losses():
    brought = {part_of(name) for part in INDEX for name in reached(of_part(part), every_import)}
    assert not brought & {"training", "losses"}


def test_nothing_stands_on_the_command_line():
    """Domain logic has its place below: the commands only call it."""
    above = {module for module in modules() if part_of(module) not in ("cli", "__main__")}
    assert not [m for m in above if any(part_of(name) == "cli" for name in every_import(m))]


def test_training_knows_nothing_of_finished_runs_and_evaluation_nothing_of_figures():
    for part in ("training", "evaluation", "evaluation.confidence"):
        brought = {part_of(name) for name in reached(of_part(part), every_import)}
        assert not brought & {"evaluation.runs", "report", "report.figures", "cli", "serve"}, part


def test_the_files_to_read_exist_and_every_part_of_the_method_has_one():
    text = (ROOT / "CONTRIBUTING.md").read_text().partition("## Files to read, in order")[2]
    parts = set()
    for line in re.findall(r"^\d+\. (.*?):", text, re.MULTILINE):
        folder = SOURCE
        for name in re.findall(r"`([^`]+)`", line):
            path = ROOT / name if name.startswith("src/") else folder / name
            assert path.exists(), name
            folder = path if path.is_dir() else path.parent
            parts.add(part_of(".".join(("holmes", *path.relative_to(SOURCE).with_suffix("").parts))))
    aids = {
        "api",
        "config",
        "editing",
        "index",
        *INDEX - {"index.answer"},
        "media",
        "report.figures",
        "extend",
        "cli",
        "cluster",
        *LEAVES,
    }
    assert parts - {"records"} == MAY_IMPORT.keys() - aids


def test_one_class_name_is_one_thing():
    """But for the records of the HTTP interface, which are named after what they carry."""
    places: dict[str, list[str]] = {}
    for module in modules():
        if module != "holmes.serve.models":
            for node in ast.parse(file_of(module).read_text()).body:
                if isinstance(node, ast.ClassDef):
                    places.setdefault(node.name, []).append(module)
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def test_figures_need_no_torch():
    assert "torch" not in {name.split(".")[0] for name in reached(of_part("report.figures"), every_import)}


def test_help_is_instant():
    """Nothing heavy is imported before a command runs."""
    brought = {name.split(".")[0] for name in reached(of_part("cli"), imports_at_once)}
    assert not brought & {"torch", "numpy", "h5py", "safetensors", "matplotlib"}


@pytest.mark.parametrize(
    "part", sorted(MAY_IMPORT.keys() - {"media", "serve"}), ids=lambda part: f"holmes.{part}"
)
def test_what_only_some_users_need_is_imported_late(part):
    """Training, evaluation and search import without video, page or model packages."""
    for module in of_part(part):
        outside = {name.split(".")[0] for name in imports_at_once(module)}
        assert outside - set(sys.stdlib_module_names) - {"holmes"} <= REQUIRED, module


def test_only_the_page_imports_what_serves_it():
    """And not its client: FastAPI and the like are not installed everywhere."""
    web = {"fastapi", "starlette", "uvicorn", "pydantic", "httpx"}
    for module in modules():
        named = {name.split(".")[0] for name in every_import(module)}
        if part_of(module) != "serve" or module == "holmes.serve.client":
            assert not named & web, module


MACHINES = re.compile(
    r"(?<![\w.$}])/(?:work|root|home|opt|mnt)/"
    r"|pypi\.org|pythonhosted|download\.pytorch|huggingface\.co|conda\.anaconda|(?:extra-)?index-url",
    re.IGNORECASE,
)


def written() -> list[Path]:
    """Every text that the project consists of."""
    kinds = {".py", ".md", ".toml", ".cfg", ".ini", ".txt", ".json", ".html", ".js", ".css", ".sh", ".yml"}
    folders = ("src/holmes", "tests", "tools", "docs", "benchmarks", "studies", ".ci")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file()]
    files += [path for path in ROOT.iterdir() if path.is_file()]
    own = Path(__file__)
    return [
        path
        for path in files
        if (path.suffix in kinds or path.name in ("Makefile", "run"))
        and path != own
        and "results" not in path.parts
    ]


def test_nothing_names_a_machine_or_a_package_host():
    named = {
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in written()
        for match in MACHINES.finditer(path.read_text(encoding="utf-8", errors="replace"))
    }
    assert named == set()


def test_the_search_for_machines_finds_them():
    for text in ("open('/work/x')", "cd /home/someone", "https://pypi.org/simple", "--extra-index-url x"):
        assert MACHINES.search(text), text
    for text in ("a network/work/x", "{root}/work/", "../work/", "homework/"):
        assert not MACHINES.search(text), text
