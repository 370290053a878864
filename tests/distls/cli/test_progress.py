"""Progress: lines for logs, a bar for terminals, nothing for --quiet."""

import io
from types import SimpleNamespace

import pytest
from rich.console import Console

import distls.cli.progress
from distls.cli.progress import BarProgress, fit_progress, work_progress
from distls.solvers.events import FitStart, RoundEvent
from distls.solvers.solver import State
from distls.solvers.status import Status
from distls.training.callbacks import History, LineProgress, describe_round

START = FitStart("mcid", "softmax", "train", 12_000, 8, 2, 5.0, 0.0)
RECORD = {
    "round": 2, "passes": 1.5, "seconds": 3.25, "running_loss": 0.5, "running_error": 0.125, "bytes_read": 3 * 2**20
}  # fmt: skip


def event(**changes):
    return RoundEvent({**RECORD, **changes}, State(2, 1.5), {})


@pytest.mark.parametrize(("terminal", "kind"), [(True, BarProgress), (False, LineProgress)])
def test_a_bar_only_on_a_terminal(monkeypatch, terminal, kind):
    monkeypatch.setattr("sys.stderr", SimpleNamespace(isatty=lambda: terminal))
    assert isinstance(fit_progress(), kind)


PLAIN = "round 2, 1.50 passes, 3.2 s, running loss 0.50000 error 12.50 %"


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({}, f"{PLAIN}, read 3 MiB"),
        ({"running_loss": None}, f"{PLAIN.replace('0.50000', 'not finite')}, read 3 MiB"),
        ({"eval_error": 0.5}, f"{PLAIN}, eval error 50.00 %, read 3 MiB"),
        (
            {"objective": 0.25, "certificate": {"kind": "duality_gap", "value": 0.125}},
            f"{PLAIN}, objective 0.250000, duality_gap 1.25e-01, read 3 MiB",
        ),
        (
            {"objective": 0.25, "certificate": {"kind": "none", "value": None}},
            f"{PLAIN}, objective 0.250000, read 3 MiB",
        ),
        (
            {"objective": None, "certificate": {"kind": "duality_gap", "value": None}},
            f"{PLAIN}, objective not finite, read 3 MiB",
        ),
    ],
)
def test_a_round_is_one_line(changes, line):
    assert describe_round(event(**changes).record) == line


@pytest.mark.parametrize(("limit", "text"), [(5.0, ", passes 5 at most"), (None, ""), (0.5, ", passes 0.5 at most")])
def test_lines_of_a_fit(limit, text):
    stream = io.StringIO()
    progress = LineProgress(stream)
    progress.on_start(FitStart("mcid", "softmax", "train", 12_000, 8, 2, limit, 0.0))
    progress.on_round(event())
    progress.on_end(Status.MAX_PASSES, State())
    assert stream.getvalue().splitlines() == [
        f"mcid (softmax): 12,000 rows of train, lanes 8, worker threads 2{text}", f"{PLAIN}, read 3 MiB"
    ]  # fmt: skip


def test_thousands_of_quick_rounds_are_a_few_lines():
    stream, now = io.StringIO(), [0.0]
    progress = LineProgress(stream, clock=lambda: now[0])
    for number in range(1, 501):
        now[0] += 1 / 64
        progress.on_round(event(round=number))
    progress.on_end(Status.MAX_PASSES, State())
    shown = [int(line.split(",")[0].removeprefix("round ")) for line in stream.getvalue().splitlines()]
    # the first twenty, then one a second, and the last
    assert shown == [*range(1, 21), 84, 148, 212, 276, 340, 404, 468, 500]


def test_history_keeps_every_record():
    history = History()
    for number in (1, 2, 3):
        history.on_round(event(round=number))
    assert [record["round"] for record in history.records] == [1, 2, 3]


@pytest.fixture
def screen(monkeypatch):
    """A terminal as a file."""
    stream = io.StringIO()
    monkeypatch.setenv("TERM", "xterm")

    def console(**_):
        return Console(file=stream, force_terminal=True, width=200, color_system=None)

    monkeypatch.setattr("rich.console.Console", console)
    return stream


HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"


def test_a_bar_shows_the_facts_and_gives_the_cursor_back(screen):
    bar = BarProgress()
    bar.on_start(START)
    assert HIDE in screen.getvalue()
    assert "12,000 rows, 8 lanes, 2 threads" in screen.getvalue()
    bar.on_round(event())
    bar.on_round(event(objective=0.25, certificate={"kind": "duality_gap", "value": 0.125}, eval_error=0.5))
    bar.on_end(Status.MAX_PASSES, State())
    text = screen.getvalue()
    assert text.rindex(SHOW) > text.rindex(HIDE)
    last = text[: text.rindex(SHOW)].split("mcid train")[-1]
    assert "1.5 passes" in last
    assert (
        "loss 0.50000 error 12.50 %, objective 0.250000, duality_gap 1.25e-01, eval error 50.00 %, read 6.0 MiB" in last
    )


@pytest.mark.parametrize(("loss", "text"), [(0.0, "loss 0.00000 error"), (None, "loss not finite")])
def test_a_bar_tells_no_loss_from_none(screen, loss, text):
    bar = BarProgress()
    bar.on_start(START)
    bar.on_round(event(running_loss=loss))
    bar.on_end(Status.MAX_PASSES, State())
    assert text in screen.getvalue()


def test_quiet_work_reports_nothing():
    with work_progress(quiet=True) as report:
        assert report is None


def test_work_in_lines(monkeypatch, capsys):
    now = [100.0]
    monkeypatch.setattr(distls.cli.progress, "time", SimpleNamespace(monotonic=lambda: now[0]))
    with work_progress(quiet=False) as report:
        for done, what, seconds in (
            (0, "parse", 0),
            (0, "parse", 9),
            (5, "parse", 1),
            (6, "parse", 9),
            (7, "parse", 1),
            (1, "write", 0),
            (9, "write", 2),
        ):
            now[0] += seconds
            report(done, 10, what)
    # none of what takes a moment, and none of 0 %
    assert capsys.readouterr() == ("", "parse: 50 %\nparse: 70 %\n")


def test_work_as_a_bar(screen, monkeypatch):
    monkeypatch.setattr("sys.stderr", SimpleNamespace(isatty=lambda: True))
    with work_progress(quiet=False) as report:
        report(1, 2, "parse")
        report(2, 2, "parse")
        report(1, 4, "write")
    last = screen.getvalue().split(HIDE)[-1]
    assert "parse" in last
    assert "100 %" in last
    assert " 25 %" in last
    assert last.endswith(SHOW)


def test_names_in_a_bar_are_text(screen, monkeypatch):
    monkeypatch.setattr("sys.stderr", SimpleNamespace(isatty=lambda: True))
    with work_progress(quiet=False) as report:
        report(1, 2, "writing [/x]\x1b]0;y\x07")
    assert "writing [/x]\\x1b]0;y\\x07" in screen.getvalue()


def test_an_error_in_the_work_gives_the_cursor_back(screen, monkeypatch):
    monkeypatch.setattr("sys.stderr", SimpleNamespace(isatty=lambda: True))

    def interrupted():
        with work_progress(quiet=False) as report:
            report(1, 2, "parse")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert screen.getvalue().endswith(SHOW)
