"""Hostile words of an index: a passages.sqlite whose author made every checksum match, and saved searches."""

from __future__ import annotations

import json
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from holmes.base.files import sha256_file
from holmes.base.manifests import checksum
from holmes.cluster.index import open_index
from holmes.errors import HolmesError
from holmes.heard.passages import Heard, Passage, WordSource
from holmes.index.answer.searches import FORMAT, MOST, read_searches
from holmes.index.embedders.zero_shot import ZeroShot
from holmes.index.ingest.builder import build_index
from holmes.index.storage.maintenance import compact_index
from holmes.index.storage.manifest import KINDS, OWNERS, PASSAGES
from holmes.index.storage.passages import pack_words
from holmes.index.storage.store import SEARCHES
from holmes.index.storage.writer import IndexWriter
from index_fakes import FILMS, FakeJoint, every_name_loads, write_features

ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 0 UNION ALL SELECT x + 1 FROM c)"
# What a hostile author does to the database, by name.
LIES = {
    "a view that never ends": f"""
        DROP TABLE videos;
        CREATE VIEW videos AS {ENDLESS} SELECT x AS id, x'61' AS name, '' AS stamp, x'61' AS heard FROM c;""",
    "a view of gigabytes": f"""
        DROP TABLE passages;
        CREATE VIEW passages AS {ENDLESS} SELECT 0 AS id, 0 AS video, 0.0 AS start, 1.0 AS end, 0 AS source,
            CAST(zeroblob(100000000) AS TEXT) AS text FROM c;""",
    "words that are no full-text index": """
        DROP TABLE vocabulary; DROP TABLE words; CREATE TABLE words (text);""",
    "another table": "CREATE TABLE more (x);",
    "a view called a table": f"""
        PRAGMA writable_schema=ON;
        UPDATE sqlite_schema SET sql = 'CREATE VIEW videos AS {ENDLESS} SELECT x AS id, x AS name, x AS stamp,
            x AS heard FROM c', rootpage = 0 WHERE name = 'videos';""",
    "names that are numbers": "UPDATE videos SET name = 7;",
    "a transcript that is a number": "UPDATE videos SET heard = 7;",
    "texts that are blobs": "UPDATE passages SET text = x'00ff';",
    "a full-text index that is damaged": "UPDATE words_data SET block = x'ffffffffffffffffffff';",
    "positions that are not there": "UPDATE videos SET id = id + 1000;",
    "no words at all": "DELETE FROM words_data;",
}
# Answers may be wrong then, but there are some.
WRONG = {
    "names of other videos": "UPDATE videos SET name = CAST('/films/other' || id AS BLOB);",
    "two videos of one name": "UPDATE videos SET name = (SELECT name FROM videos WHERE id = 0);",
    "times that no film has": "UPDATE passages SET start = -1e300, end = 1e300;",
    "texts of a megabyte": "UPDATE passages SET text = replace(hex(zeroblob(500000)), '00', 'a ');",
}


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("words")
    features = write_features(folder / "features", FILMS)
    with pytest.MonkeyPatch.context() as patch:
        every_name_loads(patch, FakeJoint())
        build_index(folder / "index", [features.path], ZeroShot(FakeJoint()))
        with IndexWriter(folder / "index") as writer:
            said = Passage(1.0, 2.0, "the captain painted the old boat", WordSource.SUBTITLES)
            heard = Heard((said,), {"subtitles": "x.srt"}, (), "stamp")
            writer.hear([pack_words(name, heard) for name in writer.store.positions], "")
        yield folder / "index"


@pytest.fixture
def index(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "index"))


def lie(index: Path, sql: str) -> None:
    """Change the database, and make its size and checksum match again."""
    (file,) = index.glob(f"*/*/{PASSAGES}")
    with closing(sqlite3.connect(file)) as database:
        database.executescript(sql)
        database.commit()
    manifest = index / "manifest.json"
    body = json.loads(manifest.read_text())
    body.pop("checksum")
    body["passages"][0]["files"][PASSAGES] = {"bytes": file.stat().st_size, "sha256": sha256_file(file)}
    manifest.write_text(json.dumps(body | {"checksum": checksum(body)}))


def uses(path: Path) -> dict[str, Callable[[], object]]:
    (video, *_) = FILMS
    return {
        "search": lambda: open_index(path, device="cpu").search("the boat of a captain"),
        "quote": lambda: open_index(path, device="cpu").search('"old boat"'),
        "filter": lambda: open_index(path, device="cpu").search("a boat", filter=[f"/films/{video}.mp4"]),
        "transcript": lambda: open_index(path, device="cpu").transcript(f"/films/{video}.mp4"),
        "compact": lambda: compact_index(path),
    }


def ending(work: Callable[[], object], seconds: float = 20.0) -> str:
    """How a use of the index ends: '' or one line. One that does not end, or fails in another way, fails."""
    told: list[str] = []

    def run() -> None:
        try:
            work()
            told.append("")
        except HolmesError as error:
            told.append(str(error))
        except BaseException as error:
            told.append(f"{type(error).__name__}: {error}\n")

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    assert told, "it did not end"
    assert "\n" not in told[0], told[0]
    return told[0]


def test_the_sound_index_is_used(index: Path) -> None:
    assert {name: ending(work) for name, work in uses(index).items()} == dict.fromkeys(uses(index), "")


@pytest.mark.parametrize("name", LIES)
def test_a_database_that_lies_is_refused_in_one_line(index: Path, name: str) -> None:
    lie(index, LIES[name])
    told = {use: ending(work) for use, work in uses(index).items()}
    assert any(told.values()), "nobody noticed"
    assert all(PASSAGES in line or "transcript" in line for line in told.values() if line), told


@pytest.mark.parametrize("name", WRONG)
def test_a_database_that_is_only_wrong_brings_no_traceback(index: Path, name: str) -> None:
    lie(index, WRONG[name])
    for work in uses(index).values():
        ending(work)


@pytest.mark.parametrize(("name", "value"), [(KINDS, 7), (KINDS, -1), (OWNERS, 2**30)])
def test_numbers_beside_the_database_that_lie_are_refused(index: Path, name: str, value: int) -> None:
    (file,) = index.glob(f"*/*/{name}")
    numbers = np.fromfile(file, {KINDS: np.int8, OWNERS: np.int32}[name])
    numbers[-1] = value
    file.write_bytes(numbers.tobytes())
    assert name in ending(lambda: open_index(index, device="cpu"))


def test_more_saved_searches_than_can_be_saved_are_refused(index: Path) -> None:
    """Each is asked again with every change, so a thousand would keep `index sync` busy."""
    few = [{"name": str(n), "sentence": "a dog", "least": 0.5, "known": []} for n in range(MOST + 1)]
    for searches, word in ((few, str(MOST)), ([few[0]] * 2, "twice")):
        FORMAT.write(index / SEARCHES, {"searches": searches})
        with pytest.raises(HolmesError, match=word):
            read_searches(index)
