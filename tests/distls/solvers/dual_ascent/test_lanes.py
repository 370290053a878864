"""How many lanes dual ascent has by default."""

import pytest
from helpers import labelled_rows, write_dataset

from distls.execution import ClusterOptions
from distls.planning.fit_plan import plan_fit
from distls.solvers.dual_ascent import sdca
from distls.testing.solvers import StopAfter, interrupted
from distls.training.fitting import fit, resume


@pytest.fixture(scope="module")
def rows():
    """Rows of four classes."""
    return labelled_rows(400, 100, 4)


@pytest.mark.fast_cases("400")
@pytest.mark.parametrize(("partition_rows", "lanes"), [(400, 1), (200, 1), (150, 2), (50, 2)])
def test_default_lanes_are_fewer_than_partitions(tmp_path, rows, partition_rows, lanes):
    data = write_dataset(tmp_path / "d", *rows, partition_rows=partition_rows)
    assert plan_fit("sdca", data.path, {"alpha": 1e-3}, probe=False).lanes == lanes


@pytest.mark.slow
def test_two_partitions_take_few_passes(tmp_path, rows):
    """With a lane for each, their rows never meet in a lane."""
    data = write_dataset(tmp_path / "d", *rows, partition_rows=200)
    params = {"alpha": 1e-3, "loss": "hinge", "fit_intercept": False}
    apart = fit("sdca", data, params={**params, "lanes": 2}, rtol=1e-3, passes=100)
    together = fit("sdca", data, params=params, rtol=1e-3, passes=100)
    assert 3 * together.passes <= apart.passes


@pytest.mark.fast_cases("150-None")
@pytest.mark.parametrize(("held", "given", "groups"), [(150, None, 1), (150, 128, 2), (192, None, 1), (300, None, 3)])
def test_a_lane_holds_all_of_its_partitions_or_groups_of_them(tmp_path, monkeypatch, rows, held, given, groups):
    """It follows from the data and the lanes: all up to 192 MiB, else groups of 128."""
    data = write_dataset(tmp_path / "d", *rows, partition_rows=50)
    monkeypatch.setattr(sdca, "MIB", int(data.decoded_bytes.sum()) / 2 / held)
    params = {"alpha": 1e-3, "rounds": 1, **({} if given is None else {"group_mib": given})}
    assert plan_fit("sdca", data.path, params, probe=False).rounds_per_pass == groups


def test_a_run_keeps_the_groups_that_it_was_begun_with(tmp_path, monkeypatch, rows):
    """The former default, 128, is recorded in runs made before."""
    data = write_dataset(tmp_path / "d", *rows, partition_rows=50)
    monkeypatch.setattr(sdca, "MIB", int(data.decoded_bytes.sum()) / 2 / 150)
    before = {"alpha": 1e-3, "group_mib": 128}
    whole = fit("sdca", data, params=before, passes=3).model.sha256
    with interrupted():
        fit("sdca", data, tmp_path / "run", params=before, passes=3, callbacks=[StopAfter(3)])
    assert resume(tmp_path / "run").model.sha256 == whole
    assert fit("sdca", data, params={"alpha": 1e-3}, passes=3).model.sha256 != whole


@pytest.mark.parametrize(("method", "lanes"), [("sdca", 2), ("ovr-sdca", 1)])
def test_the_plan_has_no_more_lanes_at_work_than_there_are(tmp_path, rows, method, lanes):
    """Threads beyond the lanes read for evaluations, and train nothing."""
    data = write_dataset(tmp_path / "d", *rows, partition_rows=50)

    def planned(threads):
        cluster = ClusterOptions(executor="dask", workers=2, threads_per_worker=threads, memory_limit=2**33)
        parts = plan_fit(method, data.path, {"alpha": 1e-3}, cluster=cluster, probe=False).worker_parts
        (work,) = (size for name, size in parts.items() if name == "work" or name.startswith("blocks"))
        return work, parts["partitions"]

    (one, read), (six, read_by_six) = planned(1), planned(6)
    assert six == lanes * one
    assert read_by_six == pytest.approx(6 * read, abs=6)
