"""What commands print: escapes for what a terminal obeys, and streams that fail."""

import errno
import io
import os
import subprocess
import sys

import click
import pytest
from helpers import distls, raised, refuses

from distls.cli import support
from distls.cli.output import Output, check_stdout, guard_streams, show, show_table
from distls.execution import ClusterOptions
from distls.storage.errors import StorageError
from distls.training.callbacks import LineProgress

EVIL = "a\x1b[2J\x07\x85\x9b\x7f\u202e\u2028\ud800"
SHOWN = r"a\x1b[2J\x07\x85\x9b\x7f\u202e\u2028\ud800"


class Failing(io.StringIO):
    """A stream that is full."""

    def write(self, text):
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_name_is_shown_and_not_obeyed(monkeypatch):
    monkeypatch.setattr(sys, "stdout", Output(stream := io.StringIO()))
    show([f"{EVIL}\nmodel in elsewhere", "next"])
    print(EVIL, "as libraries print it\n")
    assert stream.getvalue() == f"{SHOWN}\\nmodel in elsewhere\nnext\n{SHOWN} as libraries print it\n\n"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_what_an_encoding_lacks_is_escaped(monkeypatch, encoding):
    stream = io.TextIOWrapper(raw := io.BytesIO(), encoding=encoding, errors="strict")
    monkeypatch.setattr(sys, "stdout", Output(stream))
    show(["日"])
    assert raw.getvalue() == ("日\n".encode() if encoding == "utf-8" else b"\\u65e5\n")


def test_what_cannot_be_written_fails_the_command_that_is_for_it(monkeypatch, capsys):
    monkeypatch.setattr("atexit.register", lambda *given: None)
    monkeypatch.setattr(sys, "stdout", Output(Failing()))
    show(["a summary"], needed=False)
    with pytest.raises(click.exceptions.Exit) as ended:
        show(["a result"])
    assert ended.value.exit_code == 1
    assert capsys.readouterr().err.startswith("distls: cannot write to stdout: the disk is full; ")


def test_closed_streams_are_replaced(monkeypatch):
    monkeypatch.setattr("atexit.register", lambda *given: None)
    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, name, None)
    guard_streams()
    assert sys.stdin.read() == ""
    print("lost", file=sys.stderr, flush=True)
    monkeypatch.setattr(sys, "stderr", said := io.StringIO())
    raised(click.exceptions.Exit, show, ["lost"])
    assert said.getvalue() == "distls: cannot write to stdout: it is closed; send it elsewhere\n"
    refuses(StorageError, "it is closed; send it elsewhere", check_stdout)


@pytest.mark.parametrize("terminal", [True, False])
def test_a_table_is_its_bytes_unless_a_terminal_shows_it(monkeypatch, tmp_path, terminal):
    content = b'row,label\r\n0,"a\x1b[2J\n9,b"\r\n'
    (tmp_path / "p.csv").write_bytes(content)
    stream = io.TextIOWrapper(raw := io.BytesIO(), encoding="utf-8", write_through=True)
    monkeypatch.setattr(stream, "isatty", lambda: terminal, raising=False)
    monkeypatch.setattr(sys, "stdout", Output(stream))
    show_table(tmp_path / "p.csv")
    assert raw.getvalue() == (b'row,label\n0,"a\\x1b[2J\\n9,b"\n' if terminal else content)


def test_progress_that_cannot_be_written_costs_no_round():
    LineProgress(Failing())._say("round 1")
    with open("/dev/null") as closed:
        LineProgress(closed)._say("round 1")


# -- what commands say about where they run --------------------------------------------------------------


@pytest.mark.parametrize(
    ("workers", "begun"), [(1, "1 worker process on this machine"), (2, "2 worker processes on this machine")]
)
def test_worker_processes_are_said_to_be_within_reach_of_other_users(workers, begun):
    """A Dask cluster on loopback has no passwords: whoever reaches it runs programs as its user."""
    said = support._chosen_executor(ClusterOptions(executor="dask", workers=workers))
    assert said.startswith(f"{begun}, whose other users can reach ")
    assert said.endswith("run programs as you (--executor serial starts none)")


def test_without_workers_there_is_nothing_to_reach():
    assert "users" not in support._chosen_executor(ClusterOptions(executor="serial"))


# -- `distls warm` ---------------------------------------------------------------------------------------


@pytest.mark.fast_cases("none")
@pytest.mark.parametrize("methods", [[], ["sgd", "bcd"]], ids=["none", "methods"])
def test_tables_and_text_are_used(methods):
    assert distls("warm", *methods) == (0, "", "the kernels of first commands are compiled\n")


def test_another_name_is_refused():
    done = distls("warm", "sgdd")
    assert done.code == 2
    assert "sgdd" in done.err


@pytest.mark.slow
def test_a_first_fit_then_compiles_nothing(tmp_path):
    cache = tmp_path / "cache"
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}

    def run(*words):
        subprocess.run([sys.executable, "-m", "distls", *words], env=environment, check=True, cwd=tmp_path)
        return set(cache.rglob("*.nbc"))

    compiled = run("warm", "sgd", "--quiet")
    assert compiled
    (tmp_path / "t.csv").write_text("h,w,y\n" + "".join(f"{i},{i % 3},{'ab'[i % 2]}\n" for i in range(50)))
    assert run("train", "t.csv", "m", "--quiet") == compiled
    assert run("fit", "sgd", "m-data", "f", "--quiet") == compiled
    assert run("predict", "m", "t.csv", "p.csv", "--labelled") == compiled
