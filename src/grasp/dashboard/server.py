"""The server of the live page: the standard library's, GET only, on loopback unless told otherwise.

A browser names a run by its id and a seed by its number. Nothing that it sends is ever used as a path.
"""

import contextlib
import gzip
import hashlib
import importlib.resources
import json
import re
import socket
import sys
import threading
import urllib.parse
import webbrowser
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

from grasp.dashboard import views
from grasp.dashboard.monitor import Entry, Watch
from grasp.dashboard.replay_queue import Replays, Wish
from grasp.types import GraspError

PORT = 8400
LOOPBACK = ("127.0.0.1", "localhost", "::1")
SCRIPTS = ("page", "list", "conflict", "replay", "charts", "cells", "dom")
ASSETS = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
    **{f"/{name}.js": (f"{name}.js", "text/javascript; charset=utf-8") for name in SCRIPTS},
}
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
FIRST_LOOK = 2.0
"""Seconds that the first request waits for the overview."""
MOST_CHOSEN = 500
"""Runs whose curves are sent at once."""
WORTH_PACKING = 2048


class Answer(NamedTuple):
    status: int
    kind: str
    body: bytes


class Refusal(Exception):
    """What cannot be answered: a status and one sentence."""

    def __init__(self, status: HTTPStatus, sentence: str):
        super().__init__(sentence)
        self.status, self.sentence = status, sentence


Query = dict[str, str]


def as_json(value: Any, status: int = 200) -> Answer:
    return Answer(status, "application/json", json.dumps(value, allow_nan=False, separators=(",", ":")).encode())


def overview(http: "Http", query: Query) -> Answer:
    http.watch.ready.wait(FIRST_LOOK)
    return as_json(views.overview(http.watch))


def curves(http: "Http", query: Query) -> Answer:
    """Of the runs that are there; one that was deleted since the page was shared is left out."""
    ids = list(dict.fromkeys(query.get("runs", "").split(",")))[:MOST_CHOSEN]
    http.watch.ask(*ids)
    return as_json(views.curves([http.watch.entries[name] for name in ids if name in http.watch.entries]))


def conflict(http: "Http", query: Query) -> Answer:
    entry = entry_of(http, query)
    return as_json(views.conflict(entry, seed_of(entry, query)))


def config(http: "Http", query: Query) -> Answer:
    return as_json(views.config(entry_of(http, query)))


def replay(http: "Http", query: Query) -> Answer:
    """The film of a checkpoint, or 202 while it is made."""
    entry = entry_of(http, query)
    seed = seed_of(entry, query)
    tail = entry.seeds[seed].tail
    checkpoint = whole(query, "checkpoint")
    if checkpoint not in tail.seen.scores:
        raise Refusal(
            HTTPStatus.NOT_FOUND, f"seed {seed} was not evaluated at {checkpoint} steps; choose a point of its curve"
        )
    film = http.replays.get(Wish(entry.found.path, seed, checkpoint, tail.generation))
    if film.state == "ready":
        return Answer(200, "image/gif", film.path.read_bytes())
    if film.state == "failed":
        raise Refusal(HTTPStatus.CONFLICT, film.sentence)
    return as_json({"state": film.state}, HTTPStatus.ACCEPTED)


ROUTES: dict[str, Callable[["Http", Query], Answer]] = {
    "/api/runs": overview,
    "/api/curves": curves,
    "/api/conflict": conflict,
    "/api/config": config,
    "/replay": replay,
}


def entry_of(http: "Http", query: Query) -> Entry:
    http.watch.ready.wait(FIRST_LOOK)
    entry = http.watch.entries.get(query.get("run", ""))
    if entry is None:
        raise Refusal(HTTPStatus.NOT_FOUND, "there is no such run; it may have been moved or deleted")
    return entry


def seed_of(entry: Entry, query: Query) -> int:
    seed = whole(query, "seed")
    if seed not in entry.seeds:
        known = ", ".join(map(str, entry.seeds)) or "none yet"
        raise Refusal(HTTPStatus.NOT_FOUND, f"this run has no seed {seed}; it has {known}")
    return seed


def whole(query: Query, name: str) -> int:
    text = query.get(name, "")
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise Refusal(HTTPStatus.BAD_REQUEST, f"{name} must be a whole number")
    return int(text)


class Http(ThreadingHTTPServer):
    """The socket and what its requests share."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], watch: Watch, replays: Replays):
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.watch, self.replays = watch, replays
        # A page elsewhere can point its own name at this machine, but its browser then sends that name.
        self.names = LOOPBACK if address[0] in LOOPBACK else None
        folder = importlib.resources.files("grasp.dashboard")
        self.assets = {url: Answer(200, kind, (folder / name).read_bytes()) for url, (name, kind) in ASSETS.items()}
        super().__init__(address, Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that goes away in the middle is no error."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    server: Http  # pyright: ignore[reportIncompatibleVariableOverride]
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "grasp", ""
    timeout = 60

    def do_GET(self) -> None:
        try:
            self._send(self._answer())
        except Refusal as refusal:
            self._send(as_json({"error": refusal.sentence}, refusal.status))
        except GraspError as mistake:
            self._send(as_json({"error": str(mistake)}, HTTPStatus.CONFLICT))
        except (BrokenPipeError, ConnectionResetError, TimeoutError):
            self.close_connection = True

    def _answer(self) -> Answer:
        self._check_sender()
        path, _, query = self.path.partition("?")
        if path in self.server.assets:
            return self.server.assets[path]
        if path not in ROUTES:
            raise Refusal(HTTPStatus.NOT_FOUND, "there is nothing here; the page is at /")
        if self.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
            raise Refusal(HTTPStatus.FORBIDDEN, "another site's page may not ask")
        self.server.watch.ask()
        return ROUTES[path](self.server, dict(urllib.parse.parse_qsl(query)))

    def _check_sender(self) -> None:
        host = re.sub(r":\d+$", "", self.headers.get("Host", "")).strip("[]").lower()
        if self.server.names is not None and host not in self.server.names:
            raise Refusal(HTTPStatus.FORBIDDEN, "ask for localhost; other names are refused unless --host was given")

    def _send(self, answer: Answer) -> None:
        body, more = answer.body, {}
        tag = f'"{hashlib.blake2s(body, digest_size=12).hexdigest()}"'
        status = answer.status
        if status == HTTPStatus.OK and self.headers.get("If-None-Match") == tag:
            status, body = HTTPStatus.NOT_MODIFIED, b""
        elif (
            len(body) > WORTH_PACKING
            and answer.kind != "image/gif"
            and "gzip" in self.headers.get("Accept-Encoding", "")
        ):
            body, more = gzip.compress(body, 1, mtime=0), {"Content-Encoding": "gzip"}
        self.send_response(status)
        described = {"Content-Type": answer.kind, "Content-Length": str(len(body)), "ETag": tag}
        for name, value in (HEADERS | described | more).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What the standard library refuses by itself, such as every method but GET, in our words."""
        self.close_connection = True
        self._send(as_json({"error": f"{message or HTTPStatus(code).phrase}"}, code))

    def log_message(self, format: str, *args: Any) -> None:
        """Nobody reads a line for every poll."""


class Server:
    """The live page over a directory: `with Server(directory) as server: ...` serves while inside."""

    def __init__(self, directory: str | Path, host: str = "127.0.0.1", port: int = PORT):
        self._watch = Watch(directory)
        self._replays = Replays()
        try:
            self._http = Http((host, port), self._watch, self._replays)
        except (OSError, OverflowError) as error:
            self._replays.close()
            raise GraspError(_excuse(host, port, error)) from None
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.1,), name="grasp-http", daemon=True)

    @property
    def url(self) -> str:
        host, port = self._http.server_address[:2]
        return f"http://{f'[{host}]' if ':' in str(host) else host}:{port}/"

    def __enter__(self) -> "Server":
        self._watch.start()
        self._watch.ask()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._watch.close()
        self._replays.close()


def _excuse(host: str, port: int, error: OSError | OverflowError) -> str:
    if isinstance(error, OverflowError) or not 0 <= port < 65536:
        return f"--port must lie between 0 and 65535, not {port}"
    if isinstance(error, socket.gaierror):
        return f"no address is called '{host}'; try --host 127.0.0.1"
    return f"cannot listen on {host}, port {port} ({error.strerror}); try --port {port + 1}"


def greeting(directory: str | Path, url: str, host: str) -> str:
    words = f"watching {directory} at {url} (Ctrl-C ends it)"
    warning = "everyone who can reach this machine can read these runs; there is no password"
    return words if host in LOOPBACK else f"{words}\n{warning}"


def serve(directory: str | Path, host: str = "127.0.0.1", port: int = PORT, open_browser: bool = False) -> None:
    """Serve the live page until Ctrl-C."""
    with Server(directory, host, port) as server:
        print(greeting(directory, server.url, host), flush=True)
        if open_browser:
            webbrowser.open(server.url)
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait()
