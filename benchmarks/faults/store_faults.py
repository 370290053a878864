"""Random faults of an object store under random fits: `benchmarks.faults.chaos`.

A server of the S3 protocol runs behind a proxy, which answers 500 or 503, before or after the store has done what was
asked, closes connections, cuts or truncates answers and uploads, is late, or refuses everything for a while or for
good. Data set and run are in the store.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from benchmarks.faults.faulty_fit import PROCESS_FAULTS, Round, lasts

# "lie": an answer that looks whole, and is not; "late": of a second, or longer than a client waits
STORE_FAULTS = ("error", "error after", "hang up", "hang up after", "cut", "lie", "late", "down")
_SHARES = (0.03, 0.1, 0.3)
_LATE, _STALLED, _STALLS = 0.5, 35.0, 0.02
_START_SECONDS = 120.0
_SIGNED = "AWS4-HMAC-SHA256 Credential=somebody/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"
_HOP_HEADERS = {"connection", "transfer-encoding", "content-length", "server", "date"}


@dataclass
class Weather:
    """What goes wrong now: shares of the requests by kind of fault."""

    choose: random.Random = field(default_factory=random.Random)
    shares: dict[str, float] = field(default_factory=dict)

    def hits(self, kind: str) -> bool:
        """Tell whether a request is hit by a fault."""
        share = self.shares.get(kind, 0.0)
        return bool(share) and self.choose.random() < share


class _Between(BaseHTTPRequestHandler):
    """Passes requests on, or not."""

    protocol_version = "HTTP/1.1"
    server: FailingStore

    def log_message(self, *_: object) -> None:
        pass

    def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes, length: int) -> None:
        self.send_response(status)
        for name, value in headers:
            if name.lower() not in _HOP_HEADERS:
                self.send_header(name, value)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        self.wfile.write(b"" if self.command == "HEAD" else body)

    def _refuse(self) -> None:
        status, code = self.server.weather.choose.choice([(500, "InternalError"), (503, "SlowDown")])
        body = f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode()
        self._answer(status, [("Content-Type", "application/xml")], body, len(body))

    def _cut_upload(self, body: bytes) -> None:
        """Send the store half of what it was promised, and hang up on both sides."""
        lines = [f"{self.command} {self.path} HTTP/1.1", *(f"{k}: {v}" for k, v in self.headers.items())]
        with socket.create_connection(("127.0.0.1", self.server.behind)) as upstream:
            upstream.sendall("\r\n".join([*lines, "", ""]).encode() + body[: len(body) // 2])

    def _fails_before(self, body: bytes) -> bool:
        """Do what hits a request before the store has it."""
        hits, choose = self.server.weather.hits, self.server.weather.choose
        if hits("late"):
            time.sleep(_STALLED if choose.random() < _STALLS else choose.uniform(0.0, _LATE))
        if hits("down") or hits("error"):
            self._refuse()
            return True
        if self.command == "PUT" and len(body) > 1 and hits("cut"):
            self._cut_upload(body)
            self.close_connection = True
        elif hits("hang up"):
            self.close_connection = True
        return self.close_connection

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self._fails_before(body):
            return
        hits = self.server.weather.hits
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.server.behind)) as upstream:
            upstream.request(self.command, self.path, body, dict(self.headers.items()))
            answer = upstream.getresponse()
            content = answer.read()
        if hits("error after"):
            return self._refuse()
        self.close_connection = hits("hang up after")
        if self.close_connection:
            return
        length = int(answer.headers.get("Content-Length") or 0) if self.command == "HEAD" else len(content)
        if self.command == "GET" and len(content) > 1:
            if hits("cut"):
                content, self.close_connection = content[: len(content) // 2], True
            elif hits("lie"):
                content = content[: len(content) // 2]
                length = len(content)
        self._answer(answer.status, answer.getheaders(), content, length)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _serve


class FailingStore(ThreadingHTTPServer):
    """Listens on loopback and passes on to the port `behind`, where it looks itself too."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, behind: int) -> None:
        super().__init__(("127.0.0.1", 0), _Between)
        self.behind, self.weather = behind, Weather()

    def handle_error(self, *_: object) -> None:
        """Say nothing: who asked sees a lost connection, and asks again."""

    def put(self, key: str, content: bytes) -> None:
        """Write an object, past the faults; the empty key makes the bucket."""
        self._ask("PUT", key, content)

    def get(self, key: str) -> bytes | None:
        """Return an object, past the faults; None if there is none."""
        try:
            return self._ask("GET", key)
        except urllib.error.HTTPError as error:
            error.close()
            if error.code != 404:
                raise
            return None

    def names(self, prefix: str) -> list[str]:
        """Return the keys that begin so, past the faults; at most a thousand."""
        listed = (self.get(f"?list-type=2&prefix={prefix}") or b"").decode()
        return [part.partition("</Key>")[0] for part in listed.split("<Key>")[1:]]

    def _ask(self, method: str, key: str, content: bytes | None = None) -> bytes:
        # urllib's own type is that of forms; names are asked for, signatures are not verified
        headers = {"Content-Type": "application/octet-stream", "Authorization": _SIGNED}
        address = f"http://127.0.0.1:{self.behind}/bucket/{key}".rstrip("/")
        request = urllib.request.Request(address, content, headers, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return bytes(answer.read())


@contextlib.contextmanager
def failing_store() -> Iterator[FailingStore]:
    """Start server and proxy, with an empty bucket."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    quiet = subprocess.DEVNULL
    arguments = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(arguments, stdout=quiet, stderr=quiet) as process, FailingStore(port) as store:
        try:
            _wait_for(store, process)
            threading.Thread(target=store.serve_forever, daemon=True).start()
            yield store
            store.shutdown()
        finally:
            process.kill()


def _wait_for(store: FailingStore, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            return store.put("", b"")
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit("the store does not start: pip install 'distls[test]'") from None
            time.sleep(0.05)


class StoreRound(Round):
    """One fit whose data set and run are in the store."""

    def __init__(
        self, place: Path, data: Path, kernels: str | None, choose: random.Random, store: FailingStore
    ) -> None:
        self._store = store
        super().__init__(place, data, kernels, choose)
        self._kinds = choose.choice([STORE_FAULTS, STORE_FAULTS, (*STORE_FAULTS, *PROCESS_FAULTS)])
        self._retry_seconds = choose.choice([1, 5, 20])
        self._share = choose.choice(_SHARES)

    def bring(self, data: Path) -> None:
        """Copy the data set to the store."""
        self._key = self.place.name
        self.data, self.run = f"s3://bucket/{self._key}/data", f"s3://bucket/{self._key}/run"
        for path in sorted(path for path in data.rglob("*") if path.is_file()):
            self._store.put(f"{self._key}/data/{path.relative_to(data).as_posix()}", path.read_bytes())

    def environment(self) -> dict[str, str]:
        """Return what leads a command to the store."""
        return {
            **super().environment(),
            "AWS_ACCESS_KEY_ID": "somebody",
            "AWS_SECRET_ACCESS_KEY": "something",
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self._store.server_address[1]}",
            "DISTLS_STORE_RETRY_SECONDS": str(self._retry_seconds),
        }

    def strike(self, process: subprocess.Popen[str]) -> None:
        """Have the store be unsteady from the start or in rounds, and do some faults more."""
        self._store.weather.choose = random.Random(self._choose.random())
        if self._choose.random() < 0.5:
            self._change("error", self._share / 10)
        super().strike(process)

    def do_fault(self, kind: str, process: subprocess.Popen[str]) -> None:
        """Let requests fail for a while or for good."""
        if kind in PROCESS_FAULTS:
            return super().do_fault(kind, process)
        share, for_good = 1.0 if kind == "down" else self._share, self._choose.random() < 0.3
        self._change(kind, share)
        self.faults[-1] += " for good" if for_good else ""
        lasts(process, self._choose.uniform(0.2, 3.0))
        if not for_good:
            self._store.weather.shares.pop(kind)

    def _change(self, kind: str, share: float) -> None:
        self.faults.append(f"{kind} {100 * share:g} %")
        self._store.weather.shares[kind] = share

    def heal(self) -> None:
        """Let the store be well."""
        self._store.weather.shares.clear()

    def written(self, name: str) -> bytes | None:
        """Return an object of the run."""
        return self._store.get(f"{self._key}/run/{name}")

    def digest(self) -> str | None:
        """Return the digest that the run's status has: no fault here changes an object that was written."""
        status = self.written("status.json")
        return None if status is None else json.loads(status).get("weights_sha256")

    def left_behind(self) -> list[str]:
        """Return the objects that a finished run should not have."""
        keys = self._store.names(f"{self._key}/run/")
        return [key for key in keys if "/checkpoints/" in key or ".partial" in key]


@contextlib.contextmanager
def store_rounds() -> Iterator[Callable[..., Round]]:
    """Start the store; yield what makes its rounds."""
    with failing_store() as store:
        yield lambda *given: StoreRound(*given, store)
