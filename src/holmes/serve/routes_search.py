"""/api/search for sentences; /api/search/by for pictures, moments and several sentences."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import Response

from holmes.index.answer.answers import Answer as Found
from holmes.media.backbones.base import Image
from holmes.serve.batching import Reply, ServedQuestion
from holmes.serve.catalogue import Filter, NotFoundError
from holmes.serve.decoding import DecodeError
from holmes.serve.guard import caller_of
from holmes.serve.models import (
    ID,
    LIMITS,
    NOT_BLANK,
    Answer,
    Answers,
    ComposedQuestion,
    Day,
    Examples,
    Questions,
    Sentences,
    Span,
    Vectors,
)
from holmes.serve.responses import Json, documented, state_of
from holmes.serve.state import BadRequestError, ServerState
from holmes.serve.streams import disconnected
from holmes.serve.turns import BusyError, Caller

router = APIRouter(tags=["search"])
Result = TypeVar("Result")

SENTENCE = Query(
    min_length=1,
    max_length=LIMITS.query,
    json_schema_extra={"pattern": NOT_BLANK},
    description="What happens in the moment.",
)
Sentence = Annotated[str, SENTENCE]
OptionalSentence = Annotated[str | None, SENTENCE]
LikeId = Annotated[
    str | None, Query(pattern=ID, description="In place of q: the id of a video, looked at `t` seconds in.")
]
Moment = Annotated[float, Query(ge=0, le=1e7, description="Seconds into the video that `like` names.")]
Top = Annotated[int, Query(ge=1, le=LIMITS.top, description="How many videos.")]


async def filter_of(  # a plain function would be called in a thread
    folder: Annotated[
        str | None, Query(max_length=4096, description="Only videos below this folder.")
    ] = None,
    after: Annotated[Day | None, Query(description="Only files changed on this day or later.")] = None,
    before: Annotated[Day | None, Query(description="Only files changed on this day or earlier.")] = None,
    shortest: Annotated[
        float | None, Query(ge=0, le=1e9, description="Only videos of at least so many seconds.")
    ] = None,
    longest: Annotated[
        float | None, Query(ge=0, le=1e9, description="Only videos of at most so many seconds.")
    ] = None,
) -> Filter:
    return Filter(folder or None, after, before, shortest, longest)


Filters = Annotated[Filter, Depends(filter_of)]


@router.get("/api/search", **documented(Answer, 503), summary="The best videos for one sentence")
async def search(
    request: Request,
    q: Sentence,
    filter: Filters,
    top: Top = 10,
    timelines: Annotated[bool, Query(description="With the similarity along each video.")] = False,
) -> Response:
    state, began = state_of(request), time.perf_counter()
    question = ServedQuestion(q, top, timelines=timelines)
    return Json(answer_json(state, await ask_one(state, request, question, filter), began))


@router.post("/api/search", **documented(Answers, 404, 413, 503), summary="As for one sentence, for several")
async def search_many(request: Request, questions: Questions) -> Response:
    state, began = state_of(request), time.perf_counter()
    names = await asyncio.to_thread(searched_videos, state, questions)
    each_question = [
        ServedQuestion(
            sentence,
            questions.top,
            names,
            questions.timelines,
            abstain_below=questions.abstain_below,
            not_here_below=questions.not_here_below,
            expect_missing=questions.expect_missing,
        )
        for sentence in questions.sentences
    ]
    replies = await unless_gone(request, state.ask(each_question, caller_of(request.scope)))
    return Json({"answers": [answer_json(state, reply, began) for reply in replies]})


@router.post(
    "/api/search/by",
    **documented(Answer, 404, 413, 503),
    summary="The best videos for a picture, a moment, or more than one sentence",
)
async def search_by(request: Request, given: ComposedQuestion) -> Response:
    state, began = state_of(request), time.perf_counter()
    caller = caller_of(request.scope)
    sentences = [each for each in (given.sentence, given.then, *given.leave_out) if each is not None]
    state.charge(sentences, caller)
    if given.sentence is None and given.image is None and given.like is None:
        raise BadRequestError("name what to look for: a sentence, an image or a moment of a video.")
    if given.image is not None and given.like is not None:
        raise BadRequestError("name an image or a moment of a video, not both.")
    names = await asyncio.to_thread(searched_videos, state, given)
    like = None if given.like is None else span_of(state, given.like)
    image = None if given.image is None else await picture_of(state, given.image, caller)
    work = partial(
        state.index.search_by,
        given.sentence,
        given.top,
        image=image,
        like=like,
        leave_out=given.leave_out,
        then=given.then,
        filter=names,
    )
    found: Found = await state.batcher.do(work, caller, sentences)
    return Json(answer_json(state, Reply(found), began))


def span_of(state: ServerState, span: Span) -> str:
    """A moment as `search_by` takes it: its video may be given by its id."""
    with suppress(NotFoundError):
        span = span.model_copy(update={"video": state.catalogue[span.video].name})
    return f"{span.video}@{span.start:.3f}-{span.end:.3f}"


async def picture_of(state: ServerState, content: str, caller: Caller) -> Image:
    try:
        return await state.decoders.upload(content, caller)
    except DecodeError as error:
        raise BadRequestError(f"image: {error}") from None


@router.post(
    "/api/encode", **documented(Vectors, 413, 503), summary="The vectors that sentences are compared by"
)
async def encode(request: Request, given: Sentences) -> Response:
    state, caller = state_of(request), caller_of(request.scope)
    state.charge(given.sentences, caller)
    vectors, read = await unless_gone(request, state.batcher.encode(given.sentences, caller))
    return Json({"vectors": vectors, "read": read})


async def unless_gone(request: Request, work: Coroutine[Any, Any, Result]) -> Result:
    """The result; the work is dropped when the client goes away, so that nobody waits for its sentences."""
    working, gone = asyncio.create_task(work), asyncio.create_task(disconnected(request.receive))
    try:
        await asyncio.wait((working, gone), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise BusyError("the client went away before it was answered.")
        return working.result()
    finally:
        working.cancel()
        gone.cancel()


def searched_videos(state: ServerState, given: Questions | ComposedQuestion) -> frozenset[str] | None:
    """The videos that are searched; None for all."""
    found = state.catalogue.names(
        Filter(given.folder or None, given.after, given.before, given.shortest, given.longest)
    )
    wanted = [] if found is None else [found]
    if given.filter is not None:
        wanted.append(state.catalogue.fitting(given.filter))
    if given.names is not None:
        wanted.append(frozenset(given.names))
    return frozenset.intersection(*wanted) if wanted else None


async def ask_one(state: ServerState, request: Request, question: ServedQuestion, filter: Filter) -> Reply:
    """The reply to one question about the videos that fit a filter, from this library or another one."""
    if filter != Filter():
        names = await asyncio.to_thread(partial(state.catalogue.names, filter))
        question = replace(question, names=names)
    (reply,) = await state.ask([question], caller_of(request.scope))
    return reply


async def ask_like(request: Request, id: str, time: float, top: int, timelines: bool = False) -> Reply:
    """Videos that look like one does at a time."""
    state = state_of(request)
    name = state.catalogue[id].name

    def work() -> Reply:
        found = state.index.like(name, time, top)
        names = [hit.video for hit in found.hits] if timelines else []
        return Reply(found, tuple(state.index.timelines_like(name, time, names)) if names else ())

    return await state.batcher.do(work, caller_of(request.scope))


@router.get("/api/examples", **documented(Examples), summary="Sentences to begin with")
async def examples(request: Request) -> Response:
    return Json({"examples": await state_of(request).examples()})


def answer_json(state: ServerState, reply: Reply, began: float) -> dict[str, Any]:
    plain: dict[str, Any] = {**replace(reply.answer, hits=()).to_dict()}  # the hits are described below
    plain["diagnosis"]["group"] = [hit.video for hit in reply.answer.group]
    return {
        "missing": [],
        **plain,
        "hits": state.described(reply.answer.hits, reply.timelines),
        "read": reply.read,
        "generation": state.about.generation,
        "milliseconds": round(1e3 * (time.perf_counter() - began), 2),
    }
