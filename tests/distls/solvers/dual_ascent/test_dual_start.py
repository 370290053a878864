"""Starts of dual ascent: the duals of another alpha, and the slopes at the weights of a pass of `sgd`."""

import pytest
from helpers import labelled_rows, refuses, write_dataset

from distls.execution import ClusterOptions
from distls.planning.fit_plan import plan_fit
from distls.solvers.status import Status
from distls.storage.errors import MemoryPlanError, ParameterError
from distls.testing.solvers import StopAfter, interrupted
from distls.training.callbacks import History
from distls.training.fitting import fit, resume

MANY = {"alpha": 1e-2, "lanes": 16, "start": "sgd"}


def test_the_duals_of_a_larger_alpha_are_scaled(tmp_path):
    """Times alpha / alpha', as they are, the scores would be too large."""
    data = write_dataset(tmp_path / "d", *labelled_rows(400, 100, 4), partition_rows=150)
    fit("sdca", data, tmp_path / "larger", params={"alpha": 1e-2}, rtol=1e-4)

    def gap(**params):
        record = fit("sdca", data, params={"alpha": 3e-3, **params}, passes=1, eval_every=1).record
        return record["certificate"]["relative"]

    assert 10 * gap(init=str(tmp_path / "larger")) <= gap()


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """Rows in more partitions than `MANY` lanes."""
    return write_dataset(tmp_path_factory.mktemp("many") / "d", *labelled_rows(1200, 100, 2), partition_rows=50)


def test_many_lanes_start_at_the_slopes_of_a_pass_of_sgd(many):
    """That is two reads, after which lanes go on from weights near the optimum."""
    found = {}
    for start in ("sgd", "zero"):
        history = History()
        params = {**MANY, "start": start}
        result = fit("sdca", many, params=params, passes=12, rtol=1e-3, eval_every=1, callbacks=[history])
        found[start] = result, [each["passes"] for each in history.records]
        if start == "sgd":  # its pass and the read of the slopes
            assert [each["n_rows"] for each in history.records[:2]] == pytest.approx([2400, 600], abs=60)
            told = history.records[0]
            assert told["bytes_read"] + told["cached_bytes"] >= 2 * many.stored_bytes.sum()
    (made, passes), (plain, _) = found["sgd"], found["zero"]
    assert passes[:2] == pytest.approx([2.0, 2.5], abs=0.05)
    assert made.status == Status.CONVERGED
    assert made.passes < plain.passes
    gap = made.record["certificate"]["value"]
    assert made.record["objective"] - gap <= plain.record["objective"]


def test_a_fit_from_sgd_resumes_to_the_same_bits(many, tmp_path):
    whole = fit("sdca", many, params=MANY, passes=4).model.sha256
    for rounds in (1, 2):
        run = tmp_path / f"after-{rounds}"
        with interrupted():
            fit("sdca", many, run, params=MANY, passes=4, callbacks=[StopAfter(rounds)])
        assert resume(run).model.sha256 == whole
    with_workers = fit("sdca", many, params=MANY, passes=4, executor="dask", workers=2)
    assert with_workers.model.sha256 == whole


@pytest.mark.parametrize(
    ("width", "lanes", "loss", "begins"),
    [(1200, 32, "log", 2.0), (1200, 31, "log", 0.5), (1000, 32, "log", 0.5), (1200, 32, "hinge", 0.5)],
    ids=str,
)
def test_wide_rows_in_many_lanes_start_so_by_default(tmp_path, width, lanes, loss, begins):
    data = write_dataset(tmp_path / "d", *labelled_rows(660, width, 2), partition_rows=20)
    history = History()
    params = {"alpha": 1e-3, "lanes": lanes, "loss": loss}
    fit("sdca", data, params=params, passes=3, eval_every=0, callbacks=[history])
    assert history.records[0]["passes"] == pytest.approx(begins, abs=0.1)


@pytest.mark.parametrize("method", ["sdca", "newton"])
def test_a_model_and_a_pass_of_sgd_are_not_both_begun_with(many, tmp_path, method):
    fit(method, many, tmp_path / "run", params={"alpha": 1e-2, "start": "zero"}, passes=2)
    params = {"alpha": 1e-3, "init": str(tmp_path / "run")}
    with pytest.raises(ParameterError, match=r"^start=sgd: .*; leave one of them out$"):
        fit(method, many, params={**params, "start": "sgd"}, passes=2)
    assert fit(method, many, params={**params, "start": "zero"}, passes=2).passes == 2


def test_the_plan_covers_the_start(tmp_path):
    """A pass of `sgd` comes before what a fit holds itself; where it has no room, the refusal says what has."""
    data = write_dataset(tmp_path / "d", *labelled_rows(400, 3000, 40), partition_rows=10)

    def planned(limit=2**31, **params):
        cluster = ClusterOptions("dask", 2, 4, limit)
        return plan_fit("sdca", data.path, {"alpha": 1e-2, **params}, cluster=cluster, parallelism=16, probe=False)

    own, plain = planned(start="sgd"), planned(start="zero")
    assert own.worker_bytes > plain.worker_bytes
    assert own.driver_bytes > plain.driver_bytes
    between = (own.worker_bytes + plain.worker_bytes) // 2
    refuses(MemoryPlanError, r"; start=zero begins without its pass of sgd$", planned, between, start="sgd")
