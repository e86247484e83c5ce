"""Routes for uploads: announce a file, then send its pieces."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from holmes.errors import HolmesError
from holmes.serve import models
from holmes.serve.guard import WHOLE_NUMBER, client_of
from holmes.serve.jobs import NotAllowedError
from holmes.serve.responses import Json, documented
from holmes.serve.uploads import Upload, Uploads

router = APIRouter(tags=["uploads"])
UploadId = Annotated[str, Path(pattern="^[0-9a-f]{32}$", description="As POST /api/uploads gives it.")]
BYTES = {
    "requestBody": {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}


@router.get("/api/uploads", **documented(models.Uploads), summary="Files that are being sent, and limits")
async def uploads(request: Request) -> Response:
    return Json(uploads_of(request).to_json())


@router.post(
    "/api/uploads",
    **documented(models.Upload, 413, 503, 507),
    summary="Announce a file, or ask where to continue it",
)
async def announce(request: Request, given: models.NewUpload) -> Response:
    receiver = uploads_of(request)
    upload = await receiver.announce(given.name, given.size, given.sha256, client_of(request.scope))
    return upload_json(receiver, upload)


@router.get("/api/uploads/{id}", **documented(models.Upload, 404), summary="What became of a file")
async def upload(request: Request, id: UploadId) -> Response:
    receiver = uploads_of(request)
    return upload_json(receiver, receiver[id])


@router.patch(
    "/api/uploads/{id}",
    **documented(models.Upload, 404, 412, 413, 503, 507, openapi_extra=BYTES),
    summary="Send the next piece of a file",
)
async def receive(
    request: Request,
    id: UploadId,
    offset: Annotated[int, Query(ge=0, le=2**53, description="Where it begins.")],
) -> Response:
    receiver = uploads_of(request)
    given = request.headers.get("content-length")
    length = int(given) if given and WHOLE_NUMBER.fullmatch(given) else None
    try:
        upload = await receiver.receive(id, offset, length, request.stream(), client_of(request.scope))
    except ClientDisconnect:
        raise HolmesError("the connection was lost; what arrived is kept.") from None
    return upload_json(receiver, upload)


@router.delete("/api/uploads/{id}", **documented(models.Upload, 404), summary="Drop an unfinished file")
async def cancel(request: Request, id: UploadId) -> Response:
    receiver = uploads_of(request)
    return upload_json(receiver, await receiver.cancel(id))


def uploads_of(request: Request) -> Uploads:
    receiver: Uploads | None = request.app.state.uploads
    if receiver is None:
        raise NotAllowedError("this server takes no files; start it with --uploads FOLDER.")
    return receiver


def upload_json(receiver: Uploads, upload: Upload) -> Json:
    return Json(receiver.told(upload))
