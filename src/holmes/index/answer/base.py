"""The interface of every index: local, sharded, or behind a server."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from holmes.errors import HolmesError
from holmes.evidence import wording
from holmes.evidence.judging import Diagnosis
from holmes.heard.passages import Heard
from holmes.index.answer.answers import Answer, Hit, Timeline
from holmes.index.answer.request import SearchRequest, check_top
from holmes.index.storage.store import IndexDescription

if TYPE_CHECKING:
    from holmes.index.answer.calibration import CalibrationSummary
    from holmes.index.answer.composed import ComposedQuery
    from holmes.index.ingest.builder import BuildSummary
    from holmes.index.ingest.hearing import HearSummary
    from holmes.index.ingest.sync import SyncSummary
    from holmes.media.picture_file import Picture

Paths = Path | str | Iterable[Path | str]  # one path, or several
Captions = Path | str | Iterable[tuple[str, str] | Mapping[str, object]]  # a file, pairs, or rows


class SearchIndex(ABC):
    """An open index: it answers sentences, and takes in or drops videos where it can be changed."""

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    @abstractmethod
    def videos(self) -> list[str]:
        """The name of every video."""

    @property
    @abstractmethod
    def durations(self) -> dict[str, float]:
        """The seconds of every video, by its name."""

    @abstractmethod
    def describe(self) -> IndexDescription:
        """What the index is and what made it.

        Example:
            >>> index.describe().videos
            3
        """

    def search(
        self,
        sentence: str,
        top: int = 10,
        *,
        filter: str | Collection[str] | None = None,
        abstain_below: float | None = None,
        not_here_below: float | None = None,
        expect_missing: float | None = None,
        min_probability: float | None = None,
    ) -> Answer:
        """The best videos for one sentence, with their moments, and how sure the answer is.

        Args:
            sentence: What happens in the moment.
            top: How many hits at most.
            filter: Search only these videos: a pattern for paths or file names, or the names themselves.
            abstain_below: Return no hits if the first hit is less probable than this.
            not_here_below: Call the moment "not here" if it is less probable that its video is in the index,
                and no video is likelier than "none of them", which by default needs at least 30%.
            expect_missing: The share of queries whose video is not in the index; .2 unless stated.
            min_probability: The earlier name of `not_here_below`.

        Example:
            >>> answer = index.search("a dog runs on the beach", top=2)
            >>> len(answer), answer[0] is answer.hits[0]
            (2, True)
            >>> 0 <= answer.diagnosis.probability <= 1
            True
        """
        return self.search_many(
            [sentence],
            top,
            filter=filter,
            abstain_below=abstain_below,
            not_here_below=not_here_below,
            expect_missing=expect_missing,
            min_probability=min_probability,
        )[0]

    def search_many(
        self,
        sentences: Sequence[str],
        top: int = 10,
        *,
        filter: str | Collection[str] | None = None,
        abstain_below: float | None = None,
        not_here_below: float | None = None,
        expect_missing: float | None = None,
        min_probability: float | None = None,
    ) -> list[Answer]:
        """One answer for each sentence, as `search` gives it, in few passes over the index.

        Example:
            >>> [answer.query for answer in index.search_many(["a dog", "a boat"])]
            ['a dog', 'a boat']
        """
        here = min_probability if not_here_below is None else not_here_below
        request = SearchRequest(sentences, top, filter, abstain_below, here, expect_missing)
        request.check()
        return self._answer(request)

    @abstractmethod
    def _answer(self, request: SearchRequest) -> list[Answer]: ...

    def search_by(
        self,
        sentence: str | None = None,
        top: int = 10,
        *,
        image: Picture | None = None,
        like: str | None = None,
        leave_out: str | Sequence[str] = (),
        then: str | None = None,
        filter: str | Collection[str] | None = None,
    ) -> Answer:
        """The best videos for a picture, a moment of a video, or more than one sentence.

        What is given is added up. There are no probabilities: they are calibrated for single sentences.

        Args:
            sentence: What happens in the moment.
            top: How many hits at most.
            image: A picture: a file, its content, or height × width × RGB bytes.
            like: A moment of a video in the index, such as "beach.mp4@1:23-1:30".
            leave_out: What is not to be seen, such as "a cartoon"; one or several.
            then: What happens afterwards in the same video; the moment covers both.
            filter: Search only these videos: a pattern for paths or file names, or the names themselves.

        Example:
            >>> answer = index.search_by("a dog runs", then="a man sits down", top=2)
            >>> answer.query, len(answer)
            ('a dog runs, then a man sits down', 2)
            >>> len(index.search_by(like="coast.mp4@0:01-0:02", leave_out="a boat", top=2))
            2
        """
        from holmes.index.answer.composed import ComposedQuery, parse_clip
        from holmes.media.picture_file import read_picture

        check_top(top)
        query = ComposedQuery(
            sentence,
            () if image is None else (read_picture(image),),
            None if like is None else parse_clip(like),
            (leave_out,) if isinstance(leave_out, str) else tuple(leave_out),
            then,
        )
        query.check()
        return self._compose(query, int(top), filter)

    def _compose(self, query: ComposedQuery, top: int, filter: str | Collection[str] | None) -> Answer:
        raise HolmesError(
            f"{self._where} takes single sentences; pictures, --not and --then need an index without shards."
        )

    def like(self, video: str, time: float, top: int = 10) -> Answer:
        """Videos that look like `video` does at `time` seconds.

        There are no probabilities: they are calibrated for sentences, not for pictures.

        Example:
            >>> answer = index.like(index.videos[0], 1.5)
            >>> len(answer), answer[0].probability
            (2, None)
        """
        check_top(top)
        return picture_answer(video, time, self._look_alikes(video, time, top))

    @abstractmethod
    def _look_alikes(self, video: str, time: float, top: int) -> Sequence[Hit]: ...

    @abstractmethod
    def timelines(self, sentence: str, videos: Sequence[str]) -> list[Timeline]:
        """How well a sentence fits each of these videos, from its first second to its last.

        Example:
            >>> (timeline,) = index.timelines("a dog runs", [index.videos[0]])
            >>> timeline.spans_F2.shape == (len(timeline.similarity_F), 2)
            True
        """

    @abstractmethod
    def timelines_like(self, video: str, time: float, videos: Sequence[str]) -> list[Timeline]:
        """How much each of these videos looks like `video` does at `time` seconds, as `timelines`.

        Example:
            >>> (timeline,) = index.timelines_like(index.videos[0], 1.5, [index.videos[1]])
            >>> timeline.spans_F2.shape == (len(timeline.similarity_F), 2)
            True
        """

    def transcript(self, video: str) -> Heard | None:
        """The spoken and written words of a video; None where it was never heard.

        Example:
            >>> index.transcript(index.videos[0]) is None
            True
        """
        raise HolmesError(f"{self._where} does not give out transcripts.")

    def duration(self, video: str) -> float:
        """The seconds of one video."""
        seconds = self.durations.get(video)
        if seconds is None:
            raise self._unknown(video)
        return seconds

    def readable(self, sentence: str) -> str:
        """The beginning of a sentence that the model reads; a longer sentence is cut off there.

        Example:
            >>> index.readable("a dog runs")
            'a dog runs'
        """
        return sentence

    def encode(self, sentences: Sequence[str]) -> NDArray[np.float32]:
        """One unit vector for each sentence, as the index compares it with videos.

        Example:
            >>> index.encode(["a dog"]).shape
            (1, 256)
        """
        raise HolmesError(f"{self._where} does not give out vectors; open the index where its files are.")

    def add(
        self, videos: Paths, *, fast: bool = False, workers: int | None = None, progress: bool = False
    ) -> BuildSummary:
        """Add videos: a file, a folder, a feature folder, or a list of these. Unchanged videos are skipped.

        Args:
            videos: One path or several.
            fast: Decode only key frames where they are dense enough.
            workers: Processes that decode; by default one per core.
            progress: Draw progress bars.

        Example:
            >>> index.add("more/").added
            1
            >>> index.add(["film.mp4", "more/"]).added
            1
        """
        raise self._unchangeable("add")

    def remove(self, videos: Paths) -> tuple[str, ...]:
        """Remove videos by path, folder, file name or pattern, and return the names of those removed.

        Args:
            videos: One or several.

        Example:
            >>> len(index.remove("pier.mp4"))
            1
            >>> len(index.remove(["coast.mp4", "*/street.*"]))
            2
        """
        raise self._unchangeable("remove")

    def sync(
        self, folders: Paths, *, fast: bool = False, workers: int | None = None, progress: bool = False
    ) -> SyncSummary:
        """Make the index match folders: follow new, changed, moved and deleted videos.

        Videos on a disk that is not connected are kept, and videos from other folders stay as they are.

        Args:
            folders: One folder or several.
            fast: Decode only key frames where they are dense enough.
            workers: Processes that decode; by default one per core.
            progress: Draw progress bars.

        Example:
            >>> index.sync("videos/").changes
            0
        """
        raise self._unchangeable("sync")

    def hear(self, *, workers: int | None = None, progress: bool = False) -> HearSummary:
        """Make subtitles, speech and text on screen of all videos searchable; pictures are not read again.

        Args:
            workers: Processes that recognise; by default one per core.
            progress: Draw progress bars.

        Example:
            >>> index.hear().heard
            3
        """
        raise self._unchangeable("hear")

    def calibrate(self, rows: Captions) -> CalibrationSummary:
        """Fit the probabilities to sentences whose videos are known; about forty sentences are enough.

        Args:
            rows: Pairs (sentence, video), mappings with these two keys, or the path of a CSV or JSONL file.

        Example:
            >>> rows = [("a dog runs", "coast.mp4"), ("a boat leaves", "pier.mp4")] * 10
            >>> index.calibrate(rows).sentences
            20
        """
        raise self._unchangeable("calibrate")

    def refresh(self) -> bool:
        """Take up changes that others have made; return whether there were any.

        Example:
            >>> index.refresh()
            False
        """
        return False

    def close(self) -> None:  # noqa: B027 (nothing to do where nothing is held)
        """Release what the index holds: memory, or actors of a cluster."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    @abstractmethod
    def _where(self) -> str:
        """The path or address of the index, for messages."""

    def _unknown(self, video: str) -> HolmesError:
        return HolmesError(f"{self._where} contains no video named '{video}'.")

    def _unchangeable(self, command: str) -> HolmesError:
        return HolmesError(
            f"{self._where} cannot be changed from here; run 'holmes index {command}' where its files are."
        )


def paths_of(paths: Paths) -> list[Path | str]:
    """One path or several, as a list."""
    return [paths] if isinstance(paths, str | Path) else list(paths)


def picture_answer(video: str, time: float, hits: Sequence[Hit]) -> Answer:
    """What `like` answers: hits without a judgement."""
    diagnosis = Diagnosis(beliefs=(), quantities={}, explanation=wording.NOT_A_SENTENCE)
    return Answer(f"like {Path(video).name} at {time:g} s", diagnosis, tuple(hits))
