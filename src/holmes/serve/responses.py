"""Helpers for routes: JSON that accepts any file name, and errors with a reason."""

from __future__ import annotations

import json
import math
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from holmes.errors import HolmesError
from holmes.serve.catalogue import NotFoundError
from holmes.serve.jobs import NotAllowedError
from holmes.serve.models import Problem
from holmes.serve.page import no_such_page, wants_page
from holmes.serve.state import BadRequestError, ServerState, TooManyError
from holmes.serve.turns import BusyError
from holmes.serve.upload_folder import NoSpaceError
from holmes.serve.uploads import NotNextError, TooLargeError

STATUS: dict[type[HolmesError], int] = {
    NotFoundError: 404,
    BadRequestError: 422,
    BusyError: 503,
    NotAllowedError: 403,
    TooManyError: 429,
    NotNextError: 412,
    TooLargeError: 413,
    NoSpaceError: 507,
}


class Json(Response):
    """JSON in ASCII: names that are not valid text pass as escapes, numbers that are not finite as null."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        try:
            return json.dumps(content, allow_nan=False).encode()
        except ValueError:
            return json.dumps(_finite(content), allow_nan=False).encode()


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def documented(model: Any, *statuses: int, **more: Any) -> dict[str, Any]:
    """For a route's decorator: what it gives, and the errors that it may give instead."""
    codes = (400, 401, 403, 409, 421, 422, 429, *statuses)
    responses: dict[int | str, Any] = {code: {"model": Problem} for code in codes}
    responses[200] = {"model": model} if model is not None else more.pop("content")
    return {"response_model": None, "responses": responses, **more}


def state_of(request: Request) -> ServerState:
    state: ServerState = request.app.state.server
    return state


def methods_of(request: Request) -> set[str]:
    """Every method that some route of this path takes."""
    found = (
        route.methods or set()
        for route in request.app.state.routes
        if route.path_regex.match(request.url.path)
    )
    return set[str]().union(*found)


def add_error_handlers(app: FastAPI) -> None:
    def problem(status: int, reason: str, headers: Any = None) -> Json:
        return Json({"error": reason}, status, headers)

    @app.exception_handler(HolmesError)
    async def ours(request: Request, error: HolmesError) -> Response:
        status = next((STATUS[kind] for kind in type(error).__mro__ if kind in STATUS), 409)
        wait = {503: 1, 429: math.ceil(getattr(error, "wait", 1))}.get(status)
        return problem(status, str(error), {"retry-after": str(wait)} if wait else None)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][1:]) or str(first["loc"][0])
        return problem(422, f"{where}: {first['msg'][:1].lower()}{first['msg'][1:]}.")

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> Response:
        if error.status_code == 404 and wants_page(request):
            return no_such_page(request)
        headers = {name.lower(): value for name, value in (error.headers or {}).items()}
        if error.status_code == 405:
            headers["allow"] = ", ".join(sorted(methods_of(request)))
        return problem(error.status_code, f"{str(error.detail).lower()}.", headers)

    @app.exception_handler(Exception)
    async def unexpected(request: Request, error: Exception) -> Response:
        return problem(500, "something went wrong in the server; its log says more.")
