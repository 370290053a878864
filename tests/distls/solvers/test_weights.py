"""What weights mean to every family: two is a row twice, a class's is that of its rows. Partitions mean nothing."""

from typing import Any, NamedTuple

import numpy as np
import pytest
from helpers import labelled_rows, write_dataset

from distls.columns.sharding import add_columns
from distls.training.fitting import fit


class Case(NamedTuple):
    """A fit whose result does not depend on the order of rows, and how near two of them are."""

    method: str
    params: dict[str, Any]
    passes: float | None = None
    near: float = 1e-8


CASES = {
    "gls identity": Case("gls", {"link": "identity", "alpha": 0.01}),
    "gls softmax": Case("gls", {"link": "softmax", "alpha": 0.01}, passes=12),
    "cls": Case("cls", {"rounds": 4}),
    "stagewise calibrated": Case("stagewise", {"inner": "calibrated", "block_size": 11, "dtype": "float64"}),
    "stagewise logistic": Case(
        "stagewise", {"inner": "logistic", "inner_rounds": 3, "block_size": 11, "dtype": "float64"}
    ),
    "bcd": Case("bcd", {"alpha": 1e-2, "lanes": 1, "tau": 1e-9}, near=1e-7),
    "fista": Case("fista", {"alpha": 1e-2, "tau": 1e-9}, passes=400, near=1e-6),
}
ROWS = 200


@pytest.fixture(scope="module")
def rows():
    x, y = labelled_rows(ROWS, 30, 3)
    return x, y


def _fitted(case, dataset, **params):
    if case.method in ("bcd", "fista"):
        add_columns(dataset.path)
    model = fit(case.method, dataset.path, params={**case.params, **params}, passes=case.passes).model
    return np.vstack([model.weights, model.intercept])


@pytest.mark.fast_cases("gls identity$")
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_weight_of_two_is_a_row_twice_or_its_classs(case, rows, tmp_path):
    x, y = rows
    of_rows = write_dataset(tmp_path / "w", x, y, sample_weight=np.where(y == 1, 2.0, 1.0))
    plain = write_dataset(tmp_path / "p", x, y)
    twice = np.concatenate([np.arange(ROWS), np.flatnonzero(y == 1)])
    repeated = _fitted(case, write_dataset(tmp_path / "r", x[twice], y[twice]))
    for other in (_fitted(case, of_rows), _fitted(case, plain, class_weight={"1": 2.0})):
        np.testing.assert_allclose(other, repeated, rtol=case.near, atol=case.near)
    assert np.abs(_fitted(case, plain) - repeated).max() > 1e-3


@pytest.mark.fast_cases("stagewise calibrated$")
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_partitions_change_rounding_only(case, rows, tmp_path):
    one, other = (
        _fitted(case, write_dataset(tmp_path / f"{size}", *rows, partition_rows=size)) for size in (ROWS, 37)
    )
    np.testing.assert_allclose(one, other, rtol=case.near, atol=case.near)


def test_the_weight_of_a_class_has_the_bits_of_that_of_its_rows(rows, tmp_path):
    x, y = rows
    weight = np.where(y == 1, 3.0, 1.0)
    weighted = Case("mcid", {"alpha": 1e-2}, passes=2)
    by_row = _fitted(weighted, write_dataset(tmp_path / "w", x, y, sample_weight=weight))
    by_class = _fitted(weighted, write_dataset(tmp_path / "p", x, y), class_weight={"1": 3.0})
    assert np.array_equal(by_class, by_row)
