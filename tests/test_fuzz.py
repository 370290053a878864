"""The fuzz of the readers finds what it should, repeats its cases, and ends well on a few of each reader."""

import json
import random

import pytest

from benchmarks.faults import damages, fuzz, fuzz_seeds
from benchmarks.faults.fuzz_seeds import READERS, Reader


@pytest.mark.slow
def test_a_few_cases_of_each_reader(tmp_path, capsys):
    report = fuzz.main(["--seed", "5", "--cases", "6", "--minutes", "60", "--out", str(tmp_path / "out.json")])
    assert json.loads((tmp_path / "out.json").read_text()) == report
    assert report["cases"] == dict.fromkeys(READERS, 6)
    assert report["trouble"] == []
    assert all(peak > 0 for peak in report["peak_mib"].values())
    assert capsys.readouterr().out.endswith(f"{6 * len(READERS)} cases, seed 5: 0 with trouble\n")


@pytest.mark.parametrize("change", fuzz._CHANGES)
def test_each_change_changes_and_repeats_itself(change):
    content = bytes(range(256)) * 3
    assert sum(change(content, random.Random(seed)) != content for seed in range(20)) >= 15
    assert change(content, random.Random(1)) == change(content, random.Random(1))
    for empty in (b"", b"1"):
        assert isinstance(change(empty, random.Random(0)), bytes)


def _raises(error):
    def read(path, place):
        raise error

    return read


def _make(folder):
    (folder / "a.json").write_text('{"a": [1, 2.5, {"b": "text"}]}')


@pytest.mark.parametrize(
    ("error", "trouble"),
    [
        (fuzz.DistlsError("one line"), None),
        (KeyError("a"), "KeyError: 'a'"),
        (RecursionError(), "RecursionError: "),
        (TimeoutError("more than 60 s"), "TimeoutError: more than 60 s"),
    ],
)
def test_what_a_reader_lets_through_is_trouble(tmp_path, monkeypatch, error, trouble):
    monkeypatch.setitem(fuzz_seeds.READERS, "mine", Reader(_make, _raises(error)))
    fuzz_seeds.make_seeds(tmp_path / "seeds", ["mine"])
    (tmp_path / "place").mkdir()
    assert fuzz.run_case(tmp_path / "seeds", "mine", 0, 3, tmp_path / "place") == trouble
    before = (tmp_path / "place" / "a.json").read_bytes()
    (tmp_path / "again").mkdir()
    fuzz.run_case(tmp_path / "seeds", "mine", 0, 3, tmp_path / "again")
    assert (tmp_path / "again" / "a.json").read_bytes() == before


def test_a_process_that_dies_is_trouble(tmp_path):
    # no good files: the case cannot even begin
    (found,) = fuzz._batch(tmp_path, "npy", 0, 0, 3)
    assert found == {"case": 0, "trouble": "the process ended with 1", "peak_mib": 0}


# -- any file of a data set, run, model or cache that is damaged, moved or replaced is refused, or has no effect ---


TRIALS = 100  # of each subject, in the slow lane
FEW = 8
FAST = ("dataset", "half ingest", "half columns", "model", "half mcid", "kernels")


def _trials(name, folder, seed, count):
    expected = damages.make_subject(name, folder / "made")
    found = []
    for number in range(count):
        done, wrong = damages.run_trial(name, folder / "made", seed, number, folder / f"t{number}", expected)
        found += [] if wrong is None else [f"{number}, {done}: {wrong}"]
    return found


@pytest.mark.fast_cases("dataset", "kernels")
@pytest.mark.parametrize("name", FAST)
def test_a_few_trials(name, tmp_path):
    assert _trials(name, tmp_path, 0, FEW) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", list(damages.SUBJECTS))
def test_trials(name, tmp_path):
    """Fault: A file with a bit flipped, cut, removed, moved, or replaced by one of another of its kind | each file of
    data sets, half-done ingests and transpositions, models, runs that have ended or not, fits of several settings,
    compiled kernels; 1,700 files | as if nothing had been, or one line"""
    assert _trials(name, tmp_path, 1, TRIALS) == []


def test_a_result_that_is_another_is_trouble(tmp_path):
    damages.make_subject("kernels", tmp_path / "made")
    ends = [
        damages.run_trial("kernels", tmp_path / "made", 0, number, tmp_path / f"t{number}", ["else"])[1]
        for number in range(FEW)
    ]
    assert any(wrong is not None and wrong.startswith("another result") for wrong in ends)
