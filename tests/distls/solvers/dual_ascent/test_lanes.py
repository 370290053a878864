"""How many lanes dual ascent has by default."""

import pytest
from helpers import labelled_rows, write_dataset

from distls.planning.fit_plan import plan_fit
from distls.training.fitting import fit


@pytest.fixture(scope="module")
def rows():
    """Rows of four classes."""
    return labelled_rows(400, 100, 4)


@pytest.mark.parametrize(("partition_rows", "lanes"), [(400, 1), (200, 1), (150, 2), (50, 2)])
def test_default_lanes_are_fewer_than_partitions(tmp_path, rows, partition_rows, lanes):
    data = write_dataset(tmp_path / "d", *rows, partition_rows=partition_rows)
    assert plan_fit("sdca", data.path, {"alpha": 1e-3}, probe=False).lanes == lanes


def test_two_partitions_take_few_passes(tmp_path, rows):
    """With a lane for each, their rows never meet in a lane."""
    data = write_dataset(tmp_path / "d", *rows, partition_rows=200)
    params = {"alpha": 1e-3, "loss": "hinge"}
    apart = fit("sdca", data, params={**params, "lanes": 2}, rtol=1e-3, passes=100)
    together = fit("sdca", data, params=params, rtol=1e-3, passes=100)
    assert 3 * together.passes <= apart.passes
