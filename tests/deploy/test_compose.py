"""deploy/compose.yaml: of the shape that the Compose specification gives, closed to the outside, and it trains."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

import dask
import pytest
from dask.utils import parse_bytes
from deploy_helpers import DEPLOY, example, manifests, misfits, sha256_of

CONDITION = {"condition!": {"service_started", "service_healthy", "service_completed_successfully"}}
SERVICE = {
    "image!": str,
    "build!": {"context!": str, "dockerfile": str},
    "pull_policy": {"always", "never", "missing", "build"},
    "init": bool,
    "read_only": bool,
    "tmpfs": [str],
    "cap_drop": [str],
    "security_opt": [str],
    "volumes": [str],
    "entrypoint": [str],
    "command": [str],
    "environment": {str: str},
    "ports": [str],
    "restart": {"no", "always", "on-failure", "unless-stopped"},
    "healthcheck": {"test!": [str], "interval": str, "timeout": str, "retries": int},
    "depends_on": {str: CONDITION},
    "mem_limit": str,
    "scale": int,
    "profiles": [str],
}
# Only what is used here; what the specification does not know it refuses, but for x-...
SPECIFIED = {"name": str, "services!": {str: SERVICE}, "volumes": {str: {}}}


@pytest.fixture(scope="module")
def compose():
    (document,) = manifests("compose.yaml")
    return {key: value for key, value in document.items() if not key.startswith("x-")}


def test_the_file_is_as_specified(compose):
    assert misfits(compose, SPECIFIED) == []
    services = compose["services"]
    assert set(services) == {"scheduler", "worker", "job"}
    for service in services.values():
        build = service["build"]
        assert (DEPLOY / build["context"] / build["dockerfile"]).resolve() == DEPLOY / "Dockerfile"
        assert set(service.get("depends_on", {})) < set(services)
        named = {volume.rpartition(":")[0] for volume in service["volumes"]} - {"${DISTLS_SHARED:-shared}"}
        assert named | {"shared"} == set(compose["volumes"])


def test_nothing_is_published_beyond_loopback(compose):
    ports = {name: service.get("ports", []) for name, service in compose["services"].items()}
    assert ports == {"scheduler": ["127.0.0.1:8787:8787"], "worker": [], "job": []}
    for service in compose["services"].values():
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service["read_only"] is True


def test_a_worker_may_use_the_memory_of_its_container(compose):
    worker = compose["services"]["worker"]
    given = worker["entrypoint"][worker["entrypoint"].index("--memory-limit") + 1]
    # Compose's gb are powers of two
    assert worker["mem_limit"].removesuffix("gb").isdigit()
    assert parse_bytes(given) == int(worker["mem_limit"].removesuffix("gb")) * 2**30


@pytest.mark.slow
def test_its_commands_train_the_same_weights(compose, shared, serial):
    services = compose["services"]
    hosts = {"//scheduler:": "//127.0.0.1:", "/shared": str(shared)}
    with example(shared, hosts) as started:
        started.start(services["scheduler"]["entrypoint"])
        for _ in range(services["worker"]["scale"]):
            started.start(services["worker"]["entrypoint"])
        with started.client(services["worker"]["scale"]) as client:
            limits = {worker["memory_limit"] for worker in client.scheduler_info()["workers"].values()}
            assert limits == {2 * 2**30}
            healthy = started.run(services["scheduler"]["healthcheck"]["test"][1:])
            assert (healthy.returncode, healthy.stderr) == (0, "")
        job = services["job"]
        ended = started.run(["distls", *job["command"], "--quiet"], job["environment"])
    assert (ended.returncode, ended.stderr) == (0, "")
    assert sha256_of(shared / "run") == serial


# -- deploy/systemd --------------------------------------------------------------------------------------


FOLDER = DEPLOY / "systemd"
UNITS = ("distls-scheduler.service", "distls-worker.service")
HARDENED = {
    "NoNewPrivileges": "yes",
    "CapabilityBoundingSet": "",
    "ProtectSystem": "strict",
    "ProtectHome": "yes",
    "PrivateTmp": "yes",
    "PrivateDevices": "yes",
    "User": "distls",
}


def _service(unit):
    parser = ConfigParser(interpolation=None, delimiters=("=",), comment_prefixes=("#",))
    parser.optionxform = str
    parser.read(FOLDER / unit)
    assert set(parser.sections()) == {"Unit", "Service", "Install"}
    return dict(parser["Service"])


def _settings():
    lines = (FOLDER / "distls.env").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def _command(unit, settings):
    """Return the words of ExecStart; the program by its name, from this Python's environment."""
    program, *words = shlex.split(_service(unit)["ExecStart"])
    assert program == "/srv/distls/bin/dask"
    return ["dask", *(re.sub(r"\$\{(\w+)\}", lambda found: settings[found[1]], word) for word in words)]


@pytest.mark.parametrize("unit", UNITS)
def test_units_are_hardened(unit):
    service = _service(unit)
    assert {name: service.get(name) for name in HARDENED} == HARDENED
    assert "MemoryDenyWriteExecute" not in service  # numba compiles
    assert service["EnvironmentFile"] == "/etc/distls/distls.env"


def test_only_workers_may_write_what_is_shared():
    assert [_service(unit).get("ReadWritePaths") for unit in UNITS] == [None, "/shared"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_accepts_them(tmp_path):
    for unit in UNITS:
        # it looks for the program
        text = (FOLDER / unit).read_text().replace("/srv/distls/bin", str(Path(sys.executable).parent))
        (tmp_path / unit).write_text(text)
    units = [str(tmp_path / unit) for unit in UNITS]
    verified = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True)
    if "Failed to" in verified.stderr and "unit" not in verified.stderr:
        pytest.skip(f"systemd-analyze does not run here: {verified.stderr}")
    assert (verified.returncode, verified.stderr) == (0, "")


@pytest.mark.slow
def test_their_commands_train_the_same_weights(shared, serial):
    settings = {**_settings(), "DISTLS_WORKERS": "2", "DISTLS_MEMORY": "1GiB"}
    (line,) = re.findall(r"^    systemd-run --uid=distls (.+)$", (DEPLOY / "README.md").read_text(), re.MULTILINE)
    with example(shared, {"10.0.0.1": "127.0.0.1", "/shared": str(shared)}) as started:
        for unit in UNITS:
            started.start(_command(unit, settings))
        with started.client(2) as client:
            workers = client.scheduler_info()["workers"].values()
            assert {(worker["memory_limit"], worker["nthreads"]) for worker in workers} == {(2**30, 1)}
            # distls.yaml is in force
            assert client.run_on_scheduler(dask.config.get, "distributed.scheduler.work-stealing") is False
            assert set(client.run(os.getenv, "OMP_NUM_THREADS").values()) == {"1"}
            assert set(client.run(os.getenv, "MALLOC_TRIM_THRESHOLD_").values()) == {None}
        ended = started.run(["distls", *shlex.split(line)[1:], "--quiet"])
    assert (ended.returncode, ended.stderr) == (0, "")
    assert sha256_of(shared / "run") == serial
