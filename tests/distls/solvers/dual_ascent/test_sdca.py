"""Dual coordinate ascent through the driver: the optimum, its certificate, same bits, duals that are kept or lost."""

import json

import numpy as np
import pytest
import scipy.sparse as sp
from contract import Rounds, SolverContract, StoredContract
from helpers import labelled_rows, raised, refuses, rows_with_mistakes, write_dataset
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.svm import LinearSVC
from target_helpers import write_targets

from distls.solvers.dual_ascent import sdca
from distls.solvers.status import Status
from distls.storage.errors import CorruptDataError, DistlsError, FormatError, MismatchError, ParameterError
from distls.storage.temporary.row_state import RowState
from distls.testing.solvers import StopAfter, interrupted
from distls.training.callbacks import History
from distls.training.fitting import fit, resume
from distls.workers.dual_ascent import ascent_task
from distls.workers.duals.stored_duals import published_duals
from reference import dual_ascent
from reference.dual_ascent import Primal

ALPHA = 0.1
EXACT = {"alpha": ALPHA, "dtype": "float64", "fit_intercept": False}
HINGES = ("crammer_singer", "ovr_hinge")


class TestSoftmax(StoredContract):
    """Two lanes and several rounds a pass, as by default."""

    method = "sdca"
    params = {"alpha": 1e-3}
    passes = 3


@pytest.mark.slow
class TestHinge(SolverContract):
    """Three lanes, an intercept, elastic net and class weights in float64."""

    method = "sdca"
    params = {
        "loss": "hinge", "alpha": 1e-2, "lanes": 3, "rounds": 3, "penalty": "elasticnet", "l1_ratio": 0.2,
        "fit_intercept": True, "class_weight": "balanced", "dtype": "float64",
    }  # fmt: skip
    passes = 2


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """Data sets of two and of four classes, in three partitions, without and with sample weights."""
    root, made = tmp_path_factory.mktemp("small"), {}
    for k in (2, 4):
        x, y, s = rows_with_mistakes(k)
        for weighted in (False, True):
            path = root / f"{k}-{weighted}"
            given = {"sample_weight": s} if weighted else {}
            made[k, weighted] = write_dataset(path, sp.csr_matrix(x), y, partition_rows=20, **given)
    return made


@pytest.mark.slow
@pytest.mark.parametrize("many", [3, 4])
def test_with_many_outputs_further_visits_are_about_as_many_as_a_rounds_rows(small, monkeypatch, many):
    visited, rounds = [], History()
    real = ascent_task.ascend_rows
    monkeypatch.setattr(ascent_task, "ascend_rows", lambda *given: visited.append(len(given[3])) or real(*given))
    monkeypatch.setattr(ascent_task, "_MANY_OUTPUTS", many)
    params = {"alpha": 1e-4, "loss": "crammer_singer", "lanes": 1, "active_sweeps": 50}
    fit("sdca", small[4, False], params=params, passes=3, executor="serial", callbacks=[rounds], eval_every=0)
    further = sum(visited) / sum(record["n_rows"] for record in rounds.records) - 1
    # four outputs are many or few; the last sweep may begin when one visit is left
    assert 1 <= further < 2 if many == 3 else further > 10


def objective_of(primal, model):
    return primal.value(model.weights.astype(float), model.intercept.astype(float))


# ---------------------------------------------------------------- the optimum


@pytest.mark.fast_cases(r"softmax-4-0\.0-True$")
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("l1", [0.0, 0.3])
@pytest.mark.parametrize("k", [2, 4])
@pytest.mark.parametrize("loss", list(dual_ascent.DOMAINS))
def test_the_optimum_and_its_proof(small, loss, k, l1, intercept):
    """Against a quasi-Newton method, or of hinges a method for constrained problems."""
    x, y, _ = rows_with_mistakes(k)
    primal = Primal(loss, x.astype(float), y, k, alpha=ALPHA, l1=l1, intercept=intercept)
    penalty = {"penalty": "elasticnet", "l1_ratio": l1} if l1 else {}
    # the piecewise linear duals of hinges take many passes to the last digits
    rtol = {(True, True): 1e-3, (True, False): 1e-5}.get((loss in HINGES, intercept), 1e-6)
    result = fit(
        "sdca", small[k, False], params={**EXACT, **penalty, "loss": loss, "fit_intercept": intercept}, rtol=rtol,
        passes=600,
    )  # fmt: skip
    found, best = objective_of(primal, result.model), primal.optimum()
    assert found == pytest.approx(result.record["objective"], rel=1e-12)
    assert result.status == Status.CONVERGED
    certificate = result.record["certificate"]
    assert certificate["relative"] == certificate["value"] / result.record["objective"] <= rtol
    # the method for constrained problems sometimes ends above the optimum
    assert found - best <= certificate["value"]


@pytest.mark.slow
@pytest.mark.parametrize("loss", list(dual_ascent.DOMAINS))
def test_sample_and_class_weights(small, loss):
    x, y, s = rows_with_mistakes(4)
    by_class = np.array([1.0, 0.5, 3.0, 2.0])
    primal = Primal(loss, x.astype(float), y, 4, alpha=ALPHA, s=s.astype(float) * by_class[y])
    params = {**EXACT, "loss": loss, "class_weight": {"0": 1.0, "1": 0.5, "2": 3.0, "3": 2.0}}
    rtol = 1e-3 if loss in HINGES else 1e-6
    result = fit("sdca", small[4, True], params=params, rtol=rtol, passes=600)
    found = objective_of(primal, result.model)
    assert found == pytest.approx(result.record["objective"], rel=1e-9)
    assert -1e-9 <= found - primal.optimum() <= result.record["certificate"]["value"] <= rtol * found


@pytest.mark.slow
def test_weights_of_scikit_learn(small):
    """C of LIBLINEAR and of scikit-learn is 1 / (alpha n)."""
    x, y, _ = rows_with_mistakes(2)
    c = 1.0 / (ALPHA * len(x))

    def weights(data, **params):
        return fit("sdca", data, params={**EXACT, **params}, rtol=1e-9, passes=2000).model

    plain = LogisticRegression(C=c, fit_intercept=True, tol=1e-12, max_iter=10000).fit(x.astype(float), y)
    ours = weights(small[2, False], loss="log", fit_intercept=True)
    np.testing.assert_allclose(ours.weights[:, 0], plain.coef_[0], atol=1e-4)
    assert ours.intercept[0] == pytest.approx(plain.intercept_[0], abs=1e-4)
    for loss in ("hinge", "squared_hinge"):
        machine = LinearSVC(C=c, loss=loss, fit_intercept=False, dual=True, tol=1e-10, max_iter=10**6)
        machine.fit(x.astype(float), y)
        ours = weights(small[2, False], loss=loss)
        np.testing.assert_allclose(ours.weights[:, 0], machine.coef_[0], atol=2e-4)
    x, y, _ = rows_with_mistakes(4)
    machine = LinearSVC(C=c, multi_class="crammer_singer", fit_intercept=False, tol=1e-10, max_iter=10**6)
    machine.fit(x.astype(float), y)
    primal = Primal("crammer_singer", x.astype(float), y, 4, alpha=ALPHA)
    ours = objective_of(primal, fit("sdca", small[4, False], params={**EXACT, "loss": "hinge"}, rtol=1e-6).model)
    assert ours <= primal.value(machine.coef_.T, 0.0) * (1 + 1e-6)


@pytest.mark.slow
@pytest.mark.fast_cases("True")
@pytest.mark.parametrize("intercept", [False, True])
def test_numbers_are_ridge_regression(tmp_path, intercept):
    x, _, s = rows_with_mistakes(4)
    y = x[:, :2].astype(float) @ np.array([[1.0, -2.0], [0.5, 1.0]]) + [30.0, -4.0] + s[:, None]
    data = write_targets(tmp_path / "d", sp.csr_matrix(x), y, "continuous", partition_rows=20, sample_weight=s)
    result = fit("sdca", data, params={**EXACT, "fit_intercept": intercept}, rtol=1e-10, passes=1000)
    ridge = Ridge(alpha=ALPHA * s.sum(), fit_intercept=intercept, tol=1e-14)
    ridge.fit(x.astype(float), y, sample_weight=s.astype(float))
    np.testing.assert_allclose(result.model.weights, ridge.coef_.T, atol=1e-3)
    np.testing.assert_allclose(result.model.intercept, ridge.intercept_, atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["squared", "ovr_log", "ovr_squared_hinge", "ovr_hinge"])
def test_label_sets(tmp_path, loss):
    x, _, _ = rows_with_mistakes(4)
    labels = (x[:, :3] + 0.2 > 0).astype(int)
    data = write_targets(tmp_path / "d", sp.csr_matrix(x), labels, "multilabel", partition_rows=20)
    result = fit("sdca", data, params={**EXACT, "loss": loss, "fit_intercept": True}, rtol=1e-6, passes=600)
    primal = Primal(loss, x.astype(float), labels.astype(float), 3, alpha=ALPHA, intercept=True)
    found = objective_of(primal, result.model)
    assert -1e-9 <= found - primal.optimum() <= result.record["certificate"]["value"] <= 1e-6 * found


def check_bound(tmp_path, seed):
    """A random problem, stopped early: what is certified is no less than what is lacking."""
    rng = np.random.default_rng([77, seed])
    k = int(rng.choice([2, 4]))
    loss, intercept = str(rng.choice(list(dual_ascent.DOMAINS))), bool(rng.random() < 0.5)
    l1 = float(rng.choice([0.0, 0.3])) if rng.random() < 0.7 else 0.9
    alpha, weighted = float(10.0 ** rng.uniform(-3, 0.5)), bool(rng.random() < 0.5)
    x, y, s = rows_with_mistakes(k, seed, n=30, d=4)
    x *= np.float32(10.0 ** rng.uniform(-1, 1))
    given = {"sample_weight": s} if weighted else {}
    data = write_dataset(tmp_path / f"{seed}", sp.csr_matrix(x), y, partition_rows=8, n_classes=k, **given)
    params = {
        "alpha": alpha,
        "loss": loss,
        "fit_intercept": intercept,
        "dtype": "float64",
        "lanes": int(rng.integers(1, 4)),
    }
    if l1:
        params.update(penalty="elasticnet", l1_ratio=l1)
    of_rows = s.astype(float) if weighted else np.ones(len(y))
    if rng.random() < 0.5:
        by_class = np.round(rng.uniform(0.2, 3.0, k), 2)
        params["class_weight"] = {str(c): float(weight) for c, weight in enumerate(by_class)}
        of_rows = of_rows * by_class[y]
    kept = History()
    fit("sdca", data, params=params, passes=6, eval_every=1, callbacks=[kept], seed=seed)
    primal = Primal(loss, x.astype(float), y, k, alpha=alpha, s=of_rows, l1=l1, intercept=intercept)
    best = primal.optimum()
    for record in kept.records:
        if "objective" in record:
            assert record["objective"] - best <= record["certificate"]["value"] + 1e-10 * best, (seed, params)
            # what the oracle finds may be a little above the optimum, of hinges sometimes more, never below
            assert loss in HINGES or record["objective"] - best >= -1e-5 * best, (seed, params)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [range(30), *(range(n, n + 20) for n in range(100, 300, 20))], ids=repr)
def test_no_problem_lacks_more_than_is_certified(tmp_path, seeds):
    for seed in seeds:
        check_bound(tmp_path, seed)


# ---------------------------------------------------------------- the ascent


@pytest.mark.fast_cases("softmax")
@pytest.mark.parametrize("loss", dual_ascent.DOMAINS)
def test_one_lane_is_the_oracle_s_pass(small, loss):
    """In the order of the rows, partition after partition."""
    x, y, _ = rows_with_mistakes(4)
    own = {"loss": loss, "lanes": 1, "shuffle": False, "penalty": "elasticnet", "l1_ratio": 0.3}
    kept = History()
    model = fit("sdca", small[4, False], params=EXACT | own, passes=2, eval_every=0, callbacks=[kept]).model
    lane = dual_ascent.Ascent(loss, x.astype(float), y, 4, alpha=ALPHA, l1=0.3)
    for record in kept.records:
        lane.visit(range(len(x)))
        for _ in range(3 if loss in HINGES else 0):
            lane.visit(lane.free())
        assert record["details"]["dual"] == pytest.approx(lane.dual(), rel=1e-6)
    np.testing.assert_allclose(model.weights, lane.w, atol=1e-5)


@pytest.mark.fast_cases("softmax")
@pytest.mark.parametrize("loss", ["softmax", "hinge"])
def test_the_dual_never_falls(monkeypatch, tmp_path, loss):
    """Even where lanes hold back nothing for the others: a sum that would lower it is taken in part."""
    monkeypatch.setattr(sdca, "FIRST_RATIO", 0.0)
    monkeypatch.setattr(sdca, "SAFETY", 0.01)
    x, y, _ = rows_with_mistakes(4)
    # the same rows in every lane: each makes all of the change
    data = write_dataset(tmp_path / "d", sp.csr_matrix(np.vstack([x[:20]] * 6)), np.tile(y[:20], 6), partition_rows=20)
    params = {**EXACT, "alpha": 1e-3, "loss": loss, "lanes": 6, "rounds": 1}
    kept, run = History(), tmp_path / "run"
    whole = fit("sdca", data, run, params=params, passes=8, eval_every=0, callbacks=[kept])
    assert min(record["details"]["share"] for record in kept.records) < 1.0
    duals = [record["details"]["dual"] for record in kept.records]
    assert duals[0] > 0.0
    assert (np.diff(duals) >= -1e-9).all()
    # duals that were mixed are read back as such
    stopped = tmp_path / "stopped"
    with interrupted():
        fit("sdca", data, stopped, params=params, passes=8, eval_every=0, callbacks=[StopAfter(3)])
    assert resume(stopped).model.sha256 == whole.model.sha256


@pytest.mark.slow
def test_a_round_without_rows_is_not_made(tmp_path):
    """Partitions of fewer rows than a pass has rounds."""
    x, y = labelled_rows(20, 12, 2)
    for rows in (10, 3):
        kept = History()
        data = write_dataset(tmp_path / f"{rows}", x, y, partition_rows=rows)
        result = fit("sdca", data, params=EXACT, passes=2, callbacks=[kept])
        assert (result.status, result.passes) == (Status.MAX_PASSES, 2.0)
        assert all(record["n_rows"] > 0 for record in kept.records)
        assert sum(record["n_rows"] for record in kept.records) == 40


@pytest.mark.slow
def test_a_large_alpha_does_not_hold_the_intercept(tmp_path):
    x, y, _ = rows_with_mistakes(2)
    data = write_dataset(tmp_path / "d", sp.csr_matrix(x * np.float32(0.05)), y, partition_rows=20)
    for loss in ("hinge", "log"):
        params = {**EXACT, "alpha": 10.0, "loss": loss, "fit_intercept": True}
        assert fit("sdca", data, params=params, rtol=1e-3, passes=30).status == Status.CONVERGED


def test_tolerances_end_a_fit(small):
    for limit in ({"rtol": 1e-2}, {"tol": 1e-2}, {}):
        kept = History()
        result = fit("sdca", small[4, False], params=EXACT, callbacks=[kept], **limit)
        certificate = result.record["certificate"]
        assert result.status == Status.CONVERGED
        assert certificate["value"] <= 1e-2 if "tol" in limit else certificate["relative"] <= limit.get("rtol", 1e-3)
        # no read of the data for a certificate while the gap is estimated to be far above
        judged = [record for record in kept.records if "certificate" in record]
        assert len(judged) <= 3


@pytest.mark.slow
def test_a_tolerance_is_judged_by_the_objective(tmp_path):
    """Rows that are far apart have hardly any loss, but the penalty."""
    x = sp.csr_matrix(np.vstack([np.eye(8), -np.eye(8)]).astype(np.float32))
    data = write_dataset(tmp_path / "d", x, np.repeat([0, 1], 8).astype(np.int32), partition_rows=8)
    result = fit("sdca", data, params={"alpha": 1e-3, "loss": "hinge"}, rtol=1e-2)
    assert (result.status, result.passes <= 4) == (Status.CONVERGED, True)


# ---------------------------------------------------------------- duals on disk


def stored(run):
    return RowState(run / "state").stored()


@pytest.mark.slow
def test_only_duals_that_are_needed_are_kept(small, tmp_path):
    """Those of the state and of two checkpoints while it runs; those of the model when it has ended."""
    first = tmp_path / "first"
    fit("sgd", small[4, False], first, params={"alpha": 1e-2}, passes=1)
    seen, run = [], tmp_path / "run"
    watch = Rounds(lambda _: seen.append(len(stored(run))))
    params = {**EXACT, "init": str(first)}
    result = fit("sdca", small[4, False], run, params=params, passes=3, callbacks=[watch], checkpoint_seconds=1e9)
    assert max(seen) <= 12  # three partitions: before and after a round, mixed, and made anew
    assert seen[-1] <= 6
    point = published_duals(str(run), small[4, False].fingerprint)
    assert stored(run) == point.files
    x, y, _ = rows_with_mistakes(4)
    duals = np.vstack([point.read(p, 20) for p in range(3)])
    lane = dual_ascent.Ascent("softmax", x.astype(float), y, 4, alpha=ALPHA)
    lane.duals = duals.astype(float)
    lane.u = lane.x.T @ duals / (ALPHA * len(x))
    np.testing.assert_allclose(lane.w, result.model.weights, atol=1e-9)
    gap = lane.objective() - lane.dual()
    assert result.record["certificate"]["value"] == pytest.approx(gap, rel=1e-6, abs=1e-12)
    np.testing.assert_allclose(point.up, np.maximum(duals, 0).sum(axis=0), rtol=1e-6)


@pytest.mark.slow
def test_lost_duals_are_made_anew(small, tmp_path):
    run = tmp_path / "run"
    params = {**EXACT, "loss": "log", "fit_intercept": True}
    with interrupted():
        fit("sdca", small[4, False], run, params=params, rtol=1e-6, passes=500, callbacks=[StopAfter(6)])
    lost = sorted(stored(run))[0]
    RowState(run / "state").drop(*lost)
    kept = History()
    result = resume(run, callbacks=[kept])
    assert result.status == Status.CONVERGED
    assert result.record["certificate"]["relative"] <= 1e-6
    assert kept.records[0]["notes"] == ["the duals of 1 partitions were lost and recomputed from the weights"]


@pytest.mark.fast_cases("the")
@pytest.mark.parametrize("kept", ["the older", "none"])
def test_lost_duals_of_a_checkpoint(small, tmp_path, caplog, kept):
    """With the duals of the older checkpoint the bits of the undisturbed fit; without, other ones and a note.

    What is there, but not as it was written, is refused instead.

    Fault: Duals of the newest checkpoint of `sdca` removed, truncated or changed | before `resume` | a note; the
    fit goes on from the one before, if the duals of that are whole | bits
    """
    digests = {}
    for damage in ("no", "removed", "truncated", "flipped"):
        run = tmp_path / damage
        with interrupted():
            fit(
                "sdca", small[4, False], run, params=EXACT, passes=12, callbacks=[StopAfter(6)], checkpoint_seconds=0
            )  # fmt: skip
        checkpoints = sorted((run / "checkpoints").glob("round-*"))
        for checkpoint in checkpoints[-1:] if kept == "the older" else checkpoints:
            version = np.load(checkpoint / "versions.npy")[0]
            spoil(run / "state" / f"{0:08d}-{version:06d}.npy", damage)
        records = History()
        caplog.clear()
        if kept == "none" and damage in ("truncated", "flipped"):
            refuses(CorruptDataError, "duals of partition 0", resume, run)
            continue
        digests[damage] = resume(run, callbacks=[records]).model.sha256
        notes = [note for record in records.records for note in record.get("notes") or ()]
        assert any("were lost and recomputed" in note for note in notes) == (kept == "none" and damage != "no")
        assert any("the fit goes on from" in line for line in caplog.messages) == (
            kept == "the older" and damage != "no"
        )
    assert len({digests[damage] for damage in digests if damage != "no"}) == 1
    undisturbed = fit("sdca", small[4, False], params=EXACT, passes=12).model.sha256
    assert digests["no"] == undisturbed
    assert (digests["removed"] == undisturbed) == (kept == "the older")


def spoil(path, damage):
    """Remove a file, cut it in two, or change a bit of it."""
    content = path.read_bytes()
    if damage == "removed":
        path.unlink()
    elif damage == "truncated":
        path.write_bytes(content[: len(content) // 2])
    elif damage == "flipped":
        path.write_bytes(content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])


def test_damaged_duals_are_refused(small, tmp_path):
    run = tmp_path / "run"
    fit("sdca", small[4, False], run, params=EXACT, passes=1)
    index, version = sorted(stored(run))[0]
    path = run / "state" / f"{index:08d}-{version:06d}.npy"
    content = bytearray(path.read_bytes())
    content[-9] ^= 1
    path.write_bytes(content)
    with pytest.raises(DistlsError, match=r"its bytes do not match its checksum") as caught:
        fit("sdca", small[4, False], params={**EXACT, "init": str(run)}, passes=1)
    assert "\n" not in str(caught.value)
    bundle = run / "state" / "point" / "bundle.json"
    bundle.write_text(
        bundle.read_text().replace('"n_outputs":4', '"n_outputs":3').replace('"n_outputs": 4', '"n_outputs": 3')
    )
    raised((FormatError, DistlsError), published_duals, str(run), small[4, False].fingerprint)


# ---------------------------------------------------------------- other starts


def test_a_run_continues_from_its_own_duals(small, tmp_path):
    run = tmp_path / "run"
    fit("sdca", small[4, False], run, params=EXACT, rtol=1e-6, passes=500)
    again = fit("sdca", small[4, False], params={**EXACT, "init": str(run)}, rtol=1e-6, passes=500)
    assert again.passes <= 1.0
    near = fit("sdca", small[4, False], params={**EXACT, "alpha": 0.08, "init": str(run)}, rtol=1e-4, passes=500)
    cold = fit("sdca", small[4, False], params={**EXACT, "alpha": 0.08}, rtol=1e-4, passes=500)
    assert near.passes < cold.passes


@pytest.mark.slow
@pytest.mark.parametrize("k", [2, 4])
def test_a_model_of_another_method_is_a_start(small, tmp_path, k):
    run = tmp_path / "run"
    fit("fista", small[k, False], run, params={**EXACT, "loss": "log", "penalty": "l2", "tau": 0}, passes=400)
    firsts = []
    for init in ({"init": str(run)}, {}):
        kept = History()
        fit("sdca", small[k, False], params={**EXACT, **init}, passes=1, eval_every=0.01, callbacks=[kept])
        firsts.append(kept.records[0]["certificate"]["relative"])
    assert firsts[0] <= 1e-5 < firsts[1]


def test_a_path_goes_from_the_duals_of_the_alpha_before(small, tmp_path):
    run = tmp_path / "run"
    params = {**EXACT, "alpha": "path", "alphas": "1e-1:3e-1:2e-1"}
    fit("sdca", small[4, False], run, params=params, rtol=1e-6, passes=500)
    children = json.loads((run / "status.json").read_text())["children"]
    assert [child["params"]["alpha"] for child in children] == [3e-1, 2e-1, 1e-1]
    x, y, _ = rows_with_mistakes(4)
    for number, child in enumerate(children):
        primal = Primal("softmax", x.astype(float), y, 4, alpha=child["params"]["alpha"])
        status = json.loads((run / "children" / f"{number:03d}" / "status.json").read_text())
        assert -1e-9 <= status["objective"] - primal.optimum() <= status["certificate"]["value"]
    cold = fit("sdca", small[4, False], params=EXACT, rtol=1e-6, passes=500)
    assert children[-1]["passes"] < cold.passes


# ---------------------------------------------------------------- refusals


@pytest.mark.fast_cases("params0", "params3", "params6", "params9")
@pytest.mark.parametrize(
    ("params", "limits", "error", "words"),
    [
        ({"penalty": "elasticnet", "l1_ratio": 1.0}, {}, ParameterError, "needs an l2 part"),
        ({"l1_ratio": 0.5}, {}, ParameterError, "l1_ratio"),
        ({"penalty": "l1"}, {}, ParameterError, "penalty"),
        ({"alpha": 0.0}, {}, ParameterError, "alpha"),
        ({"loss": "perceptron"}, {}, ParameterError, "loss"),
        ({"rounds": 0}, {}, ParameterError, "rounds"),
        ({"group_mib": 0}, {}, ParameterError, "group_mib"),
        ({}, {"rtol": -1.0}, ParameterError, "rtol"),
        ({}, {"rtol": 1e-3, "eval_every": 0}, ParameterError, "eval_every=0"),
        ({"alpha": "path", "alphas": 1}, {}, ParameterError, "alphas=1: expected a whole number of at least 2"),
    ],
)  # fmt: skip
def test_refusals(small, params, limits, error, words):
    with pytest.raises(error, match=words) as caught:
        fit("sdca", small[4, False], params=params, **limits)
    assert "\n" not in str(caught.value)


@pytest.mark.fast_cases("sgd")
@pytest.mark.parametrize(
    ("method", "params"), [("sgd", {"loss": "log", "alpha": 0.0}), ("mcid", {"loss": "perceptron"})]
)
def test_rtol_needs_a_bound(small, method, params):
    with pytest.raises(ParameterError, match=r"rtol: the certificate of this setting bounds no distance"):
        fit(method, small[4, False], params=params, rtol=1e-2)


def test_a_start_of_another_shape_is_refused(small, tmp_path):
    run = tmp_path / "run"
    # fewer classes are taken, more are not
    fit("sdca", small[4, False], run, params=EXACT, passes=1)
    refuses(MismatchError, "init=", fit, "sdca", small[2, False], params={**EXACT, "init": str(run)}, passes=1)
