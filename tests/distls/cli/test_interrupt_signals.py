"""Signals to a command: one KeyboardInterrupt each, exit code 3, one line."""

import signal
import subprocess
import sys
import time

import click
import pytest
from helpers import SECONDS, distls, refuses

from distls.cli import cli, interrupts

SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


@pytest.fixture
def ran():
    """Run a function as a command; return exit code, stdout, stderr."""

    def run(body):
        cli.add_command(click.Command("for-a-test", callback=body))
        return distls("for-a-test")

    before = [signal.getsignal(number) for number in SIGNALS]
    for number in SIGNALS:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    yield run
    cli.commands.pop("for-a-test")
    # the command has left them as they were
    assert [signal.getsignal(number) for number in SIGNALS] == [
        signal.default_int_handler,
        signal.SIG_DFL,
        signal.SIG_DFL,
    ]
    for number, handler in zip(SIGNALS, before, strict=True):
        signal.signal(number, handler)


@pytest.mark.fast_cases("2")
@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_ends_with_code_3(ran, number):
    assert ran(lambda: signal.raise_signal(number)) == (3, "", "interrupted\n")


@pytest.mark.fast_cases("2-2", "1-1$")
@pytest.mark.parametrize("first", SIGNALS)
@pytest.mark.parametrize("second", SIGNALS)
def test_what_is_saved_after_the_first_is_not_lost_to_the_second(ran, first, second):
    def body():
        try:
            signal.raise_signal(first)
        except KeyboardInterrupt:
            signal.raise_signal(second)
            click.echo("saved")
            raise

    assert ran(body) == (3, "saved\n", "interrupted\n")


def test_the_compiler_is_not_interrupted(ran):
    def body():
        compiler = {"__name__": "numba.core.compiler", "time": time, "signal": signal}
        source = "def compile_it(path):\n    signal.raise_signal(signal.SIGINT)\n    path.append('compiled')\n"
        exec(source, compiler)
        compiled = []
        compiler["compile_it"](compiled)
        click.echo(*compiled)
        time.sleep(SECONDS)

    assert ran(body) == (3, "compiled\n", "interrupted\n")


def test_but_for_a_while_only(ran, monkeypatch):
    monkeypatch.setattr(interrupts, "COMPILING_SECONDS", 0.1)
    forever = "def compile_it():\n    signal.raise_signal(signal.SIGINT)\n    time.sleep(SECONDS)\n"
    compiler = {"__name__": "numba.core", "time": time, "signal": signal, "SECONDS": SECONDS}
    exec(forever, compiler)
    assert ran(compiler["compile_it"]) == (3, "", "interrupted\n")


def test_a_finalizer_does_not_swallow_it(ran, capfd):
    class Final:
        def __del__(self):
            signal.raise_signal(signal.SIGINT)

    def body():
        Final()
        time.sleep(SECONDS)
        click.echo("not reached")

    assert ran(body) == (3, "", "interrupted\n")
    assert capfd.readouterr().err == ""


def test_other_errors_of_finalizers_are_still_reported(ran, monkeypatch):
    class Final:
        def __del__(self):
            raise ValueError("finally")

    reported = []
    monkeypatch.setattr(sys, "unraisablehook", lambda lost: reported.append(lost.exc_type))
    assert ran(lambda: [Final()].clear()) == (0, "", "")
    assert reported == [ValueError]


def test_ctrl_c_stays_ignored_where_it_is(ran):
    def body():
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
        signal.raise_signal(signal.SIGTERM)

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert ran(body) == (3, "", "interrupted\n")
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def test_a_demo_says_so_too(monkeypatch):
    monkeypatch.setattr("distls.cli.demo.run_demo", lambda rows, directory, workers: 3)
    assert distls("demo") == (3, "", "interrupted\n")


def test_a_lost_terminal_is_ignored_where_it_is(ran):
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert ran(lambda: signal.raise_signal(signal.SIGHUP)) == (0, "", "")
    finally:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.mark.parametrize("body", ["exec('raise KeyboardInterrupt')", "raise KeyboardInterrupt"])
def test_the_exit_code_where_python_would_end_by_the_signal(tmp_path, body):
    (tmp_path / "program.py").write_text(
        f"import sys\nfrom distls.cli import cli, main\n@cli.command()\ndef body():\n    {body}\n"
        "sys.argv = ['distls', 'body']\nmain()\n"
    )
    ended = subprocess.run([sys.executable, "-m", "program"], cwd=tmp_path, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (3, "", "interrupted\n")


def test_a_process_without_memory_stops_at_once_too(monkeypatch):
    """Nothing that fails while its children are looked for keeps it alive."""

    class Gone(BaseException):
        pass

    def end(code):
        raise Gone(code)

    def nothing_left():
        raise MemoryError

    monkeypatch.setattr("psutil.Process", nothing_left)
    monkeypatch.setattr("os._exit", end)
    refuses(Gone, r"^3$", interrupts.leave, 3)
