"""More than one sentence in, hits out: /api/search/by, with a picture, what to leave out, what comes next."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from functools import partial

from fastapi import APIRouter, Request
from starlette.responses import Response

from holmes.index.answer.answers import Answer as Found
from holmes.serve.batching import Reply
from holmes.serve.catalogue import NotFoundError
from holmes.serve.decoding import DecodeError
from holmes.serve.guard import caller_of
from holmes.serve.models import Answer, ComposedQuestion
from holmes.serve.responses import Json, documented, state_of
from holmes.serve.routes_search import answered, named
from holmes.serve.state import BadRequestError

router = APIRouter(tags=["search"])


@router.post(
    "/api/search/by",
    **documented(Answer, 404, 413, 503),
    summary="The best videos for a picture, a moment, or more than one sentence",
)
async def search_by(request: Request, asked: ComposedQuestion) -> Response:
    state, began = state_of(request), time.perf_counter()
    caller = caller_of(request.scope)
    sentences = [each for each in (asked.sentence, asked.then, *asked.leave_out) if each is not None]
    state.charge(sentences, caller)
    if asked.sentence is None and asked.image is None and asked.like is None:
        raise BadRequestError("name what to look for: a sentence, an image or a moment of a video.")
    if asked.image is not None and asked.like is not None:
        raise BadRequestError("name an image or a moment of a video, not both.")
    names = await asyncio.to_thread(named, state, asked)
    like = None
    if asked.like is not None:
        video = asked.like.video
        with suppress(NotFoundError):
            video = state.catalogue[video].name
        like = f"{video}@{asked.like.start:.3f}-{asked.like.end:.3f}"
    image = None
    if asked.image is not None:
        try:
            image = await state.decoders.upload(asked.image, caller)
        except DecodeError as error:
            raise BadRequestError(f"image: {error}") from None
    work = partial(
        state.index.search_by,
        asked.sentence,
        asked.top,
        image=image,
        like=like,
        leave_out=asked.leave_out,
        then=asked.then,
        filter=names,
    )
    found: Found = await state.batcher.do(work, caller, sentences)
    return Json(answered(state, Reply(found), began))
