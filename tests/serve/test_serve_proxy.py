"""Behind a real proxy, nginx with deploy/nginx.conf: HTTPS, a subpath, uploads, ranges, origins."""

from __future__ import annotations

import json
import re
import shutil
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any

import pytest
import typer

import holmes
from browser import chromium, launched, serving, until
from holmes.serve import jobs
from holmes.serve.settings import ServeSettings, TrustedProxies
from serve_fakes import FILMS, PLENTY, FakeDiagnose, build, open_fake

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
TOKEN = "sixteen characters or more"
NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
needs_nginx = pytest.mark.skipif(NGINX is None, reason="no nginx: the proxy is not tested")
FILM = bytes(range(256)) * 8000


@contextmanager
def proxy(folder: Path, port: int) -> Iterator[int]:
    """nginx as deploy/nginx.conf sets it up, in front of the server at `port`; gives its own port."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        own = free.getsockname()[1]
    names = ["-subj", "/CN=films.lan", "-addext", "subjectAltName=DNS:films.lan,DNS:localhost,IP:127.0.0.1"]
    made = ["-newkey", "rsa:2048", "-nodes", "-keyout", folder / "key.pem", "-out", folder / "cert.pem"]
    subprocess.run(["openssl", "req", "-x509", "-days", "2", *names, *made], check=True, capture_output=True)
    text = (DEPLOY / "nginx.conf").read_text()
    for before, after in (
        ("listen 443 ssl", f"listen 127.0.0.1:{own} ssl"),
        ("/etc/ssl/films.lan.crt", f"{folder}/cert.pem"),
        ("/etc/ssl/films.lan.key", f"{folder}/key.pem"),
        ("http://127.0.0.1:8000/", f"http://127.0.0.1:{port}/"),
    ):
        assert text.count(before) >= 1, before
        text = text.replace(before, after)
    places = "".join(
        f"{kind}_temp_path {folder}/{kind};\n"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    log = f"error_log {folder}/error.log;\n"
    whole = f"pid {folder}/pid;\n{log}events {{}}\nhttp {{\naccess_log off;\n{places}{text}}}\n"
    (folder / "nginx.conf").write_text(whole)
    command = [str(NGINX), "-e", f"{folder}/error.log", "-c", f"{folder}/nginx.conf", "-g", "daemon off;"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE)
    try:
        for _ in range(200):
            with socket.socket() as trial:
                if trial.connect_ex(("127.0.0.1", own)) == 0:
                    break
            assert process.poll() is None, process.communicate()[1].decode()
            time.sleep(0.05)
        yield own
    finally:
        process.terminate()
        process.communicate(timeout=20)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, Path]]:
    """The port of the proxy, and the folder of everything behind it."""
    folder = tmp_path_factory.mktemp("proxy")
    build(folder)
    settings = ServeSettings(
        token=TOKEN,
        names=("films.lan",),
        proxies=("127.0.0.1",),
        uploads=folder / "in",
        limits=replace(PLENTY, spare=0),
    )
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(jobs, "TARGET", "quick_child:start")
        index = open_fake(folder / "index", monkeypatch, FakeDiagnose())
        with serving(index, settings) as address, proxy(folder, int(address.rpartition(":")[2])) as port:
            yield port, folder


def ask(site: tuple[int, Path], method: str, path: str, body: Any = None, **headers: str) -> Any:
    """A request as a browser at https://films.lan sends it."""
    context = ssl.create_default_context(cafile=str(site[1] / "cert.pem"))
    connection = HTTPSConnection("127.0.0.1", site[0], context=context, timeout=60)
    sent = {"host": "films.lan", "authorization": f"Bearer {TOKEN}"} | {
        name.replace("_", "-"): value for name, value in headers.items()
    }
    content = json.dumps(body) if body is not None else None
    connection.request(method, path, content, sent | {"content-type": "application/json"})
    response = connection.getresponse()
    response.content = response.read()  # type: ignore[attr-defined]
    connection.close()
    return response


@needs_nginx
def test_the_page_works_below_a_path(site: tuple[int, Path]) -> None:
    moved = ask(site, "GET", "/films")
    assert moved.status == 308 and moved.headers["location"].endswith("/films/")
    assert b'src="static/main.js"' in ask(site, "GET", "/films/").content
    found = json.loads(ask(site, "GET", "/films/api/search?q=dog+runs+beach").content)
    assert found["hits"][0]["title"] == "coast.mp4"
    assert ask(site, "GET", "/films/api/index", authorization="").status == 401
    assert ask(site, "GET", "/films/api/health", host="elsewhere.example").status == 421


@needs_nginx
def test_ranges_pass_the_proxy(site: tuple[int, Path]) -> None:
    hit = json.loads(ask(site, "GET", "/films/api/search?q=dog+runs+beach").content)["hits"][0]
    path, file = f"/films/api/videos/{hit['id']}/stream", Path(hit["name"]).read_bytes()
    part = ask(site, "GET", path, range="bytes=100-199")
    assert part.status == 206 and part.content == file[100:200]
    assert part.headers["content-range"] == f"bytes 100-199/{len(file)}"
    assert ask(site, "GET", path).content == file
    assert ask(site, "GET", path, range=f"bytes={len(file)}-").status == 416


@needs_nginx
@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("https://films.lan", 200),
        ("https://films.lan:443", 200),
        ("https://films.lan:8443", 403),
        ("https://elsewhere.example", 403),
    ],
)
def test_origins_are_compared_behind_the_proxy(site: tuple[int, Path], origin: str, status: int) -> None:
    for host in ("films.lan", "films.lan:443"):
        body = {"sentences": ["dog"]}
        assert ask(site, "POST", "/films/api/search", body, origin=origin, host=host).status == status


@needs_nginx
def test_files_are_sent_through_the_proxy(site: tuple[int, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(site[1] / "cert.pem"))
    (site[1] / "film.mp4").write_bytes(FILM)
    remote = holmes.connect(f"https://localhost:{site[0]}/films", token=TOKEN)
    assert remote.upload(site[1] / "film.mp4").added == 1
    assert (site[1] / "in" / "film.mp4").read_bytes() == FILM


@needs_nginx
@pytest.mark.skipif(chromium() is None, reason="no chromium: the page is not tested")
def test_a_browser_searches_and_plays_below_a_path(site: tuple[int, Path]) -> None:
    with launched() as browser:
        page = browser.new_context(
            base_url=f"https://localhost:{site[0]}", ignore_https_errors=True
        ).new_page()
        failed: list[str] = []
        page.on("response", lambda answer: failed.append(answer.url) if answer.status >= 400 else None)
        page.goto(f"/films/#token={TOKEN.replace(' ', '%20')}")
        page.fill("#q", "dog runs beach")
        page.wait_for_selector(".card h3 >> text=coast.mp4")
        page.wait_for_url(re.compile(r"/films/\?q=dog"))
        until(page, "document.querySelector('.card img')?.naturalWidth > 0")
        page.get_by_role("link", name="Library", exact=True).click()
        page.wait_for_url("**/films/library")
        page.wait_for_selector("text=kitchen.mkv")
        page.get_by_role("button", name="Add videos").click()
        page.wait_for_selector("dialog >> text=Drop videos")
        assert failed == []


def test_only_a_trusted_proxy_says_who_asks() -> None:
    proxies = TrustedProxies(["127.0.0.1", "10.0.0.0/8"])
    for peer, forwarded, client in (
        ("127.0.0.1", "203.0.113.9", "203.0.113.9"),
        ("127.0.0.1", "198.51.100.1, 203.0.113.9", "203.0.113.9"),  # what the client claims does not count
        ("127.0.0.1", "203.0.113.9, 10.1.2.3", "203.0.113.9"),  # a proxy behind another
        ("127.0.0.1", "", "127.0.0.1"),
        ("127.0.0.1", "not an address", "127.0.0.1"),
        ("127.0.0.1", "203.0.113.9, x", "127.0.0.1"),
        ("203.0.113.7", "198.51.100.1", "203.0.113.7"),  # no proxy of ours
    ):
        assert proxies.client(peer, forwarded) == client


@needs_nginx
def test_clients_behind_the_proxy_have_limits_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(tmp_path, {"beach/coast.mp4": FILMS["beach/coast.mp4"]})
    limits = replace(PLENTY, rate=0.001, burst=5)
    settings = ServeSettings(names=("films.lan",), proxies=("127.0.0.0/8",), limits=limits)
    with (
        serving(open_fake(tmp_path / "index", monkeypatch), settings) as address,
        proxy(tmp_path, int(address.rpartition(":")[2])) as port,
    ):
        there = (port, tmp_path)

        def statuses(client: str) -> list[int]:
            # nginx appends the peer, 127.0.0.1, which is trusted: the address before it is the client's.
            return [ask(there, "GET", "/films/api/health", x_forwarded_for=client).status for _ in range(7)]

        assert statuses("203.0.113.1") == [200] * 5 + [429] * 2
        assert statuses("203.0.113.2") == [200] * 5 + [429] * 2


def test_the_compose_file_starts_what_exists() -> None:
    yaml = pytest.importorskip("yaml")
    from holmes.cli.main import app

    service = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]["holmes"]
    program, command, *words = service["command"].split()
    assert (program, command) == ("holmes", "serve")
    given = typer.main.get_command(app).commands["serve"].make_context("serve", words).params  # type: ignore[attr-defined]
    assert service["image"] == f"holmes:{holmes.__version__}" and service["read_only"]
    mounted = {volume.rpartition(":")[2] for volume in service["volumes"]}
    image = (DEPLOY / "Containerfile").read_text()
    assert mounted == set(re.findall(r"^VOLUME (.*)$", image, re.MULTILINE)[0].split())
    assert given["index"] == ["/index"] and str(given["uploads"]).startswith("/videos/")
    TrustedProxies(given["proxy"])


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd: its unit is not verified")
def test_the_unit_is_one_that_systemd_takes(tmp_path: Path) -> None:
    from holmes.cli.main import app

    text = (DEPLOY / "holmes.service").read_text()
    (start,) = re.findall(r"^ExecStart=\S+ serve (.*)$", text, re.MULTILINE)
    typer.main.get_command(app).commands["serve"].make_context("serve", start.split())  # type: ignore[attr-defined]
    unit = tmp_path / "holmes.service"
    unit.write_text(text.replace("/usr/local/lib/holmes/bin/holmes", sys.executable))
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True)
    said = [line for line in (done.stdout + done.stderr).splitlines() if "holmes.service" in line]
    assert done.returncode == 0 and said == []
