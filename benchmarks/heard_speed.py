"""What hearing costs: minutes of film per minute of processor time, memory and word errors of each source.

    python benchmarks/heard_speed.py VIDEOS… [--transcripts FILE.json] [--speech FOLDER] [--json FILE]

Every source works alone, in a process of its own; loading its model counts. `--transcripts` names a JSON file
of `{"name.mp4": "what is said"}`, against which recognised words are counted.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from holmes.heard.folder import HeardFolder
from holmes.heard.hearing import Hearing
from holmes.heard.listen import Listener
from holmes.media.containers import av_library, open_container

NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
SPELLED = {**{str(number): word for number, word in enumerate(NUMBERS)}, "mr": "mister", "mrs": "missis"}


def hear(videos: Sequence[str], settings: dict[str, Any]) -> dict[str, Any]:
    """What one source costs, and what it heard in each video."""
    began, said = time.process_time(), dict[str, str]()
    with tempfile.TemporaryDirectory() as folder:
        listener = Listener(HeardFolder(Path(folder)), Hearing(**settings))
        for video in videos:
            said[video] = " ".join(passage.text for passage in listener(Path(video)).passages)
    return {
        "seconds": time.process_time() - began,
        "MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
        "said": said,
    }


def words(text: str) -> list[str]:
    return [SPELLED.get(word, word) for word in re.findall(r"[a-z0-9']+", text.lower().replace("-", " "))]


def errors(right: Sequence[str], heard: Sequence[str]) -> int:
    """Words that are missing, added or others: the least number of changes."""
    row = list(range(len(heard) + 1))
    for at, word in enumerate(right, 1):
        corner, row[0] = row[0], at
        for to, other in enumerate(heard, 1):
            corner, row[to] = row[to], min(row[to] + 1, row[to - 1] + 1, corner + (word != other))
    return row[-1]


def length(video: str) -> float:
    with open_container(av_library(), Path(video)) as container:
        return float(container.duration or 0) / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("videos", nargs="+")
    parser.add_argument("--transcripts", type=Path)
    parser.add_argument("--speech", default=Hearing().speech)
    parser.add_argument("--json", type=Path, help="write the figures here")
    asked = parser.parse_args()
    right = json.loads(asked.transcripts.read_text()) if asked.transcripts else {}
    seconds = sum(map(length, asked.videos))
    sources = {
        "subtitles": {"speech": "", "screen": False},
        "speech": {"subtitles": False, "speech": asked.speech, "screen": False},
        "screen": {"subtitles": False, "speech": ""},
    }
    print(f"{len(asked.videos)} videos, {seconds / 60:.1f} minutes")
    print("| source | minutes of film per minute of processor time | MB | word errors |")
    print("| --- | ---: | ---: | ---: |")
    rows = []
    for name, settings in sources.items():
        with ProcessPoolExecutor(1, get_context("spawn")) as pool:
            found = pool.submit(hear, asked.videos, settings).result()
        pairs = [(words(right[p.name]), words(found["said"][str(p)])) for p in known(asked.videos, right)]
        wrong, all_words = sum(errors(*pair) for pair in pairs), sum(len(pair[0]) for pair in pairs)
        counted = f"{wrong} of {all_words}" if name == "speech" and all_words else "–"
        ratio = seconds / found["seconds"]
        rows.append({"source": name, "ratio": ratio, "MB": found["MB"], "errors": counted})
        print(f"| {name} | {ratio:.1f} | {found['MB']:.0f} | {counted} |")
    if asked.json:
        asked.json.write_text(json.dumps(rows, indent=1))


def known(videos: Sequence[str], right: dict[str, str]) -> list[Path]:
    return [Path(video) for video in videos if Path(video).name in right]


if __name__ == "__main__":
    main()
