"""deploy/README.md is short and complete, and its commands train."""

import re
import shlex

import pytest
import yaml
from deploy_helpers import DEPLOY, example, sha256_of

from distls.execution.dask.local_cluster import _CONFIG

README = (DEPLOY / "README.md").read_text(encoding="utf-8")


def _section(title):
    (section,) = re.findall(rf"^## {title}\n(.*?)(?=^## |\Z)", README, re.MULTILINE | re.DOTALL)
    return str(section)


@pytest.mark.parametrize("title", ["Image", "Compose", "Kubernetes", "SLURM", "systemd", "TLS"])
def test_an_example_is_documented_in_five_lines(title):
    assert 1 <= len([line for line in _section(title).splitlines() if line.strip()]) <= 5


def test_every_file_is_named():
    files = [path.name for path in DEPLOY.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert [name for name in files if name not in README and name != "README.md"] == []


@pytest.mark.slow
def test_the_commands_by_hand_train_the_same_weights(shared, serial):
    text = _section("By hand").replace("--nworkers 8", "--nworkers 2")
    scheduler, worker = re.findall(r"^ +(dask (?:scheduler|worker) .+)$", text, re.MULTILINE)
    (fit,) = re.findall(r"^ +(distls fit .+)$", text, re.MULTILINE)
    (resume,) = re.findall(r"`(distls resume [^`]+)`", text)
    with example(shared, {"10.0.0.1": "127.0.0.1", "/shared": str(shared)}) as started:
        started.start(shlex.split(scheduler))
        started.start(shlex.split(worker))
        with started.client(2):
            ended = [started.run([*shlex.split(line), "--quiet"]) for line in (fit, resume)]
    assert [(each.returncode, each.stderr) for each in ended] == [(0, ""), (0, "")]
    assert sha256_of(shared / "run") == serial


# -- deploy/distls.yaml holds what `distls` sets for clusters of its own ---------------------------------


# How a local cluster's processes come to be; those of `dask worker` are its own affair.
OF_LOCAL_CLUSTERS = {"distributed.worker.multiprocessing-method"}
ENVIRONMENT = "distributed.nanny.pre-spawn-environ"


def _flat(tree, prefix=""):
    for name, value in tree.items():
        key = f"{prefix}{name}"
        if isinstance(value, dict) and key != ENVIRONMENT:
            yield from _flat(value, f"{key}.")
        else:
            yield key, value


def test_the_file_holds_the_settings_of_local_clusters():
    settings = dict(_flat(yaml.safe_load((DEPLOY / "distls.yaml").read_text())))
    environment = {name: value for name, value in settings[ENVIRONMENT].items() if value is not None}
    # Dask merges: where it has a default of its own, null takes it back
    assert settings[ENVIRONMENT]["MALLOC_TRIM_THRESHOLD_"] is None
    settings[ENVIRONMENT] = {name: str(value) for name, value in environment.items()}
    settings = {key: float(value) if value == "inf" else value for key, value in settings.items()}
    expected = {key: value for key, value in _CONFIG.items() if key not in OF_LOCAL_CLUSTERS}
    expected = {key: float(value) if value == "inf" else value for key, value in expected.items()}
    assert settings == expected
