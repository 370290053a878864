"""What commands print: escapes for what a terminal obeys, and streams that fail."""

import errno
import io
import sys

import click
import pytest

from distls.cli.output import Output, check_stdout, guard_streams, show, show_table
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
    with pytest.raises(click.exceptions.Exit):
        show(["lost"])
    assert said.getvalue() == "distls: cannot write to stdout: it is closed; send it elsewhere\n"
    with pytest.raises(StorageError, match="it is closed; send it elsewhere"):
        check_stdout()


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
