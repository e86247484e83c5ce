"""The documentation page of the API, /api, from openapi.json."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from starlette.responses import Response

router = APIRouter(include_in_schema=False)
METHODS = ("get", "post", "put", "patch", "delete")
HEAD = """<!doctype html>
<html lang="en">
<head>
  <meta charset="utf-8">
  <meta name="viewport" content="width=device-width, initial-scale=1">
  <meta name="color-scheme" content="light dark">
  <meta name="robots" content="noindex">
  <title>API · Holmes</title>
  <link rel="icon" href="static/icon.svg" type="image/svg+xml">
  <link rel="stylesheet" href="static/page.css">
  <script src="static/theme.js"></script>
</head>
<body>
  <header class="top">
    <a class="brand" href="./">
      <img src="static/icon.svg" alt="" width="28" height="28"><span>Holmes</span></a>
    <nav aria-label="Pages"><a href="library">Library</a></nav>
  </header>
  <main class="api">
    <h1>API</h1>
"""
INTRODUCTION = """
    <p>Every answer is JSON, every error <code>{{"error": "one line"}}</code> with its status.
    After 429 and 503, wait as many seconds as <code>Retry-After</code> says.
    A server with a token takes it as <code>Authorization: Bearer …</code>.
    <a href="api/openapi.json">openapi.json</a> describes the same for programs.</p>
    <pre><code>curl '{here}api/search?q=a+dog+runs&amp;top=3'</code></pre>
    <pre><code>import holmes
answer = holmes.connect("{here}").search("a dog runs", top=3)</code></pre>
"""


@router.api_route("/api", methods=["GET", "HEAD"])
async def api_page(request: Request) -> Response:
    content = "".join(page_of(request.app, str(request.base_url)))
    headers = {"cache-control": "no-cache", "vary": "accept"}
    return Response(content, media_type="text/html; charset=utf-8", headers=headers)


def page_of(app: FastAPI, here: str) -> Iterator[str]:
    """The page, part by part; `here` is the address of the server."""
    described = app.openapi()
    yield HEAD + INTRODUCTION.format(here=escape(here))
    by_tag: dict[str, list[tuple[str, str, dict[str, Any]]]] = {}
    for path, item in described["paths"].items():
        for method in METHODS:
            if method in item:
                by_tag.setdefault(item[method].get("tags", ["other"])[0], []).append(
                    (method, path, item[method])
                )
    for tag, operations in by_tag.items():
        yield f"<section><h2>{escape(tag.capitalize())}</h2>"
        for method, path, operation in operations:
            yield from _operation(method, path, operation, described["components"]["schemas"])
        yield "</section>"
    yield "</main></body></html>"


def _operation(method: str, path: str, operation: dict[str, Any], schemas: dict[str, Any]) -> Iterator[str]:
    yield f"<details class='operation'><summary><b>{method.upper()}</b> <code>{escape(path)}</code>"
    yield f"<span>{escape(operation.get('summary', ''))}</span></summary>"
    if operation.get("description"):
        yield f"<p>{escape(operation['description'])}</p>"
    taken = [
        (each["name"], each["schema"], each.get("required"), each) for each in operation.get("parameters", ())
    ]
    yield from _table("Takes", taken, schemas)
    for kind, content in operation.get("requestBody", {}).get("content", {}).items():
        yield from _table("Body", _fields(content.get("schema", {}), schemas), schemas, kind)
    for kind, content in operation["responses"].get("200", {}).get("content", {}).items():
        yield from _table("Gives", _fields(content.get("schema", {}), schemas), schemas, kind)
    yield "</details>"


Field = tuple[str, dict[str, Any], Any, dict[str, Any]]


def _fields(schema: dict[str, Any], schemas: dict[str, Any]) -> list[Field]:
    model = schemas.get(schema.get("$ref", "").rsplit("/", 1)[-1], schema)
    needed = model.get("required", ())
    return [(name, each, name in needed, each) for name, each in model.get("properties", {}).items()]


def _table(title: str, fields: list[Field], schemas: dict[str, Any], kind: str = "") -> Iterator[str]:
    if not fields:
        yield f"<h3>{title} <small>{escape(kind)}</small></h3>" if kind else ""
        return
    yield f"<h3>{title}</h3><table><tbody>"
    for name, schema, required, described in fields:
        words = described.get("description") or schema.get("description", "")
        need = " <small>required</small>" if required and title != "Gives" else ""
        yield f"<tr><th scope='row'><code>{escape(name)}</code>{need}</th>"
        yield f"<td>{escape(_kind(schema))}</td><td>{escape(words)}</td></tr>"
    yield "</tbody></table>"


def _kind(schema: dict[str, Any]) -> str:
    """What a value is, in a few words: number, list of Hit, one of a, b; with its bounds."""
    if "$ref" in schema:
        return str(schema["$ref"]).rsplit("/", 1)[-1]
    if "anyOf" in schema:
        return " or ".join(_kind(each) for each in schema["anyOf"])
    if "enum" in schema:
        return "one of " + ", ".join(str(each) for each in schema["enum"] if each != "")
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    least, most = schema.get("minimum"), schema.get("maximum")
    bounds = "" if least is None or most is None else f", {least:,.12g} to {most:,.12g}"
    return str(schema.get("format") or schema.get("type", "anything")) + bounds
