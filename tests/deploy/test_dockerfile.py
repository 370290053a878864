"""deploy/Dockerfile: its steps, as far as they can be taken without an engine, from exactly the files it copies."""

import fnmatch
import os
import re
import shlex
import shutil
import subprocess
import sys
import venv
from typing import NamedTuple

import pytest
from deploy_helpers import DEPLOY

from distls.execution.dask.forkserver import SINGLE_THREADED

ROOT = DEPLOY.parent


class Step(NamedTuple):
    """One instruction of the last stage but for what `stage` says."""

    stage: int
    name: str
    words: str


def _steps():
    text = re.sub(r"\\\n\s*", "", (DEPLOY / "Dockerfile").read_text(encoding="utf-8"))
    steps, stage = [], -1
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, _, words = line.partition(" ")
            stage += name == "FROM"
            steps.append(Step(stage, name, words))
    return steps


STEPS = _steps()
FINAL = max(step.stage for step in STEPS)


def _words(name, stage=FINAL):
    return [step.words for step in STEPS if (step.stage, step.name) == (stage, name)]


def _copied(stage):
    """Return sources and destination of what is copied from the checkout."""
    copies = [shlex.split(words) for words in _words("COPY", stage)]
    return [(words[:-1], words[-1]) for words in copies if not words[0].startswith("--from")]


def test_instructions_are_known_and_the_base_is_plain_and_slim():
    known = {"ARG", "FROM", "WORKDIR", "COPY", "RUN", "ENV", "USER", "ENTRYPOINT", "CMD"}
    assert {step.name for step in STEPS} <= known
    assert [step.words for step in STEPS if step.name == "FROM"] == [
        "python:${PYTHON}-slim AS build",
        "python:${PYTHON}-slim",
    ]


def test_what_is_copied_is_there_and_not_ignored():
    sources = [source for stage in (0, FINAL) for found, _ in _copied(stage) for source in found]
    assert [source for source in sources if not (ROOT / source).exists()] == []
    rules = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] not in ("", "#")]
    assert rules[0] == "*"
    assert sorted(sources) == sorted(rule[1:] for rule in rules if rule.startswith("!"))


def test_nobody_is_root_and_nothing_is_secret():
    (user,) = _words("USER")
    assert user == "10001:10001"
    after = [step.name for step in STEPS[STEPS.index(Step(FINAL, "USER", user)) + 1 :]]
    assert "RUN" not in after
    text = (DEPLOY / "Dockerfile").read_text().lower()
    assert not re.search(r"secret|password|token|--build-arg|index-url|https?:", text)


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("useradd") is None, reason="needs root and useradd")
def test_its_user_owns_the_folders_and_no_others(tmp_path):
    (tmp_path / "etc").mkdir()
    for file in ("passwd", "group", "shadow", "gshadow"):
        (tmp_path / "etc" / file).touch()
    for words in _words("RUN"):
        program, *rest = shlex.split(words)
        if program == "install":
            rest = [f"{tmp_path}{word}" if word.startswith("/") else word for word in rest]
        else:
            rest = ["--prefix", str(tmp_path), *rest]
        subprocess.run([program, *rest], check=True)
    users = (tmp_path / "etc" / "passwd").read_text().splitlines()
    assert [user.split(":")[:4] for user in users] == [["distls", "x", "10001", "10001"]]
    for folder in ("cache", "shared"):
        found = (tmp_path / folder).stat()
        assert (found.st_uid, found.st_gid) == (10001, 10001)


def test_its_environment_is_that_of_workers():
    (words,) = _words("ENV")
    environment = dict(word.split("=", 1) for word in shlex.split(words))
    assert environment == {**SINGLE_THREADED, "PATH": "/venv/bin:$PATH", "NUMBA_CACHE_DIR": "/cache"}


def test_it_starts_distls():
    assert (_words("ENTRYPOINT"), _words("CMD")) == (['["distls"]'], ['["--help"]'])


def _copy(folder, stage):
    """Copy as the builder does: a folder's contents, without what .dockerignore names."""
    ignored = [line[3:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("**/")]
    for sources, destination in _copied(stage):
        for source in sources:
            target = folder / destination
            if (ROOT / source).is_dir():
                shutil.copytree(
                    ROOT / source,
                    target,
                    symlinks=True,
                    ignore=lambda _, names: [n for n in names if any(fnmatch.fnmatch(n, rule) for rule in ignored)],
                )
            else:
                shutil.copy(ROOT / source, target / source)


def _lend_packages(environment):
    """Have the packages of this environment found from another one, as if they had been fetched."""
    (site,) = environment.glob("lib/python*/site-packages")
    (site / "lent.pth").write_text("\n".join(path for path in sys.path if path.endswith("site-packages")))


@pytest.mark.slow
def test_its_steps_build_and_install_the_package(tmp_path):
    source, wheels, target = tmp_path / "source", tmp_path / "wheels", tmp_path / "venv"
    source.mkdir()
    _copy(source, 0)
    build, make, install = _words("RUN", 0)
    # without a network this environment's setuptools builds, and its packages stand for those to be fetched
    build = build.replace("pip ", f"{sys.executable} -m pip ", 1) + " --no-build-isolation"
    _shell(build.replace("/wheels", str(wheels)), source)
    assert make == "python -m venv /venv"
    venv.create(target, with_pip=True)
    _lend_packages(target)
    install = install.replace("/venv", str(target)).replace("/wheels", str(wheels))
    _shell(f"{install} --no-deps --force-reinstall", source)
    shown = _shell(f"{target}/bin/distls --version", tmp_path)
    assert shown.startswith("distls, version ")
    where = _shell(f"{target}/bin/python -c 'import distls.workers; print(distls.workers.__file__)'", tmp_path)
    assert where.startswith(str(target))


def _shell(line, folder):
    ended = subprocess.run(["sh", "-euc", line], cwd=folder, capture_output=True, text=True)
    assert ended.returncode == 0, f"{line}\n{ended.stdout}{ended.stderr}"
    return ended.stdout
