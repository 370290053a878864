"""The examples of deploy/ as local processes: loopback stands for their hosts, a temporary folder for their volumes."""

import contextlib
import datetime
import ipaddress
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from distributed import Client
from distributed.security import Security
from helpers import SECONDS, free_port

DEPLOY = Path(__file__).resolve().parents[1] / "deploy"


def manifests(name: str) -> list[dict[str, Any]]:
    """Return the YAML documents of a file in deploy/."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return list(yaml.load_all((DEPLOY / name).read_text(encoding="utf-8"), loader))


def misfits(value: Any, shape: Any, where: str = "") -> list[str]:
    """Tell where `value` is not of `shape`.

    A shape is a type, a set of values, a list of one shape, a dict of all keys that there are ("key!" is required), or
    {str: shape} for any keys.
    """
    if isinstance(shape, set):
        return [] if value in shape else [f"{where}: {value!r}"]
    if isinstance(shape, list):
        if not isinstance(value, list):
            return [f"{where}: not a list"]
        return [found for i, item in enumerate(value) for found in misfits(item, shape[0], f"{where}[{i}]")]
    if isinstance(shape, dict):
        return _misfits_of_keys(value, shape, where)
    right = isinstance(value, shape) and (shape is bool or not isinstance(value, bool))
    return [] if right else [f"{where}: {value!r} is no {shape.__name__}"]


def _misfits_of_keys(value: Any, shape: Mapping[Any, Any], where: str) -> list[str]:
    if not isinstance(value, dict):
        return [f"{where}: not a mapping"]
    known = {str: shape[str]} if str in shape else {key.rstrip("!"): item for key, item in shape.items()}
    required = {key[:-1] for key in shape if key is not str and key.endswith("!")}
    found = [f"{where}: no {key}" for key in sorted(required - set(value))]
    for key, item in value.items():
        if key in known or str in known:
            found += misfits(item, known.get(key, known.get(str)), f"{where}.{key}")
        else:
            found.append(f"{where}: unknown {key}")
    return found


class Example:
    """Commands of one example, started here.

    Parameters
    ----------
    folder : Path
        What the processes share.
    stands_for : dict
        Text in commands and environments -> what replaces it here.
    """

    def __init__(self, folder: Path, stands_for: Mapping[str, str]) -> None:
        self.folder = folder
        self.port = free_port()
        ports = {"8786": str(self.port), ":8787": f":{free_port()}"}
        self._stands_for = {**stands_for, **ports}
        self._environment = self._of_a_machine()
        self._started: list[subprocess.Popen[bytes]] = []

    def _of_a_machine(self) -> dict[str, str]:
        """Return the environment of a machine that has the settings in /etc/dask, and this Python's programs."""
        settings = self.folder / "etc-dask"
        settings.mkdir(exist_ok=True)
        (settings / "distls.yaml").write_text((DEPLOY / "distls.yaml").read_text())
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("DASK_")}
        path = f"{Path(sys.executable).parent}{os.pathsep}{inherited['PATH']}"
        return {**inherited, "PATH": path, "DASK_ROOT_CONFIG": str(settings)}

    def here(self, text: str) -> str:
        """Return `text` with loopback and folders in place of the example's hosts and volumes."""
        pattern = "|".join(re.escape(name) for name in sorted(self._stands_for, key=len, reverse=True))
        return re.sub(pattern, lambda found: self._stands_for[found.group()], text)

    def _given(self, environment: Mapping[str, str]) -> dict[str, str]:
        return {**self._environment, **{name: self.here(value) for name, value in environment.items()}}

    def start(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        """Start a scheduler or worker; it listens on loopback only."""
        words = [*map(self.here, command), *(() if "--host" in command else ("--host", "127.0.0.1"))]
        with (self.folder / f"process-{len(self._started)}.log").open("wb") as log:
            self._started.append(
                subprocess.Popen(
                    words, env=self._given(environment or {}), cwd=self.folder, stdout=log, stderr=log,
                    start_new_session=True,
                )
            )  # fmt: skip

    @contextlib.contextmanager
    def client(self, workers: int, security: Security | None = None) -> Iterator[Client]:
        """Connect when so many workers are there."""
        address = f"{'tls' if security else 'tcp'}://127.0.0.1:{self.port}"
        with Client(address, timeout=SECONDS, security=security, set_as_default=False) as client:
            client.wait_for_workers(workers, timeout=SECONDS)
            yield client

    def run(
        self, command: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a job to its end."""
        return subprocess.run(
            [self.here(word) for word in command], env=self._given(environment or {}), cwd=self.folder,
            capture_output=True, text=True, timeout=SECONDS,
        )  # fmt: skip

    def close(self) -> None:
        """End all processes, and what they have started."""
        for process in reversed(self._started):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, 9)
            process.wait()


@contextlib.contextmanager
def example(folder: Path, stands_for: Mapping[str, str]) -> Iterator[Example]:
    """Start commands of one example; whatever still runs at the end is killed."""
    made = Example(folder, stands_for)
    try:
        yield made
    finally:
        made.close()


def sha256_of(run: Path) -> str:
    """Return the hash of a run's weights."""
    return str(json.loads((run / "status.json").read_text())["weights_sha256"])


def write_certificate(folder: Path) -> None:
    """Write a certificate of loopback that is its own authority, ``cert.pem``, and ``key.pem``."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "distls test")])
    now, own = datetime.datetime.now(datetime.UTC), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([own]), critical=False)
        .sign(key, hashes.SHA256())
    )
    (folder / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    encoding = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "key.pem").write_bytes(key.private_bytes(*encoding))


def write_secret(folder: Path) -> None:
    """Write what the secret holds: a certificate that is its own authority, its key, and Dask's configuration."""
    write_certificate(folder)
    shutil.copy(folder / "cert.pem", folder / "ca.pem")
    (folder / "tls.yaml").write_text((DEPLOY / "tls.yaml").read_text().replace("/tls/", f"{folder}/"))
