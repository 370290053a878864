"""`distls cluster`: encrypted, for holders of the certificate only, its pages on loopback; and how it ends."""

import contextlib
import ipaddress
import json
import os
import shlex
import signal
import socket
import stat
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest
from distributed import Client
from distributed.security import Security
from helpers import SECONDS, wait_until

from distls.execution.dask.remote_cluster import security_of
from distls.execution.dask.tls import Certificates
from distls.training.fitting import fit

PASSES = 3
# of TLS: change of ciphers, alert, handshake, data
RECORDS = {20, 21, 22, 23}


class Standing:
    """A cluster that `distls cluster` runs."""

    def __init__(self, command):
        self.command, self.process = command, psutil.Process(command.process.pid)
        self.address = command.process.stdout.readline().strip()
        self.options = shlex.split(command.process.stdout.readline())
        assert self.options[:2] == ["--scheduler", self.address], command.end()

    @property
    def tls(self):
        return self.options[2:]

    @property
    def certificates(self):
        return Certificates(*map(Path, self.tls[1::2]))

    def n_workers(self):
        security = security_of(self.certificates)
        with Client(self.address, security=security, timeout=SECONDS, set_as_default=False) as client:
            workers = client.scheduler_info(n_workers=-1)["workers"]
        assert all(worker.startswith("tls://") for worker in workers)
        return len(workers)


def _listening(process):
    """Return the addresses on which a process and its descendants listen."""
    found = set()
    with contextlib.suppress(psutil.Error):
        for each in [process, *process.children(recursive=True)]:
            with contextlib.suppress(psutil.Error):
                sockets = each.net_connections(kind="tcp")
                found |= {(s.laddr.ip, s.laddr.port) for s in sockets if s.status == psutil.CONN_LISTEN}
    return found


def _open_to_others(process):
    return {where for where in _listening(process) if not ipaddress.ip_address(where[0]).is_loopback}


@pytest.fixture(scope="module")
def standing(lasting_command, tmp_path_factory):
    folder = tmp_path_factory.mktemp("standing") / "tls"
    options = ("--workers", 2, "--port", 0, "--tls", "--tls-directory", folder)
    return Standing(lasting_command("cluster", *options))


@pytest.fixture
def strangers(tmp_path):
    """Return the options for a certificate of another authority."""
    made, options = Security.temporary(), []
    for name, content in (("ca", made.tls_ca_file), ("cert", made.tls_client_cert), ("key", made.tls_client_key)):
        (tmp_path / f"{name}.pem").write_text(content)
        options += [f"--tls-{name}", str(tmp_path / f"{name}.pem")]
    return options


class Recorder:
    """Passes connections on to a scheduler and keeps what each side sent."""

    def __init__(self, address):
        host, port = address.removeprefix("tls://").split(":")
        self._target = (host, int(port))
        self.sent: list[bytearray] = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = f"tls://127.0.0.1:{self._server.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                near, far = self._server.accept()[0], socket.create_connection(self._target)
                for source, sink in ((near, far), (far, near)):
                    self.sent.append(bytearray())
                    threading.Thread(target=self._pass_on, args=(source, sink, self.sent[-1]), daemon=True).start()

    def _pass_on(self, source, sink, kept):
        with contextlib.suppress(OSError):
            while data := source.recv(2**16):
                kept += data
                sink.sendall(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)

    def close(self):
        self._server.close()


def _records(stream):
    """Return the types of the TLS records that are all of a stream; its last one may be cut."""
    kinds, start = [], 0
    while start + 5 <= len(stream):
        kinds.append(stream[start])
        assert stream[start + 1 : start + 3] in (b"\x03\x01", b"\x03\x03"), "not TLS"
        start += 5 + int.from_bytes(stream[start + 3 : start + 5])
    return kinds


def _arguments(documents, run, *options):
    parameters = ("-p", "alpha=1e-4", "--passes", PASSES, "--eval-every", 0, "--quiet")
    return ["fit", "mcid", documents, run, *parameters, *options]


def test_same_bits_and_nothing_readable_on_the_way(standing, command, documents, tmp_path):
    """Fault: An eavesdropper on the connection | between driver and scheduler | nothing | bits"""
    model = fit("mcid", documents, params={"alpha": 1e-4}, passes=PASSES, eval_every=0).model
    recorder = Recorder(standing.address)
    try:
        run = command(*_arguments(documents, tmp_path / "run", "--scheduler", recorder.address, *standing.tls))
        code, out, error = run.end()
    finally:
        recorder.close()
    assert (code, error) == (0, "")
    assert out.startswith(f"MAX_PASSES: {PASSES} passes, ")
    assert json.loads((tmp_path / "run" / "status.json").read_text())["weights_sha256"] == model.sha256
    assert sum(map(len, recorder.sent)) > 10_000
    for stream in recorder.sent:
        assert set(_records(bytes(stream))) <= RECORDS
        assert b"distls" not in stream


@pytest.mark.slow
def test_strangers_are_refused(standing, command, documents, tmp_path, strangers):
    """Fault: Clients without encryption, with another authority, with another certificate | at a scheduler with TLS,
    all three at once; 3 clients | one line, exit code 1; no run"""
    tcp = standing.address.replace("tls:", "tcp:")
    plain = command(*_arguments(documents, tmp_path / "plain", "--scheduler", tcp))
    other = command(*_arguments(documents, tmp_path / "other", "--scheduler", standing.address, *strangers))
    mixed = [*standing.tls[:2], *strangers[2:]]
    unwelcome = command(*_arguments(documents, tmp_path / "c", "--scheduler", standing.address, *mixed))
    told = {
        plain: f"{tcp}: it speaks TLS; use tls:// with --tls-ca, --tls-cert and --tls-key",
        other: f"{standing.address}: --tls-ca {strangers[1]} does not vouch for its certificate (",
        unwelcome: f"{standing.address}: it does not accept the certificate --tls-cert {strangers[3]} (",
    }
    for refused, message in told.items():
        code, out, error = refused.end()
        assert (code, out, error.count("\n")) == (1, "", 1), error
        assert error.startswith(f"distls: no Dask scheduler at {message}")
    assert {path.name for path in tmp_path.iterdir()} == {"ca.pem", "cert.pem", "key.pem"}
    assert standing.n_workers() == 2


@pytest.mark.slow
def test_workers_of_strangers_are_refused(standing, tmp_path, strangers):
    """Fault: Workers without encryption, with another authority | at a scheduler with TLS, both at once; 2 workers |
    the worker ends; the cluster keeps its own"""
    tcp = standing.address.replace("tls:", "tcp:")
    certificate = ["--tls-ca-file", strangers[1], *strangers[2:]]
    quiet = {"cwd": tmp_path, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "dask", "worker", *options, "--no-nanny", "--death-timeout", "5s"], **quiet
        )
        for options in ([tcp], [standing.address, *certificate])
    ]
    for worker in started:
        _, log = worker.communicate(timeout=SECONDS)
        assert worker.returncode != 0
        assert "Registered to" not in log
    assert standing.n_workers() == 2


@pytest.mark.slow
def test_all_of_it_is_on_loopback_and_its_files_are_private(standing):
    # the scheduler and its page, and of each of two workers the nanny, itself and its page
    assert len(_listening(standing.process)) == 8
    assert _open_to_others(standing.process) == set()
    files = [Path(path) for path in standing.tls[1::2]]
    assert [stat.S_IMODE(path.stat().st_mode) for path in [files[0].parent, *files]] == [0o700, *3 * [0o600]]


@pytest.mark.slow
def test_a_cluster_of_a_fit_is_on_loopback(command, documents, tmp_path):
    options = ("--passes", 10_000, "--workers", 2, "--quiet")
    run = command("fit", "mcid", documents, tmp_path / "run", "-p", "alpha=1e-4", *options)
    process = psutil.Process(run.process.pid)
    run.when(lambda: len(_listening(process)) == 8)
    run.when((tmp_path / "run" / "events.jsonl").exists)
    assert _open_to_others(process) == set()


def _speaks_tls_only(port, certificates):
    """Tell whether a port greets nobody in plain text, and holders of the certificate encrypted."""
    with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as plain:
        # Dask's own greeting starts with its length, and is answered at once
        plain.sendall(bytes(64))
        with contextlib.suppress(ConnectionError):
            assert plain.recv(1) in (b"", b"\x15"), "an answer that is no alert of TLS"
    with (
        socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as plain,
        certificates.context().wrap_socket(plain) as encrypted,
    ):
        return encrypted.cipher() is not None


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_open_to_other_machines_is_open_by_tls_only(command, tmp_path, number):
    """Fault: The ports are scanned | all ports that `distls cluster --host 0.0.0.0 --tls` opens; ended by SIGINT,
    SIGTERM | TLS only; one line, exit code 0, no key remains"""
    folder = tmp_path / "tls"
    made = Standing(
        command("cluster", "--workers", 1, "--port", 0, "--host", "0.0.0.0", "--tls", "--tls-directory", folder)
    )
    family = made.process.children(recursive=True)
    # the scheduler, and of the worker the nanny and itself
    ports = {port for _, port in _open_to_others(made.process)}
    assert len(ports) == 3
    assert all(_speaks_tls_only(port, made.certificates) for port in ports)
    os.kill(made.process.pid, number)
    assert made.command.end() == (0, "", f"the cluster at {made.address} ends\n")
    assert not folder.exists()
    wait_until(lambda: not any(each.is_running() for each in family))
