"""Any file of a data set, run, model or cache that is damaged, moved or replaced is refused, or has no effect."""

import pytest

from benchmarks.faults import damages

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
