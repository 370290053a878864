"""Which rows of a partition are in which part of a pass of dual ascent."""

from types import SimpleNamespace

import numpy as np
import pytest

from distls.workers.dual_ascent.ascent_task import rows_of_runs, runs_of


def _parts(n_rows, parts, mixing, index=0, shuffle=True):
    jobs = [SimpleNamespace(parts=parts, part=p, mixing=mixing, shuffle=shuffle) for p in range(parts)]
    return [rows_of_runs(runs_of(n_rows, job, index), n_rows, parts) for job in jobs]


@pytest.mark.fast_cases(
    "True-1-0", "True-2-1$", "True-3-2", "True-4-5", "True-6-16$", "False-1-160", "False-2-161", "False-3-480",
    "False-4-3001", "False-6-3072",
)  # fmt: skip
@pytest.mark.parametrize("n_rows", [0, 1, 2, 5, 16, 160, 161, 480, 3001, 3072])
@pytest.mark.parametrize("parts", [1, 2, 3, 4, 6])
@pytest.mark.parametrize("shuffle", [True, False])
def test_every_row_is_in_one_part_of_a_pass(n_rows, parts, shuffle):
    for mixing in ((0, 0), (5, 3), (2**31 - 1, 2**31 - 2)):
        found = _parts(n_rows, parts, mixing, index=7, shuffle=shuffle)
        assert sorted(np.concatenate(found)) == list(range(n_rows))
        # of about the same size: a few runs of 16 rows more or less
        assert max(map(len, found)) - min(map(len, found)) <= 48


@pytest.mark.fast_cases("2-960", "3-960", "3-1440", "4-1440")
@pytest.mark.parametrize("n_rows", [16 * 60, 16 * 61, 16 * 64, 16 * 90])  # divisible by each number of parts, or not
@pytest.mark.parametrize("parts", [2, 3, 4])
def test_other_rows_share_a_part_in_every_pass(n_rows, parts):
    random = np.random.default_rng(3)
    passes = [_parts(n_rows, parts, tuple(random.integers(0, 2**31, 2).tolist())) for _ in range(30)]
    met = np.zeros((n_rows, n_rows), bool)
    for found in passes:
        for rows in found:
            met[np.ix_(rows, rows)] = True
    # were parts the same in every pass, each row would meet 1 in `parts` of the others
    assert met.mean() > 0.95
