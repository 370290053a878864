"""A real server of the S3 protocol in a process of its own, and between it and us a server that fails on demand."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from helpers import free_port

BUCKET = "s3://bucket"
WRONG_KEY = "WRONGKEY"
_HOP_HEADERS = {"connection", "transfer-encoding", "content-length", "server", "date"}


@dataclass
class Faults:
    """What goes wrong, and how often it has.

    Attributes
    ----------
    error_every, cut_reads_every, cut_writes_every : int
        Of requests, of answers to GET, of uploads: each so many-th; 0 for none.
    slow : float
        Seconds that an answer to GET takes.
    down : bool
        Every request is answered by 503.
    """

    error_every: int = 0
    cut_reads_every: int = 0
    cut_writes_every: int = 0
    slow: float = 0.0
    down: bool = False
    seen: dict[str, int] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    counters: dict[str, Iterator[int]] = field(default_factory=dict)

    def hits(self, kind: str, every: int) -> bool:
        with self.lock:
            counter = self.counters.setdefault(kind, itertools.count(1))
            hit = bool(every) and next(counter) % every == 0
            self.seen[kind] = self.seen.get(kind, 0) + hit
            return hit

    def heal(self) -> None:
        self.error_every = self.cut_reads_every = self.cut_writes_every = 0
        self.slow, self.down = 0.0, False
        self.seen.clear()


class _Between(BaseHTTPRequestHandler):
    """Passes requests on, or not."""

    protocol_version = "HTTP/1.1"
    server: FailingServer

    def log_message(self, *_: object) -> None:
        pass

    def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes, length: int) -> None:
        self.send_response(status)
        for name, value in headers:
            if name.lower() not in _HOP_HEADERS:
                self.send_header(name, value)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.wfile.write(b"" if self.command == "HEAD" else body)

    def _refuse(self, status: int, code: str) -> None:
        body = f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode()
        self._answer(status, [("Content-Type", "application/xml")], body, len(body))

    def _cut_upload(self, body: bytes) -> None:
        """Send the store half of what it was promised, and hang up on both sides."""
        head = f"{self.command} {self.path} HTTP/1.1\r\n" + "".join(f"{k}: {v}\r\n" for k, v in self.headers.items())
        with socket.create_connection(("127.0.0.1", self.server.behind)) as upstream:
            upstream.sendall(head.encode() + b"\r\n" + body[: len(body) // 2])
        self.close_connection = True

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        faults = self.server.faults
        if WRONG_KEY in self.headers.get("Authorization", ""):
            return self._refuse(403, "InvalidAccessKeyId")
        if faults.down or faults.hits("errors", faults.error_every):
            return self._refuse(503 if faults.down else 500, "InternalError")
        if self.command == "PUT" and len(body) > 1 and faults.hits("cut writes", faults.cut_writes_every):
            return self._cut_upload(body)
        upstream = http.client.HTTPConnection("127.0.0.1", self.server.behind, timeout=60)
        upstream.request(self.command, self.path, body, dict(self.headers.items()))
        answer = upstream.getresponse()
        content = answer.read()
        upstream.close()
        length = int(answer.headers.get("Content-Length") or 0) if self.command == "HEAD" else len(content)
        if self.command == "GET":
            time.sleep(faults.slow)
            if len(content) > 1 and faults.hits("cut reads", faults.cut_reads_every):
                content, self.close_connection = content[: len(content) // 2], True
        self._answer(answer.status, answer.getheaders(), content, length)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _serve


class FailingServer(ThreadingHTTPServer):
    """Listens on loopback and passes on to the port `behind`."""

    daemon_threads = True

    def __init__(self, behind: int) -> None:
        super().__init__(("127.0.0.1", 0), _Between)
        self.behind, self.faults = behind, Faults()

    def handle_error(self, *_: object) -> None:
        """Say nothing: who asked sees a lost connection, and asks again."""


@contextlib.contextmanager
def object_store() -> Iterator[Faults]:
    """Start the servers, with an empty bucket and the environment that leads there; yield what can go wrong."""
    for package in ("obstore", "moto", "flask", "flask_cors"):
        pytest.importorskip(package)
    port = free_port()
    arguments = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(arguments, stdout=quiet, stderr=quiet) as process, pytest.MonkeyPatch.context() as patch:
        try:
            _make_bucket(port)
            between = FailingServer(port)
            threading.Thread(target=between.serve_forever, daemon=True).start()
            environment = {
                "AWS_ACCESS_KEY_ID": "somebody", "AWS_SECRET_ACCESS_KEY": "something", "AWS_REGION": "us-east-1",
                "AWS_ALLOW_HTTP": "true", "AWS_ENDPOINT_URL": f"http://127.0.0.1:{between.server_address[1]}",
                "DISTLS_STORE_RETRY_SECONDS": "60",
            }  # fmt: skip
            for name, value in environment.items():
                patch.setenv(name, value)
            forget_clients()
            yield between.faults
            between.shutdown()
        finally:
            process.kill()
            forget_clients()


def forget_clients() -> None:
    """Let this process ask the environment again where the store is."""
    from distls.storage.filesystem.object_store import client

    client.cache_clear()


def _make_bucket(port: int) -> None:
    deadline = time.monotonic() + 120
    while True:
        try:
            request = urllib.request.Request(f"http://127.0.0.1:{port}/bucket", method="PUT")
            urllib.request.urlopen(request, timeout=10).close()
            return
        except OSError:
            assert time.monotonic() < deadline, "the server does not start"
            time.sleep(0.05)
