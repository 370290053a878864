"""Methods that read rows prove their weights by working sets gathered from rows: no column shards are needed."""

from dataclasses import replace

import numpy as np
import pytest
from helpers import labelled_rows, refuses, write_dataset

from distls import ingest
from distls.solvers.coordinate_descent import row_rounds
from distls.storage.errors import StateLostError
from distls.storage.temporary.row_state import RowState
from distls.testing.solvers import CLUSTERS, opened
from distls.training.callbacks import History
from distls.training.fitting import fit
from distls.workers.coordinate_descent.active_columns import WORKING
from distls.workers.coordinate_descent.row_model_task import GatherTask
from distls.workers.coordinate_descent.row_scores_task import RowScores
from distls.workers.coordinate_descent.working_set_task import _gathered
from distls.workers.rounds.block_stream import DatasetRef
from distls.workers.rounds.lanes import Lane

PARAMS = {"alpha": 1e-2, "dtype": "float64", "tau": 0.0}


@pytest.fixture(scope="module")
def rows(weighted_rows, tmp_path_factory):
    """Weighted rows in partitions, without column shards."""
    x, y, weight = weighted_rows
    return write_dataset(tmp_path_factory.mktemp("rows") / "train", x, y, sample_weight=weight, partition_rows=70)


def records_of(dataset, method, passes, executor=None, **params):
    kept = History()
    fit(method, dataset, params=params, passes=passes, eval_every=1, callbacks=[kept], executor=executor)
    return kept.records


def lowest(dataset, **params):
    """Return the optimum, to the last digits."""
    own = {name: value for name, value in params.items() if name not in ("tau", "active_mib")}
    found = fit("bcd", dataset, params={**own, "algorithm": "row-blocks"}, rtol=1e-11, passes=200).record
    assert found["certificate"]["relative"] < 1e-8
    return found["objective"]


@pytest.mark.fast_cases("csr-fista-softmax-l1l2-True")
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize(
    ("loss", "penalty"),
    [
        ("softmax", "l1l2"), ("softmax", "elasticnet"), ("multiclass_squared_hinge", "l1"),
        ("multiclass_squared_hinge", "sparse-group"), ("multitask_squared_hinge", "l1linf"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("method", ["fista", "sparsa"])
def test_a_proof_is_near_without_column_shards(rows, method, loss, penalty, intercept):
    params = {**PARAMS, "loss": loss, "penalty": penalty, "fit_intercept": intercept}
    best = lowest(rows, **params)
    proven, own = (records_of(rows, method, 40, **params, **more) for more in ({}, {"active_mib": 0}))
    near = 0
    for one, other in zip(proven, own, strict=True):
        assert one["objective"] == other["objective"]
        excess, value = one["objective"] - best, one["certificate"]["value"]
        assert one["certificate"]["kind"] == "duality_gap"
        assert excess <= value + 1e-9 * best
        if 1e-6 * best < excess < 1e-1 * best:
            near += 1
            assert value <= 10.0 * excess
    assert near
    assert other["certificate"]["kind"] != "duality_gap" or other["certificate"]["value"] > value


@pytest.mark.fast_cases("csr")
def test_fobos_with_a_tolerance_ends_as_soon_as_its_weights_are_good(rows, tmp_path):
    params = {"penalty": "l1", "loss": "softmax", "alpha": 1e-2, "fit_intercept": False, "dtype": "float64"}
    best = lowest(rows, **params)
    few = {"passes": 4, "eval_every": 1}
    left = fit("fobos", rows, params=params, rtol=1e-6, **few).record
    excess = left["objective"] - best
    assert excess <= left["certificate"]["value"] <= 3.0 * excess
    # without a tolerance nothing is searched
    plain = fit("fobos", rows, params=params, **few).record
    assert (plain["objective"], plain["certificate"]["value"] > 5.0 * excess) == (left["objective"], True)
    met = fit("fobos", rows, tmp_path / "run", params=params, rtol=1.01 * left["certificate"]["relative"], **few)
    assert (met.status, met.record["certificate"]["kind"]) == ("CONVERGED", "duality_gap")
    assert not (tmp_path / "run" / "state").exists()


@pytest.mark.slow
def test_fobos_with_an_intercept_searches_too(rows):
    """Balanced gradients of earlier evaluations are no search, and leave it its share."""
    params = {"penalty": "l1", "loss": "softmax", "alpha": 1e-2, "fit_intercept": True, "dtype": "float64"}
    best = lowest(rows, **params)
    found = fit("fobos", rows, params=params, passes=400, rtol=1e-5).record
    assert found["objective"] - best <= found["certificate"]["value"] <= 3.0 * (found["objective"] - best)


@pytest.mark.fast_cases("csr")
@pytest.mark.parametrize("cluster", ["two processes of two threads"])
def test_the_bits_are_the_same_on_every_cluster(rows, cluster):
    assert cluster in CLUSTERS
    params = {**PARAMS, "loss": "softmax", "fit_intercept": True}
    alone, together = (records_of(rows, "fista", 4, executor, **params) for executor in (None, opened(cluster)))
    assert [record["certificate"] for record in alone] == [record["certificate"] for record in together]


@pytest.mark.fast_cases("csr")
def test_columns_that_do_not_fit_are_not_searched(rows, monkeypatch):
    params = {**PARAMS, "loss": "softmax", "fit_intercept": False}
    own = records_of(rows, "fista", 3, **params, active_mib=0)
    monkeypatch.setattr(row_rounds, "MIB", 10)
    left = records_of(rows, "fista", 3, **params)
    assert [record["certificate"] for record in left] == [record["certificate"] for record in own]


@pytest.mark.parametrize("dense", [False, True])
def test_columns_are_gathered_from_rows(tmp_path, dense):
    x, y = labelled_rows(50, 12, 3)
    data = write_dataset(tmp_path / "data", x.toarray() if dense else x, y, partition_rows=20)
    state, columns = tmp_path / "state", np.array([1, 4, 7])
    state.mkdir()
    scores = RowScores(DatasetRef.of(data), "softmax", "float64", None, str(state), 3)
    stored = GatherTask(scores, columns, 2**20)(None, Lane(0, (0, 1, 2)))
    assert 0 < stored.n_bytes < 2**20
    found = _gathered(scores, columns)
    expected = np.asarray(x.todense())[:, columns].T
    if dense:
        np.testing.assert_array_equal(found.x.values, expected)
    else:
        for j, (start, stop) in enumerate(zip(found.x.indptr, found.x.indptr[1:], strict=False)):
            assert np.flatnonzero(expected[j]).tolist() == found.x.indices[start:stop].tolist()
            np.testing.assert_array_equal(expected[j][expected[j] != 0], found.x.data[start:stop])
    refuses(StateLostError, "do not fit", _gathered, scores, columns[:1])
    refuses(StateLostError, "missing", _gathered, replace(scores, version=4), columns)
    RowState(str(state), WORKING).drop(3, 3)
    refuses(StateLostError, "missing", _gathered, scores, columns)


@pytest.mark.fast_cases("fista")
@pytest.mark.parametrize("method", ["fista", "sparsa"])
def test_sets_of_labels_with_an_intercept_converge_by_their_tolerance(tmp_path, method):
    x, y = labelled_rows(200, 15, 3)
    sets = [[str(c), "every"] if i % 3 else [str(c)] for i, c in enumerate(y.tolist())]
    ingest(np.asarray(x.todense()), tmp_path / "data", y=sets)
    params = {"alpha": 1e-2, "fit_intercept": True, "dtype": "float64", "tau": 0.1}
    tight, loose = (fit(method, tmp_path / "data", params=params, passes=1000, rtol=rtol) for rtol in (1e-4, None))
    assert (tight.status, loose.status) == ("CONVERGED", "CONVERGED")
    assert tight.record["certificate"]["relative"] <= 1e-4
    assert loose.passes < tight.passes
