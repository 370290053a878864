"""Commands on machines that give them little: each ends in one line, or does its work."""

import os
import subprocess
import sys

import pytest
from helpers import SECONDS, labelled_rows, write_dataset


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_dataset(tmp_path_factory.mktemp("data") / "train", *labelled_rows(300, 40, 3)).path


def _fit(data, run, limit=":", options=("--workers", "2"), **environment):
    """Fit after a command of the shell that sets a limit; return the exit code and the lines on stderr."""
    own = ["fit", "gls", str(data), str(run), "--quiet", "--passes", "2", *options]
    command = ["bash", "-c", f'{limit}; exec "$0" "$@"', sys.executable, "-m", "distls", *own]
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=SECONDS, env={**os.environ, **environment}
    )
    return ended.returncode, ended.stderr.splitlines()


@pytest.mark.slow
def test_a_temporary_folder_that_cannot_be_written(data, tmp_path):
    place = tmp_path / "file" / "folder"
    (tmp_path / "file").touch()
    code, lines = _fit(data, tmp_path / "run", DASK_TEMPORARY_DIRECTORY=str(place))
    assert (code, lines) == (
        1,
        [
            f"distls: the workers on this machine (2) did not start: [Errno 20] Not a directory: '{place}'; mend "
            f"temporary-directory ({place}) of Dask's configuration; use fewer --workers, or --executor serial"
        ],
    )


@pytest.mark.slow
@pytest.mark.parametrize("number", [16, 32])
def test_few_open_files(data, tmp_path, number):
    assert _fit(data, tmp_path / "run", f"ulimit -n {number}") == (
        1,
        [
            f"distls: at most {number} files may be open here (ulimit -n), and these workers need 64; raise the limit, "
            "use fewer --workers, or --executor serial"
        ],
    )


@pytest.mark.slow
def test_a_limit_on_open_files_that_can_be_raised_is(data, tmp_path):
    assert _fit(data, tmp_path / "run", "ulimit -S -n 32") == (0, [])


@pytest.mark.slow
@pytest.mark.parametrize("size", [40, 150, 200, 1000])  # below 150 NumPy cannot be loaded
@pytest.mark.parametrize("executor", ["dask", "serial"])
def test_few_addresses(data, tmp_path, size, executor):
    options = ["--workers", "2"] if executor == "dask" else ["--executor", "serial"]
    assert _fit(data, tmp_path / "run", f"ulimit -v {size * 1024}", options) == (
        1,
        [
            f"distls: this process may use {size} MiB of addresses (ulimit -v), and libraries reserve more than that: "
            "allow 2 GiB, and limit memory with --memory-limit"
        ],
    )


@pytest.mark.slow
def test_few_open_files_are_enough_for_one_process(data, tmp_path):
    assert _fit(data, tmp_path / "run", "ulimit -n 32", ["--executor", "serial"]) == (0, [])
