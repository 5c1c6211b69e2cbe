"""The responses of the server, and the requests it refuses."""

import gzip
import http.client
import json
import socket
import sys
import time
import urllib.parse
from functools import partial

import pytest
from dashboard_runs import as_lines, evaluation, history, iteration, write_run

from grasp.dashboard import Server, serve, server
from grasp.dashboard.replay_queue import ReplayQueue
from grasp.types import GraspError

SECRET = "the secret outside"


class Client:
    """Sends requests unchanged; a library would normalise paths and headers."""

    def __init__(self, url: str):
        self.port = urllib.parse.urlsplit(url).port

    def get(self, path: str, method: str = "GET", **headers: str):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        connection.putrequest(method, path, skip_host="Host" in headers, skip_accept_encoding=True)
        for name, value in headers.items():
            connection.putheader(name.replace("_", "-"), value)
        connection.endheaders()
        response = connection.getresponse()
        response.body = response.read()
        connection.close()
        return response

    def json(self, path: str, **headers: str):
        return json.loads(self.get(path, **headers).body)

    def run_id(self) -> str:
        for _ in range(100):
            overview = self.json("/api/runs")
            if overview["reading"] is None:
                return overview["runs"][0]["id"]
            time.sleep(0.05)
        raise AssertionError("never read")


@pytest.fixture
def root(tmp_path):
    (tmp_path / "secret.json").write_text(json.dumps({"secret": SECRET}))
    root = tmp_path / "runs"
    write_run(root / "run", {0: history(), 1: history(top=12.0)})
    return root


@pytest.fixture
def client(root):
    with Server(root, port=0) as running:
        yield Client(running.url)


def test_the_page_and_its_parts_are_served_with_a_strict_policy(client):
    for path, (_, _, kind) in server.ASSETS.items():
        response = client.get(path)
        assert response.status == 200
        assert response.headers["Content-Type"] == kind
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        assert response.headers["Content-Security-Policy"].startswith("default-src 'self';")
        assert "unsafe" not in response.headers["Content-Security-Policy"]
        assert len(response.body) > 100


def test_scripts_load_nothing_external_and_build_no_markup_from_text(client):
    for path in server.ASSETS:
        text = client.get(path).body.decode()
        for word in ("https://", "//cdn", "innerHTML", "insertAdjacentHTML", "document.write", "eval("):
            assert word not in text, f"{path} has {word}"
        assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")
        if path == "/":
            assert "onclick" not in text
            assert "<style" not in text


def test_runs_curves_conflict_and_config(client):
    name = client.run_id()
    (curve,) = client.json(f"/api/curves?runs={name},000000000000")["runs"]
    assert curve["metrics"]["return_mean"]["x"] == [0, 400, 800, 1200, 1600, 2000]
    assert client.json(f"/api/conflict?run={name}&seed=1")["groups"][0]["num_agents"] == 3
    assert ["algo", "grasp-mappo"] in client.json(f"/api/config?run={name}")["config"]


def test_new_lines_arrive(client, root):
    name = client.run_id()
    with (root / "run" / "seed-0" / "metrics.jsonl").open("ab") as file:
        file.write(as_lines(evaluation(2400, 44.0)))
    for _ in range(100):
        (curve,) = client.json(f"/api/curves?runs={name}")["runs"]
        if curve["metrics"]["return_mean"]["seeds"][0][1][-1] == 44.0:
            return
        time.sleep(0.1)
    raise AssertionError("never arrived")


def test_an_unchanged_response_has_no_body(client):
    client.run_id()
    first = client.get("/api/runs")
    again = client.get("/api/runs", If_None_Match=first.headers["ETag"])
    assert (again.status, again.body) == (304, b"")


def test_responses_are_compressed_if_the_client_accepts_it(client):
    plain = client.get("/page.js")
    packed = client.get("/page.js", Accept_Encoding="gzip, br")
    assert packed.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(packed.body) == plain.body
    assert len(packed.body) < 0.6 * len(plain.body)


@pytest.mark.parametrize(
    "path",
    [
        "/../secret.json",
        "/..%2f..%2fsecret.json",
        "/%2e%2e/secret.json",
        "/secret.json",
        "//etc/passwd",
        "/run/config.json",
        "/page.js/../../secret.json",
        "/page.js%00",
        "/api/config?run=../",
        "/api/config?run=..%2fsecret.json",
        "/api/config?run=/etc/passwd",
        "/api/conflict?run=run&seed=0",
        "/api/runs/../../secret.json",
        "/api/conflict?run={id}&seed=../../secret",
        "/api/conflict?run={id}&seed=-1",
        "/api/conflict?run={id}&seed=9",
        "/api/conflict?run={id}&seed=%D9%A3",
        "/replay?run={id}&seed=0&checkpoint=../../secret.json",
        "/replay?run={id}&seed=0&checkpoint=399",
        "/replay?run=../..&seed=0&checkpoint=400",
    ],
)
def test_no_path_leads_outside(client, path):
    response = client.get(path.format(id=client.run_id()))
    assert response.status in (400, 404)
    assert SECRET.encode() not in response.body
    assert b"root:" not in response.body
    assert json.loads(response.body)["error"]


def test_a_link_that_leaves_the_directory_is_not_served(root):
    (root / "run" / "versions.json").unlink()
    (root / "run" / "versions.json").symlink_to(root.parent / "secret.json")
    outside = write_run(root.parent / "elsewhere", {0: as_lines(evaluation(0, 123456.0), iteration(100))})
    (root / "linked").symlink_to(outside)
    (root / "run" / "seed-7").symlink_to(outside / "seed-0")
    with Server(root, port=0) as running:
        client = Client(running.url)
        name = client.run_id()
        (row,) = client.json("/api/runs")["runs"]
        assert row["seeds"] == [0, 1]
        assert client.json(f"/api/config?run={name}")["versions"] == []
        assert client.get(f"/api/conflict?run={name}&seed=7").status == 404


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8400", "127.0.0.1.evil.example", "", "[::1", "169.254.1.1"]
)
def test_other_host_names_are_refused(client, host):
    if host == "[::1":
        host = "[::1]x"
    response = client.get("/api/runs", Host=host)
    assert response.status == 403
    assert "localhost" in json.loads(response.body)["error"]


@pytest.mark.parametrize("host", ["localhost", "localhost:9999", "127.0.0.1:1", "[::1]:8400", "LOCALHOST"])
def test_loopback_names_with_any_port_are_accepted(client, host):
    assert client.get("/api/runs", Host=host).status == 200


def test_with_host_any_host_name_is_accepted(root):
    with Server(root, host="0.0.0.0", port=0) as running:
        assert Client(running.url).get("/api/runs", Host="my-machine").status == 200


@pytest.mark.parametrize(("host", "warns"), [("127.0.0.1", False), ("::1", False), ("0.0.0.0", True), ("", True)])
def test_listening_beyond_loopback_prints_a_warning(host, warns):
    text = server.greeting("runs", "http://there:8400/", host)
    assert text.startswith("watching runs at http://there:8400/")
    assert ("there is no password" in text) is warns


def test_it_listens_on_loopback_only(root):
    with Server(root, port=0) as running:
        assert running.url.startswith("http://127.0.0.1:")


def test_requests_from_other_sites_are_refused(client):
    name = client.run_id()
    for path in ("/api/runs", f"/replay?run={name}&seed=0&checkpoint=400"):
        assert client.get(path, Sec_Fetch_Site="cross-site").status == 403
    assert client.get("/", Sec_Fetch_Site="cross-site").status == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD", "OPTIONS", "TRACE"])
def test_only_get_is_answered(client, method):
    assert client.get("/api/runs", method=method).status == 501


def test_malformed_requests_do_not_stop_the_server(client):
    for junk in (b"\x00\xff\r\n\r\n", b"GET " + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n", b"GET /\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", client.port), timeout=10) as raw:
            raw.sendall(junk)
            raw.recv(100)
    assert client.get("/").status == 200


def test_strings_from_runs_are_served_as_json(root):
    evil = "<script>alert(1)</script>"
    write_run(root / "x<img src=x>", {0: history()}, algo=evil, env=evil)
    with Server(root, port=0) as running:
        client = Client(running.url)
        client.run_id()
        response = client.get("/api/runs")
    assert response.headers["Content-Type"] == "application/json"
    assert evil in [run["algo"] for run in json.loads(response.body)["runs"]]


def test_an_empty_directory_has_no_runs(tmp_path):
    with Server(tmp_path, port=0) as running:
        overview = Client(running.url).json("/api/runs")
    assert overview["runs"] == []


def test_a_replay_is_accepted_then_sent(root, monkeypatch):
    stub = "import pathlib, sys; pathlib.Path(sys.argv[sys.argv.index('--out') + 1]).write_bytes(b'GIF89a')"
    monkeypatch.setattr(server, "ReplayQueue", partial(ReplayQueue, command=(sys.executable, "-c", stub)))
    with Server(root, port=0) as running:
        client = Client(running.url)
        path = f"/replay?run={client.run_id()}&seed=1&checkpoint=400"
        first = client.get(path)
        assert first.status == 202
        for _ in range(200):
            response = client.get(path)
            if response.status != 202:
                break
            time.sleep(0.05)
    assert (response.status, response.headers["Content-Type"], response.body) == (200, "image/gif", b"GIF89a")


def test_errors_are_one_sentence(root, tmp_path):
    with Server(root, port=0) as running:
        port = Client(running.url).port
        with pytest.raises(GraspError, match=f"cannot listen on 127.0.0.1, port {port} .*try --port {port + 1}"):
            Server(root, port=port)
    with pytest.raises(GraspError, match="--port must lie between"):
        Server(root, port=99_999)
    with pytest.raises(GraspError, match="unknown host 'no.such.host.invalid'"):
        Server(root, host="no.such.host.invalid", port=0)
    with pytest.raises(GraspError, match="no directory"):
        serve(tmp_path / "missing", port=0)
