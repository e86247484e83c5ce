"""The page of the Python interface, written from the docstrings.

    python tools/api_reference.py            writes docs/api.md
    python tools/api_reference.py --check    says whether it is up to date

A test compares the page with the docstrings, and other tests run its examples.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any

import holmes
import holmes.extend

PAGE = Path(__file__).parent.parent / "docs" / "api.md"
WIDEST = 96  # characters of a signature in one line
HEAD = """# The Python interface

```python
import holmes
from holmes import Diagnosis

holmes.build_index("INDEX", "videos/")  # or continue one

with holmes.open_index("INDEX") as index:
    answer = index.search("a dog runs")
    for hit in answer:
        print(hit.video, hit.probability, hit.moments[0].start)
    print(len(answer), answer[0].video)
    diagnosis: Diagnosis = answer.diagnosis
    print(diagnosis.kind, diagnosis.explanation)

    index.add("more/")  # one path, or a list
    index.remove(["boat.mp4"])
    index.sync("videos/")  # follow new, changed, moved and deleted files
    index.calibrate("captions.csv")  # or rows: [("a dog runs", "coast.mp4"), …]
    vectors = index.encode(["a dog"])  # one row per sentence
    same = index.like(index.videos[0], 1.5)  # what looks like this second; the same record as search

moments = holmes.find("a dog runs", "film.mp4")  # one file, no index
print(holmes.compare("BASE", "OURS"))  # two training runs

config = holmes.preset("small").with_changes(epochs=2)
print(config.epochs)
```

- `import holmes` takes milliseconds. What a function needs is loaded when it is called.
- Everything is typed. Results are dataclasses, and `to_dict()` gives plain JSON values.
- Mistakes raise `holmes.HolmesError` with one clear line.
- `model=` means the same everywhere: the name or folder of a joint encoder, a run or checkpoint of
  `holmes train`, or an object that encodes.

`python tools/api_reference.py` writes this page from the docstrings. Tests run its examples in a folder
with an `INDEX`, a `STORE`, three runs and a few videos.
"""
SECTIONS: dict[str, tuple[str, ...]] = {
    "Search": (
        "build_index", "open_index", "connect", "find", "SearchIndex", "Index", "ShardedIndex", "RemoteIndex",
    ),
    "What a search returns": ("Answer", "Hit", "Moment", "Diagnosis", "Timeline"),
    "For editors": ("export", "cut", "chapters", "ExportSummary", "CutSummary", "CutFile", "Chapter"),
    "What a change of an index returns": (
        "BuildSummary", "SyncSummary", "CalibrationSummary", "IndexDescription",
    ),
    "Train and evaluate": (
        "train", "tune", "evaluate", "compare", "queries", "load_checkpoint", "open_store", "push", "pull",
    ),
    "What training and evaluation return": (
        "TrainingResult", "Tuned", "Epoch", "Evaluation", "RunReport", "Interval", "ComparisonReport",
        "ComparedSystem", "PairedDifference", "QueryTable", "Checkpoint", "Store",
    ),
    "Settings": ("preset", "HolmesConfig", "RunOptions", "Protocol"),
    "Add your own": (
        "extend.loss", "extend.evidence_form", "extend.alignment", "extend.encoder",
        "extend.visual_encoder", "extend.load",
    ),
    "Errors": ("HolmesError",),
}  # fmt: skip


def page() -> str:
    parts = [HEAD]
    for title, names in SECTIONS.items():
        parts.append(f"## {title}\n")
        for name in names:
            parts += described(name, attrgetter(name)(holmes))
    return re.sub(r"\n{3,}", "\n\n", "\n".join(parts)).rstrip() + "\n"


def described(name: str, thing: Any) -> Iterator[str]:
    yield f"### `{name}`\n"
    if not inspect.isclass(thing):
        yield signature(f"holmes.{name}", thing)
        yield from docstring(thing)
        return
    yield from docstring(thing)
    if issubclass(thing, holmes.SearchIndex) and thing is not holmes.SearchIndex:
        return  # its methods are those of every index
    for base in thing.__bases__:
        if base.__name__ in holmes.__all__:
            yield f"It has the fields of `{base.__name__}`, and:\n"
    rows = [f"| `{field}` | `{cell(hint)}` | {cell(said)} |" for field, hint, said in fields_of(thing)]
    if rows:
        yield "\n".join(["| field | type | |", "| --- | --- | --- |", *rows]) + "\n"
    for method, function in own_methods(thing):
        yield f"#### `{name}.{method}`\n"
        yield signature(method, function)
        yield from docstring(function)


def own_methods(kind: type) -> Iterator[tuple[str, Any]]:
    """Public methods and properties that the class defines itself and says something about."""
    for name, value in vars(kind).items():
        function = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
        if not name.startswith("_") and inspect.isfunction(function) and function.__doc__:
            yield name, value if isinstance(value, property) else function


def signature(name: str, function: Any) -> str:
    if isinstance(function, property):
        kind = function.fget.__annotations__["return"] if function.fget else ""
        return f"```python\n{name}: {kind}\n```\n"
    found = inspect.signature(function)
    given = [part for part in found.parameters.values() if part.name not in ("self", "cls")]
    words, kinds = [argument(part) for part in given], [part.kind for part in given]
    if inspect.Parameter.KEYWORD_ONLY in kinds and inspect.Parameter.VAR_POSITIONAL not in kinds:
        words.insert(kinds.index(inspect.Parameter.KEYWORD_ONLY), "*")
    line = f"{name}({', '.join(words)}) -> {found.return_annotation}"
    if len(line) > WIDEST:
        inside = "".join(f"    {word},\n" for word in words)
        line = f"{name}(\n{inside}) -> {found.return_annotation}"
    return f"```python\n{line}\n```\n"


def argument(part: inspect.Parameter) -> str:
    star = "*" if part.kind is part.VAR_POSITIONAL else "**" if part.kind is part.VAR_KEYWORD else ""
    default = "" if part.default is part.empty else f" = {part.default!r}"
    return f"{star}{part.name}: {part.annotation}{default}"


def docstring(thing: Any) -> Iterator[str]:
    """Its text; arguments become a table, and an example becomes code."""
    text = inspect.cleandoc(thing.__doc__ or "")
    text, _, example = text.partition("\nExample:\n")
    text, _, arguments = text.partition("\nArgs:\n")
    yield text.strip() + "\n"
    rows = re.findall(r"^    (\w+): (.*(?:\n {8,}.*)*)", arguments, re.MULTILINE)
    if rows:
        yield (
            "\n".join(
                ["| argument | |", "| --- | --- |", *(f"| `{name}` | {cell(said)} |" for name, said in rows)]
            )
            + "\n"
        )
    if example:
        yield f"```pycon\n{inspect.cleandoc(example).strip()}\n```\n"


def fields_of(kind: type) -> Iterator[tuple[str, str, str]]:
    """The fields of a dataclass: name, type, and the comment or the text beside it."""
    lines = inspect.getsource(kind).splitlines()
    (tree,) = ast.parse("\n".join(lines)).body
    assert isinstance(tree, ast.ClassDef)
    for node, after in zip(tree.body, [*tree.body[1:], None], strict=True):
        if not isinstance(node, ast.AnnAssign) or ast.unparse(node.target).startswith("_"):
            continue
        line = lines[node.end_lineno - 1] if node.end_lineno else ""
        said = line.partition("  # ")[2]
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            said = str(after.value.value)
        yield ast.unparse(node.target), ast.unparse(node.annotation), said.split("noqa")[0].strip()


def cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def main() -> None:
    wanted = page()
    if "--check" in sys.argv[1:]:
        if not PAGE.exists() or PAGE.read_text() != wanted:
            sys.exit(f"{PAGE} does not match the docstrings; run 'python tools/api_reference.py'.")
        return
    PAGE.write_text(wanted)


if __name__ == "__main__":
    main()
