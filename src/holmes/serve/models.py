"""The requests and responses of the API, as documented in /api/openapi.json."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Any

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field

from holmes.serve.catalogue import DAY
from holmes.serve.settings import Limits

NOT_BLANK = r"\S"
ID = r"^[A-Za-z0-9._-]{1,80}$"  # of a video
LIMITS = Limits()  # the limits in the description; a server may be started with others


Sentence = Annotated[
    str, Field(min_length=1, max_length=LIMITS.query, json_schema_extra={"pattern": NOT_BLANK})
]


def iso_day(given: object) -> object:
    """A day such as 2024-12-31; pydantic would take a number for seconds since 1970."""
    if not isinstance(given, str) or not DAY.fullmatch(given):
        raise ValueError("write a day as 2024-12-31")
    return given


Day = Annotated[date, BeforeValidator(iso_day)]


class Order(BaseModel):
    """The body of a request; fields that it does not know are refused."""

    model_config = ConfigDict(extra="forbid")


class Filtered(Order):
    """Which videos are searched."""

    filter: str | None = Field(None, max_length=LIMITS.query, description="A pattern for paths: '*/2024/*'.")
    names: list[str] | None = Field(None, description="Only these videos, by their names.")
    folder: str | None = Field(None, max_length=4096, description="Only videos below this folder.")
    after: Day | None = Field(None, description="Only files changed on this day or later.")
    before: Day | None = Field(None, description="Only files changed on this day or earlier.")
    shortest: float | None = Field(
        None, ge=0, le=1e9, strict=True, description="Only videos of at least so many seconds."
    )
    longest: float | None = Field(
        None, ge=0, le=1e9, strict=True, description="Only videos of at most so many seconds."
    )


class Problem(BaseModel):
    """Why a request was not answered."""

    error: str = Field(description="One line: what is wrong, and what to do.")


class Moment(BaseModel):
    start: float = Field(description="Seconds.")
    end: float
    score: float


class Timeline(BaseModel):
    """Similarity along a video, in equal steps from its first second to its last."""

    duration: float
    similarity: list[float]
    moments: list[Moment] = []


class Video(BaseModel):
    id: str
    name: str = Field(description="The path of its file, as the index knows it.")
    title: str
    folder: str
    duration: float
    date: str | None = Field(description="The day its file was last changed; none if the file is gone.")
    file: bool = Field(description="Whether the original file is there to be played.")
    library: str | None = Field(None, description="Which of several libraries holds it.")
    note: str | None = Field(None, description="Why the file was read only in part; null if it was not.")


class Passage(BaseModel):
    """What is said or written between two times of a video."""

    start: float = Field(description="Seconds.")
    end: float
    text: str
    source: str = Field(description="corrected, subtitles, embedded, speech or screen.")


class Quote(Passage):
    """A passage that fits the query."""

    kind: str = Field(description="said or written.")
    marks: list[tuple[int, int]] = Field(description="The query's words in the text, from and to.")


class Transcript(BaseModel):
    """The spoken and written words of a video, in order of time."""

    heard: bool = Field(description="False if the video was never listened to.")
    passages: list[Passage]
    sources: dict[str, str] = Field(description="Where the passages come from.")
    notes: list[str]


class Hit(Video):
    video: str = Field(description="The same as name.")
    score: float
    belief: float
    probability: float | None = Field(
        description="The probability that it is the right one; null without a calibration."
    )
    fit: str | None = Field(description="How well it fits: fits, may fit or nearest; null if not judged.")
    gone: bool = Field(description="Whether its file is no longer there.")
    moments: list[Moment]
    timeline: Timeline | None = None
    because: list[str] | None = Field(None, description="Sources of evidence: seen, said, written.")
    quotes: list[Quote] | None = Field(None, description="What is said or written in it.")


class Diagnosis(BaseModel):
    """How sure the answer is, and why. Further quantities belong to the model."""

    model_config = ConfigDict(extra="allow")
    kind: str = Field(description="precise, several_fit, too_little, not_here; or unknown.")
    words: str = Field(description="The kind in words.")
    here: float | None = Field(description="The probability that its video is in the index.")
    group: list[str] = Field(description="The first hits that the kind is about.")
    explanation: str
    advice: str
    probability: float | None
    abstained: bool


class Answer(BaseModel):
    model_config = ConfigDict(extra="allow")
    query: str
    diagnosis: Diagnosis
    hits: list[Hit]
    read: str | None = Field(description="The part of a sentence that the model read, if it is too long.")
    missing: list[str] = Field(description="Parts of the index that did not answer.")
    generation: int
    milliseconds: float


class Answers(BaseModel):
    answers: list[Answer]


class SavedSearch(BaseModel):
    name: str
    sentence: str
    least: float = Field(description="The probability of a match.")


class Searches(BaseModel):
    searches: list[SavedSearch]


class NewSearch(Order):
    sentence: Sentence
    name: str | None = Field(None, max_length=100, description="The sentence, if there is none.")
    least: float = Field(0.5, ge=0, le=1, strict=True)


class Library(BaseModel):
    name: str = Field(description="Its pages and API are below /NAME/.")
    videos: int


class Libraries(BaseModel):
    libraries: list[Library]
    joined: bool = Field(description="Whether they are searched as one, with one distribution.")
    why_separate: str | None = Field(description="Why not.")


class LibraryAnswer(BaseModel):
    library: str | None = Field(description="Null for all libraries together.")
    answer: Answer | None
    error: str | None = Field(description="Why this library has no answer.")


class AllAnswers(BaseModel):
    """One answer over all libraries; or one for each, whose probabilities must not be compared."""

    answers: list[LibraryAnswer]
    joined: bool
    why_separate: str | None


class Like(BaseModel):
    hits: list[Hit]
    milliseconds: float


class Scene(BaseModel):
    start: float = Field(description="Seconds.")
    end: float


class Scenes(BaseModel):
    scenes: list[Scene]


class Examples(BaseModel):
    examples: list[str] = Field(description="Sentences that this collection answers well.")


class Videos(BaseModel):
    total: int
    videos: list[Video]


class Questions(Filtered):
    """Several sentences at once."""

    sentences: list[Sentence] = Field(min_length=1, max_length=LIMITS.sentences)
    top: int = Field(10, ge=1, le=LIMITS.top, strict=True)
    timelines: bool = Field(False, strict=True, description="With the similarity along each video.")
    abstain_below: float | None = Field(
        None, ge=0, le=1, strict=True, description="No hits if the first is less probable."
    )
    not_here_below: float | None = Field(
        None,
        validation_alias=AliasChoices("not_here_below", "min_probability"),
        ge=0,
        le=1,
        strict=True,
        description="Answer 'not here' if that is the likeliest, and P(the video is here) is below this.",
    )
    expect_missing: float | None = Field(
        None,
        ge=0,
        le=1,
        strict=True,
        description="The share of queries whose video is not in the index; .2 by default.",
    )


class CutMoment(Order):
    id: str = Field(pattern=ID, description="The video, as hits give it.")
    start: float = Field(ge=0, le=1e7, strict=True, description="Seconds.")
    end: float = Field(gt=0, le=1e7, strict=True)


class CutOrder(Order):
    """Moments to be saved: one as a clip, or several as a reel with titles."""

    moments: list[CutMoment] = Field(min_length=1, max_length=LIMITS.cut_moments)
    reel: bool = Field(False, strict=True, description="One file, with a title before each moment.")
    exact: bool = Field(False, strict=True, description="Encode again, to cut exactly at the frame.")
    title: str = Field("", max_length=LIMITS.query, description="What was searched: the titles of a reel.")


class Span(Order):
    """A moment of a video in the index."""

    video: str = Field(min_length=1, max_length=4096, description="Its id, its path or its file name.")
    start: float = Field(ge=0, le=1e7, strict=True, description="Seconds.")
    end: float = Field(ge=0, le=1e7, strict=True)


class ComposedQuestion(Filtered):
    """A sentence, a picture or a moment of a video, and what else is wanted."""

    sentence: Sentence | None = None
    image: str | None = Field(
        None,
        min_length=1,
        max_length=LIMITS.body,
        pattern=r"^[A-Za-z0-9+/]*={0,2}$",
        description="A small picture file (JPEG, PNG, WebP) in base64.",
    )
    like: Span | None = None
    leave_out: list[Sentence] = Field([], max_length=8, description="What is not to be seen.")
    then: Sentence | None = Field(None, description="What happens afterwards in the same video.")
    top: int = Field(10, ge=1, le=LIMITS.top, strict=True)


class Playback(BaseModel):
    """How the file is shown in a browser that cannot play it."""

    how: str = Field(description="Whether pictures are 'copied', or 'encoded' again.")
    start: float = Field(description="The second at which it starts.")
    address: str


class Folder(BaseModel):
    folder: str
    videos: int


class FileNote(BaseModel):
    name: str
    reason: str


class About(BaseModel):
    model_config = ConfigDict(extra="allow")
    path: str
    generation: int
    videos: int
    hours: float
    bytes: int
    model: dict[str, Any]
    folders: list[Folder]
    left_out: list[FileNote]
    partial: list[FileNote]
    copies: list[FileNote] = Field(description="Files with the same content as a video of the index.")
    manage: bool
    uploads: bool = Field(description="Whether files may be sent, by POST /api/uploads.")
    library: str | None = Field(description="The name of this library; null for all together.")
    libraries: list[str] = Field(description="The names of all libraries of the server, if it has several.")
    why_separate: str | None = Field(description="Why they are searched separately, if they are.")
    version: str


class Health(BaseModel):
    status: str
    token: bool = Field(description="Whether a token is required for the rest.")


class Paths(Order):
    paths: list[str] = Field(min_length=1, max_length=LIMITS.paths)
    fast: bool = Field(False, strict=True, description="Decode only key frames where they are dense enough.")
    workers: int | None = Field(None, ge=1, le=256, strict=True, description="Processes that decode.")


class Hearing(Order):
    workers: int | None = Field(None, ge=1, le=256, strict=True, description="Processes that recognise.")


class Sentences(Order):
    sentences: list[Sentence] = Field(min_length=1, max_length=LIMITS.sentences)


class Vectors(BaseModel):
    vectors: list[list[float]] = Field(description="One of length 1 for each sentence.")
    read: list[str] = Field(description="What the model reads of each sentence.")


class Caption(Order):
    sentence: Sentence
    video: str = Field(min_length=1, max_length=4096, description="A path, or a file's name.")


class Captions(Order):
    rows: list[Caption] = Field(min_length=1)


class Calibrated(BaseModel):
    """What an index was calibrated on, and how it answers such sentences before and after."""

    sentences: int
    videos: int
    found_first: float
    mean_probability: float
    before: dict[str, float] | None
    after: dict[str, float] | None


class PathList(BaseModel):
    paths: list[str] = Field(description="Folders end with a slash.")


class Token(Order):
    token: str = Field(max_length=500)


class Copy(BaseModel):
    name: str
    same_as: str = Field(description="The video of the index with the same content.")


class Move(BaseModel):
    id: str
    before: str
    now: str


class Job(BaseModel):
    """How far adding videos is."""

    state: str = Field(default="idle", description="idle, running, done or failed.")
    what: str = ""
    words: str = Field(default="", description="For people: 12 of 40 videos, about 3 minutes left.")
    seconds_left: float | None = Field(default=None, description="Null as long as nobody can tell.")
    done: int = 0
    total: int = 0
    added: int = 0
    unchanged: int = 0
    moved: int = 0
    message: str = ""
    failures: list[FileNote] = []
    copies: list[Copy] = []
    moves: list[Move] = Field(default=[], description="Files recognised under a new path.")
    removed: list[str] = Field(
        default=[], description="Videos whose files are gone from a folder that is followed."
    )
    away: list[str] = Field(default=[], description="Videos on a disk that is not connected: kept.")
    heard: int = Field(default=0, description="Videos whose words were added.")
    passages: int = Field(default=0, description="Of these videos.")
    notes: list[FileNote] = Field(
        default=[], description="Videos with something to say about them, such as no sound."
    )


class NewUpload(Order):
    """A file that is going to be sent."""

    name: str = Field(min_length=1, max_length=1000, description="With its folders, if any: 2024/beach.mp4.")
    size: int = Field(ge=1, le=2**53, strict=True, description="Bytes.")
    sha256: str = Field(pattern="^[0-9a-f]{64}$", description="Of the whole file.")


class Upload(BaseModel):
    """A file that is being sent, or was."""

    id: str
    name: str = Field(description="Its name below the folder for uploads.")
    size: int
    offset: int = Field(description="Bytes received; the next piece begins here.")
    state: str = Field(description="sending, waiting, adding; at last added, there, same or skipped.")
    same_as: str | None
    reason: str | None
    found: bool = Field(description="Whether it is in the index, where its words may still be missing.")


class Uploads(BaseModel):
    uploads: list[Upload]
    largest: int = Field(description="Bytes that a file may have.")
    piece: int = Field(description="Bytes that a piece may have.")
    free: int = Field(description="Bytes that may still be sent.")
    seconds_left: float | None = Field(
        description="Until what has arrived is added; null as long as nobody can tell."
    )
