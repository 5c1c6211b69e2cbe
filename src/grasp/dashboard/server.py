"""The HTTP server of the live page: standard library, GET only, on loopback by default.

A browser names a run by its id and a seed by its number. Nothing that it sends is used as a path.
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
from grasp.dashboard.monitor import Monitor, RunEntry
from grasp.dashboard.replay_queue import ReplayQueue, Request
from grasp.types import GraspError

PORT = 8400
LOOPBACK = ("127.0.0.1", "localhost", "::1")
SCRIPTS = {
    "grasp.dashboard": ("page", "run_list", "curves", "conflict", "configuration", "replay", "dom"),
    "grasp.render": ("chart", "line_chart", "heat_map", "strip_chart"),
}
ASSETS = {
    "/": ("grasp.dashboard", "index.html", "text/html; charset=utf-8"),
    "/page.css": ("grasp.dashboard", "page.css", "text/css; charset=utf-8"),
    "/icon.svg": ("grasp.dashboard", "icon.svg", "image/svg+xml"),
    **{
        f"/{name}.js": (package, f"{name}.js", "text/javascript; charset=utf-8")
        for package, names in SCRIPTS.items()
        for name in names
    },
}
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
FIRST_WAIT = 2.0
"""Seconds that a request waits for the first list of runs."""
MOST_CURVES = 500
"""Runs in one response."""
COMPRESSED_FROM = 2048
"""Bytes."""


class Response(NamedTuple):
    status: int
    kind: str
    body: bytes


class HttpError(Exception):
    """A status and one sentence."""

    def __init__(self, status: HTTPStatus, sentence: str):
        super().__init__(sentence)
        self.status, self.sentence = status, sentence


Query = dict[str, str]


def as_json(value: Any, status: int = 200) -> Response:
    return Response(status, "application/json", json.dumps(value, allow_nan=False, separators=(",", ":")).encode())


def overview(http: "Http", query: Query) -> Response:
    http.monitor.ready.wait(FIRST_WAIT)
    return as_json(views.overview(http.monitor))


def curves(http: "Http", query: Query) -> Response:
    """Curves of the runs that exist; ids of deleted runs are ignored."""
    ids = list(dict.fromkeys(query.get("runs", "").split(",")))[:MOST_CURVES]
    http.monitor.request(*ids)
    return as_json(views.curves([http.monitor.entries[name] for name in ids if name in http.monitor.entries]))


def conflict(http: "Http", query: Query) -> Response:
    entry = entry_of(http, query)
    return as_json(views.conflict(entry, seed_of(entry, query)))


def config(http: "Http", query: Query) -> Response:
    return as_json(views.config(entry_of(http, query)))


def replay(http: "Http", query: Query) -> Response:
    """The film of a snapshot, or 202 while it is being rendered."""
    entry = entry_of(http, query)
    seed = seed_of(entry, query)
    tail = entry.seeds[seed].tail
    checkpoint = whole(query, "checkpoint")
    if checkpoint not in tail.content.scores:
        raise HttpError(
            HTTPStatus.NOT_FOUND, f"seed {seed} has no evaluation at {checkpoint} steps; select a point of its curve"
        )
    film = http.replays.get(Request(entry.found.path, seed, checkpoint, tail.generation))
    if film.state == "ready":
        return Response(200, "image/gif", film.path.read_bytes())
    if film.state == "failed":
        raise HttpError(HTTPStatus.CONFLICT, film.error)
    return as_json({"state": film.state}, HTTPStatus.ACCEPTED)


ROUTES: dict[str, Callable[["Http", Query], Response]] = {
    "/api/runs": overview,
    "/api/curves": curves,
    "/api/conflict": conflict,
    "/api/config": config,
    "/replay": replay,
}


def entry_of(http: "Http", query: Query) -> RunEntry:
    http.monitor.ready.wait(FIRST_WAIT)
    entry = http.monitor.entries.get(query.get("run", ""))
    if entry is None:
        raise HttpError(HTTPStatus.NOT_FOUND, "no such run; it may have been moved or deleted")
    return entry


def seed_of(entry: RunEntry, query: Query) -> int:
    seed = whole(query, "seed")
    if seed not in entry.seeds:
        known = ", ".join(map(str, entry.seeds)) or "none yet"
        raise HttpError(HTTPStatus.NOT_FOUND, f"this run has no seed {seed}; it has {known}")
    return seed


def whole(query: Query, name: str) -> int:
    text = query.get(name, "")
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise HttpError(HTTPStatus.BAD_REQUEST, f"{name} must be a whole number")
    return int(text)


class Http(ThreadingHTTPServer):
    """The listening socket, and the state that its requests share."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], monitor: Monitor, replays: ReplayQueue):
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.monitor, self.replays = monitor, replays
        # Against DNS rebinding: a foreign site can resolve its own name to this machine, but its page's requests then
        # carry that name as their host.
        self.names = LOOPBACK if address[0] in LOOPBACK else None
        self.assets = {
            url: Response(200, kind, (importlib.resources.files(package) / name).read_bytes())
            for url, (package, name, kind) in ASSETS.items()
        }
        super().__init__(address, Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that disconnects during a response is not an error."""
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
            self._send(self._respond())
        except HttpError as error:
            self._send(as_json({"error": error.sentence}, error.status))
        except GraspError as error:
            self._send(as_json({"error": str(error)}, HTTPStatus.CONFLICT))
        except (BrokenPipeError, ConnectionResetError, TimeoutError):
            self.close_connection = True

    def _respond(self) -> Response:
        self._check_host()
        path, _, query = self.path.partition("?")
        if path in self.server.assets:
            return self.server.assets[path]
        if path not in ROUTES:
            raise HttpError(HTTPStatus.NOT_FOUND, "not found; the page is at /")
        if self.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
            raise HttpError(HTTPStatus.FORBIDDEN, "requests from other sites are refused; open the page at /")
        self.server.monitor.request()
        return ROUTES[path](self.server, dict(urllib.parse.parse_qsl(query)))

    def _check_host(self) -> None:
        host = re.sub(r":\d+$", "", self.headers.get("Host", "")).strip("[]").lower()
        if self.server.names is not None and host not in self.server.names:
            raise HttpError(HTTPStatus.FORBIDDEN, "host name refused; use localhost, or start grasp watch with --host")

    def _send(self, response: Response) -> None:
        body, extra = response.body, {}
        tag = f'"{hashlib.blake2s(body, digest_size=12).hexdigest()}"'
        status = response.status
        if status == HTTPStatus.OK and self.headers.get("If-None-Match") == tag:
            status, body = HTTPStatus.NOT_MODIFIED, b""
        elif (
            len(body) > COMPRESSED_FROM
            and response.kind != "image/gif"
            and "gzip" in self.headers.get("Accept-Encoding", "")
        ):
            body, extra = gzip.compress(body, 1, mtime=0), {"Content-Encoding": "gzip"}
        self.send_response(status)
        described = {"Content-Type": response.kind, "Content-Length": str(len(body)), "ETag": tag}
        for name, value in (HEADERS | described | extra).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Errors of the standard library, such as every method but GET, as JSON."""
        self.close_connection = True
        self._send(as_json({"error": f"{message or HTTPStatus(code).phrase}"}, code))

    def log_message(self, format: str, *args: Any) -> None:
        """No line per poll."""


class Server:
    """The live page of a directory: `with Server(directory) as server: ...` serves it inside the block."""

    def __init__(self, directory: str | Path, host: str = "127.0.0.1", port: int = PORT):
        self._monitor = Monitor(directory)
        self._replays = ReplayQueue()
        try:
            self._http = Http((host, port), self._monitor, self._replays)
        except (OSError, OverflowError) as error:
            self._replays.close()
            raise GraspError(_describe(host, port, error)) from None
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.1,), name="grasp-http", daemon=True)

    @property
    def url(self) -> str:
        host, port = self._http.server_address[:2]
        return f"http://{f'[{host}]' if ':' in str(host) else host}:{port}/"

    def __enter__(self) -> "Server":
        self._monitor.start()
        self._monitor.request()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._monitor.close()
        self._replays.close()


def _describe(host: str, port: int, error: OSError | OverflowError) -> str:
    if isinstance(error, OverflowError) or not 0 <= port < 65536:
        return f"--port must lie between 0 and 65535, not {port}"
    if isinstance(error, socket.gaierror):
        return f"unknown host '{host}'; try --host 127.0.0.1"
    return f"cannot listen on {host}, port {port} ({error.strerror}); try --port {port + 1}"


def greeting(directory: str | Path, url: str, host: str) -> str:
    text = f"watching {directory} at {url} (Ctrl-C stops it)"
    warning = "everyone who can reach this machine can read these runs; there is no password"
    return text if host in LOOPBACK else f"{text}\n{warning}"


def serve(directory: str | Path, host: str = "127.0.0.1", port: int = PORT, open_browser: bool = False) -> None:
    """Serve the live page until Ctrl-C."""
    with Server(directory, host, port) as server:
        print(greeting(directory, server.url, host), flush=True)
        if open_browser:
            webbrowser.open(server.url)
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait()
