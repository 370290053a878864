"""Standard streams that are closed, full, without a reader or of another encoding, under every command."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys

import pytest
from helpers import SECONDS, free_port, wait_until

from distls.cli import cli

# what a terminal or a browser would obey: of C0 and C1, a bidirectional override, a line break
EVIL = "日本\x1b]0;x\x07\x9b2J\u202e\x7f"
SERIAL = ["--executor", "serial"]
# Commands, what they are given in the fixture's folder, and whether what they print is their product.
WALK = {
    "calibrate": ("calibrate r t.csv", False),
    "cluster": ("cluster --workers 1 --port PORT", False),
    "columns": ("columns d", False),
    "compare": ("compare r r2", True),
    "completion": ("completion bash", True),
    "demo": ("demo --rows 1000 --workers 1 --directory demo", False),
    "evaluate": ("evaluate r d", True),
    "export": ("export r out.npz --to npz", False),
    "fit": ("fit gls d out --passes 1", False),
    "generate": ("generate rcv1-4 out --rows 1000", False),
    "import": ("import m.liblinear out --from liblinear", False),
    "append": ("append d t.csv --again", False),
    "info": ("info r", True),
    "ingest": ("ingest t.csv out --label-column y", False),
    "man": ("man", True),
    "methods": ("methods gls", True),
    "plan": ("plan gls d --no-probe", True),
    "predict": ("predict r d", True),
    "report": ("report r", True),
    "resume": ("resume r --passes 3", False),
    "train": ("train t.csv out --label-column y", False),
    "warm": ("warm", False),
    "--help": ("--help", True),
    "--version": ("--version", True),
    "report --html": ("report r --html out.html", False),
    "report --json": ("report r --json", True),
    "report --live": ("report r --live --port PORT", False),
}
# How the shell redirects (9 is a pipe without a reader), the encoding, and whether stdout can be written.
STREAMS = [
    ("", "ascii:strict", True),
    ("", "latin-1:strict", True),
    ("2>/dev/full", "", True),
    ("<&- 2>&9", "", True),
    (">&-", "", False),
    (">/dev/full", "", False),
    (">&9", "", False),
    ("<&- >&- 2>&-", "", False),
]
# of the locale, where nothing says that it is UTF-8
C = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def test_the_walk_is_over_all_commands():
    assert set(cli.commands) <= set(WALK)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A table whose label and column no terminal should obey, its data set and a run."""
    root = tmp_path_factory.mktemp("streams")
    rows = "".join(f"{i % 7},{i % 3},{[EVIL, 'b'][i % 2]}\n" for i in range(60))
    (root / "t.csv").write_text(f"{EVIL},b,y\n{rows}", encoding="utf-8")
    for line in (
        "ingest t.csv d --label-column y",
        "fit gls d r --passes 2",
        "fit gls d r2 --passes 1",
        "export r m.liblinear --to liblinear",
    ):
        assert _ended(root, line)[0] == 0
    return root


def _ended(place, line, how="", encoding=""):
    """Run a command, one that serves until it is interrupted; return exit code, stdout and stderr."""
    port = free_port()
    reading, writing = os.pipe()  # without a reader
    os.close(reading)
    environment = {**C, "PYTHONIOENCODING": encoding} if encoding else {}
    command = [sys.executable, "-m", "distls", *line.replace("PORT", str(port)).split()]
    with subprocess.Popen(
        ["bash", "-c", f'exec 9>&{writing} "$@" {how}', "-", *command], cwd=place, env={**os.environ, **environment},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, pass_fds=[writing],
    ) as process:  # fmt: skip
        os.close(writing)
        if "PORT" in line:
            wait_until(lambda: process.poll() is not None or _answers(port))
            process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=SECONDS)
    return process.returncode, out.decode("utf-8", "replace"), err.decode("utf-8", "replace")


def _answers(port):
    with socket.socket() as asking:
        return asking.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.fast_cases("info$")
@pytest.mark.parametrize("name", WALK)
def test_no_stream_ends_a_command(made, tmp_path, name):
    """Fault: Standard streams closed, full, without a reader, of another encoding | each command, in eight settings |
    nothing; where what is printed is the product and stdout fails, one line and exit code 1"""
    line, product = WALK[name]
    for number, (how, encoding, writable) in enumerate(STREAMS):
        place = tmp_path / str(number)
        shutil.copytree(made, place)
        code, out, err = _ended(place, line, how, encoding)
        case = f"{line} {how} {encoding}: exit {code}, {err}"
        assert "Traceback" not in err, case
        # what serves may be interrupted before it is ready
        assert code == (0 if writable or not product else 1) or (code == 3 and "PORT" in line), case
        if not writable and product and "2>" not in how and "9" not in how:
            assert "cannot write to stdout" in err, case
        if name != "predict":  # a table of bytes, unless a terminal asks for it
            assert re.search(r"[^ -~\n\xa1-\U0010ffff]|[\u202a-\u202e]", out + err) is None, case
        if not product:
            assert {path.name for path in place.iterdir()} >= {*line.split()} & OUTPUTS, case


OUTPUTS = {"out", "out.npz", "out.html", "out.csv", "demo"}
