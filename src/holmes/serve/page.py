"""Serve the files of the page, and no others."""

from __future__ import annotations

import hashlib
from importlib.resources import files

from fastapi import APIRouter, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".webmanifest": "application/manifest+json",
}
# One style sheet a topic, in this order: of two rules that are equally specific, the later one holds.
STYLES = (
    "base",
    "header",
    "filters",
    "diagnosis",
    "card",
    "player",
    "start",
    "dialog",
    "library",
    "api",
    "screens",
    "words",
    "uploads",
    "cut",
)
PACKAGE = files("holmes.serve")
ASSETS = {
    file.name: (file.read_bytes(), kind)
    for file in PACKAGE.joinpath("static").iterdir()
    for suffix, kind in TYPES.items()
    if file.name.endswith(suffix)
}
# The browser gets them as one file.
SHEETS = [PACKAGE.joinpath("styles", f"{name}.css").read_bytes() for name in STYLES]
ASSETS["page.css"] = b"\n".join(SHEETS), TYPES[".css"]
ETAGS = {name: f'"{hashlib.sha256(content).hexdigest()[:20]}"' for name, (content, _) in ASSETS.items()}

router = APIRouter(include_in_schema=False)


@router.api_route("/", methods=["GET", "HEAD"])
@router.api_route("/library", methods=["GET", "HEAD"])
@router.api_route("/watch", methods=["GET", "HEAD"])
async def page(request: Request) -> Response:
    return asset(request, "index.html")


@router.get("/favicon.ico")
async def icon(request: Request) -> Response:
    return asset(request, "icon.svg")


@router.api_route("/static/{name}", methods=["GET", "HEAD"])
async def static(request: Request, name: str) -> Response:
    return asset(request, name)


def wants_page(request: Request) -> bool:
    """Whether a person's browser goes to an address, rather than a program to the API."""
    asked = request.url.path
    return not asked.startswith("/api/") and "text/html" in request.headers.get("accept", "")


def no_such_page(request: Request) -> Response:
    content, kind = ASSETS["missing.html"]
    up = "../" * (request.url.path.count("/") - 1)  # the page may be below the address of a proxy
    content = content.replace(b"{up}", up.encode())
    return Response(content, 404, {"cache-control": "no-cache", "vary": "accept"}, media_type=kind)


def asset(request: Request, name: str) -> Response:
    if name not in ASSETS:
        raise HTTPException(404, "there is no such page")
    headers = {"etag": ETAGS[name], "cache-control": "no-cache"}
    if request.headers.get("if-none-match") == ETAGS[name]:
        return Response(status_code=304, headers=headers)
    content, kind = ASSETS[name]
    return Response(content, media_type=kind, headers=headers)
