"""deploy/systemd: units that systemd accepts, hardened, and that train with the commands of the README."""

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
from deploy_helpers import DEPLOY, example, sha256_of

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
    (line,) = re.findall(
        r"^    systemd-run --uid=distls (.+)$", (DEPLOY / "README.md").read_text(), re.MULTILINE
    )
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
