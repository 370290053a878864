"""Every method of a paper as its box prints it, by one option: three passes agree with plain NumPy to twelve digits."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from helpers import labelled_rows, write_dataset

from distls.cli import main
from distls.columns.sharding import add_columns
from distls.estimators.stochastic import AdalineClassifier
from distls.methods.method_registry import METHODS
from distls.storage.dataset.dataset import Dataset, open_dataset
from distls.storage.errors import MemoryPlanError, ParameterError
from distls.execution.memory_budget import MIB, MemoryBudget
from distls.evaluation.scores import predictor_of
from distls.training.fitting import fit
from distls.workers.runtime.rng import Purpose, rng
from distls.workers.stochastic.lane_task import draws_of
from reference import calibrated, constrained, least_squares, mcid, ovr, printed, second_order, stagewise, stochastic
from reference.bcd import Problem, prox

N, D, K, PASSES = 90, 12, 3, 3
ALPHA = 1e-2
Rows = np.ndarray[Any, np.dtype[np.float64]]


@pytest.fixture(scope="module", params=["sparse", "dense"])
def data(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Dataset, Rows, Any]:
    """Rows in four partitions, with column shards; and the same as arrays."""
    x, y = labelled_rows(N, D, K, seed=3)
    x = x.astype(np.float64)
    rows = np.asarray(x.todense())
    path = tmp_path_factory.mktemp(request.param) / "d"
    write_dataset(path, x if request.param == "sparse" else rows, y, partition_rows=25)
    return add_columns(path, shard_size=2000), rows, y


def drawn(batch: int = 1) -> list[np.ndarray[Any, Any]]:
    """Return the batches of all passes, drawn uniformly from all rows."""
    order = [draws_of(rng(0, Purpose.DRAWS, number, 0), N, batch) for number in range(PASSES)]
    return [rows for each in order for rows in each.reshape(-1, batch)]


def the_boxes() -> dict[str, tuple[str, dict[str, Any], Callable[[Rows, Any], Rows]]]:
    """Return for each box its method, what the box leaves to the user, and the weights of the transcription."""
    eye, ones, cyclic = np.eye(K), np.ones(N * PASSES), np.tile(np.arange(N), PASSES)
    rows = np.concatenate(drawn())

    def steps(schedule: str, eta0: float) -> Callable[[int], float]:
        return lambda t: constrained.STEPS[schedule](eta0, N / 2, t)

    def of_mcid(loss: str, r: int) -> Callable[[Rows, Any], Rows]:
        return lambda x, y: mcid.train(x, y, loss, ALPHA, drawn(r), w0=np.zeros((D, K))).w

    def of_csgd(schedule: str, eta0: float, *, project: bool = True) -> Callable[[Rows, Any], Rows]:
        def trained(x: Rows, y: Any) -> Rows:
            zero = {"w0": np.zeros((D, K)), "b0": np.zeros(K), "s": ones}
            return constrained.csgd(x[rows], eye[y][rows], steps(schedule, eta0), **zero, project=project).w

        return trained

    def of_qn(metric: str) -> Callable[[Rows, Any], Rows]:
        def trained(x: Rows, y: Any) -> Rows:
            slopes, skip = stochastic.slopes_of("ovr_squared_hinge"), round(16 * N * D / np.count_nonzero(x))
            given = x[cyclic], y[cyclic], slopes, "ovr_squared_hinge", ALPHA, 500.0, skip, metric
            return stochastic.scheduled(*given, k=K)[0]

        return trained

    def of_bcd(step: str) -> Callable[[Rows, Any], Rows]:
        def order(number: int) -> Any:
            chosen = rng(0, Purpose.BLOCKS, number, 0, 0).integers(D, size=D)
            return range(D) if step == "line-search" else chosen

        return lambda x, y: printed.descent(x, y, K, ALPHA, order, step, PASSES)[0]

    def of_gls(link: str) -> Callable[[Rows, Any], Rows]:
        def trained(x: Rows, y: Any) -> Rows:
            p = least_squares.problem(x, eye[y], link, 0.0, constant=False)
            return least_squares.train(p, 1 if link == "identity" else PASSES, lipschitz=1.0)[-1]

        return trained

    def of_stages(inner: str) -> Callable[[Rows, Any], Rows]:
        def trained(x: Rows, y: Any) -> Rows:
            order = rng(0, Purpose.COLUMNS, 0).permutation(D)
            blocks, common = [x[:, order[:6]], x[:, order[6:]]], {"s": np.ones(N), "intercept": False}
            found = (
                stagewise.linear(blocks, eye[y], 0.0, **common)
                if inner == "linear"
                else stagewise.logistic(blocks, eye[y], 0.0, rounds=50, **common)
            )
            w = np.zeros((D, K))
            w[order] = np.concatenate([stage.weights for stage in found])
            return w

        return trained

    def of_fobos(x: Rows, y: Any) -> Rows:
        slopes = stochastic.slopes_of("multiclass_squared_hinge")
        shrunk = lambda v, mu: prox(v, mu, "l1l2", 0.0)  # noqa: E731
        return stochastic.fobos(x[rows], y[rows], slopes, 0.1, shrunk, k=K, alpha=ALPHA)[0]

    def of_olbfgs(x: Rows, y: Any) -> Rows:
        return second_order.olbfgs(x, y, K, "ovr_squared_hinge", ALPHA, cyclic, s=np.ones(N))[0]

    a, loss_of_bcd = {"alpha": ALPHA}, "multiclass_squared_hinge"
    return {
        "mcid-log": ("mcid", {**a, "loss": "log"}, of_mcid("softmax", 1)),
        "mcid-hinge": ("mcid", {**a, "loss": "hinge", "batch_size": 3}, of_mcid("crammer_singer", 3)),
        "mcid-perceptron": ("mcid", {**a, "loss": "perceptron"}, of_mcid("perceptron", 1)),
        "pegasos": ("ovr-pegasos", a, lambda x, y: ovr.train(x, y, K, "ovr_hinge", ALPHA, drawn())),
        "binary-lr": ("ovr-logistic", a, lambda x, y: ovr.train(x, y, K, "ovr_log", ALPHA, drawn())),
        "csgd": ("csgd", {"eta0": 0.2}, of_csgd("two-phase", 0.2)),
        "ncsgd": ("ncsgd", {"eta0": 0.2}, of_csgd("sqrt", 0.2)),
        "c-adaline": ("c-adaline", {"eta0": 0.1}, of_csgd("sqrt", 0.1)),
        "adaline": ("adaline", {"eta0": 0.01}, of_csgd("constant", 0.01, project=False)),
        "svmsgd2": ("svmsgd2", {**a, "t0": 500.0}, of_qn("none")),
        "sgdqn": ("sgdqn", {**a, "t0": 500.0}, of_qn("paper")),
        "olbfgs": ("olbfgs", a, of_olbfgs),
        "bcd-line-search": ("bcd", a, of_bcd("line-search")),
        "bcd-constant": ("bcd", {**a, "step": "constant"}, of_bcd("constant")),
        "fista": ("fista", {**a, "lipschitz": 0.01}, lambda x, y: printed.fista(Problem(x, y, K, loss_of_bcd), 9, 0.01)),
        "sparsa": ("sparsa", {**a, "lipschitz": 0.01}, lambda x, y: printed.sparsa(Problem(x, y, K, loss_of_bcd), 9, 0.01)),
        "fobos": ("fobos", {**a, "eta0": 0.1}, of_fobos),
        "gls-softmax": ("gls", {}, of_gls("softmax")),
        "gls-logit": ("gls", {"link": "logit"}, of_gls("logit")),
        "gls-identity": ("gls", {"link": "identity"}, of_gls("identity")),
        "stagewise-linear": ("stagewise", {"block_size": 6}, of_stages("linear")),
        "stagewise-logistic": ("stagewise", {"block_size": 6, "inner": "logistic"}, of_stages("logistic")),
    }  # fmt: skip


BOXES = the_boxes()
READS = {"fista": 9, "sparsa": 9, "stagewise": None}  # where not `PASSES`


@pytest.mark.slow_cases("(dense|mcid-hinge|mcid-per|binary|ncsgd|adaline|pegasos|svm|olb|bcd-con|spa|fobos|gls-lo)")
@pytest.mark.parametrize("box", BOXES)
def test_three_passes_are_those_of_the_box(data: tuple[Dataset, Rows, Any], box: str) -> None:
    dataset, x, y = data
    method, given, transcribed = BOXES[box]
    own = {**given, "dtype": "float64"}
    limit = None if box == "gls-identity" else READS.get(method, PASSES)
    model = fit(method, dataset, params=own, passes=limit, as_published=True, eval_every=0).model
    expected = transcribed(x, y)
    np.testing.assert_allclose(model.weights, expected, rtol=0, atol=1e-12 * np.abs(expected).max())
