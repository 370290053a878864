"""What Python says as the command line does: workers, progress, notices, results that show themselves, lazy rows."""

from __future__ import annotations

import os
import subprocess
import sys
import types
import warnings
from functools import partial
from pathlib import Path

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from helpers import raised, refuses

import distls
from distls.long_calls import long_call
from distls.progress_bar import Bar
from distls.serving.fitted_model import FittedModel
from distls.storage.errors import ParameterError

N_ROWS = 240


def _rows(n_rows=N_ROWS):
    x = np.random.default_rng(0).standard_normal((n_rows, 6)).astype(np.float32)
    return x, np.where(x[:, 0] + x[:, 1] > 0, "up", "down")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("python") / "train"
    x, y = _rows()
    distls.ingest(x, path, y=y)
    return path


def test_fit_without_a_method_takes_the_one_that_suits(data, tmp_path):
    named = distls.fit("auto", data, tmp_path / "named")
    for k, found in enumerate([distls.fit(str(data), tmp_path / "r0"), distls.fit(dataset=data, run=tmp_path / "r1")]):
        assert found.run == tmp_path / f"r{k}"
        assert found.record["weights_sha256"] == named.record["weights_sha256"]
    refuses(ParameterError, "name a data set", distls.fit, "newton")
    refuses(ParameterError, "where the name of a method should be", distls.fit, data, data, tmp_path / "r2")
    refuses(ParameterError, "sgdd", distls.fit, "sgdd", data)


@pytest.mark.slow
def test_workers_of_a_call_change_nothing_and_end_with_it(data, tmp_path):
    script = f"""
import distls

if __name__ == "__main__":
    given = {{"params": {{"loss": "log"}}, "passes": 2}}
    here = distls.fit("mcid", {str(data)!r}, executor="serial", **given)
    there = distls.fit("mcid", {str(data)!r}, workers=2, threads=1, memory_limit="700MiB", **given)
    assert (here.model.weights == there.model.weights).all()
    assert here.record["versions"] == there.record["versions"]
    print("the same")
"""
    (tmp_path / "script.py").write_text(script)
    ran = subprocess.run([sys.executable, tmp_path / "script.py"], capture_output=True, text=True, check=False)
    assert ran.stdout == "the same\n", ran.stderr


def test_workers_of_two_kinds_are_refused(data):
    refuses(ParameterError, "start workers", distls.fit, "mcid", data, workers=2, executor="serial")


class _Cell:
    """A notebook as far as a bar sees it."""

    def __init__(self):
        self.shown: list[str] = []

    def HTML(self, text):
        return text

    def display(self, text, *, display_id):
        assert display_id
        self.shown.append(text)
        return self

    def update(self, text):
        self.shown.append(text)


@pytest.fixture
def cell(monkeypatch):
    made = _Cell()
    shell = types.SimpleNamespace(kernel=None)
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell, display=made))
    return made


def test_a_notebook_shows_a_bar_and_a_script_nothing(data, tmp_path, cell, monkeypatch, capfd):
    distls.fit("mcid", data, params={"loss": "log"}, passes=2)
    assert cell.shown[-1].startswith('<progress value="1.0000"></progress> mcid: 2 passes, loss ')
    distls.fit("newton", data, params={"alpha": 0.1})  # far from its limit of passes
    assert cell.shown[-1].startswith('<progress value="1.0000"></progress> newton')
    assert cell.shown[-1].endswith(", CONVERGED")
    distls.ingest(_rows()[0], tmp_path / "more", y=_rows()[1])
    assert "passes" not in cell.shown[-1]
    shown = len(cell.shown)
    distls.fit("mcid", data, params={"loss": "log"}, passes=2, progress=False)
    distls.MCIDClassifier(passes=2).fit(*_rows())
    assert len(cell.shown) == shown
    monkeypatch.delitem(sys.modules, "IPython")
    distls.fit("mcid", data, params={"loss": "log"}, passes=2)
    assert capfd.readouterr() == ("", "")
    distls.fit("mcid", data, params={"loss": "log"}, passes=2, progress=True)
    assert "mcid: 2 passes" in capfd.readouterr().err


def test_no_progress_is_none_of_calls_within_a_call_either(cell):
    inner = long_call(lambda *, executor=None, progress=None: progress and progress(1, 2, "work"))
    outer = long_call(lambda *, executor=None, progress=None: inner(progress=progress))
    outer(progress=False)
    assert not cell.shown
    outer()
    assert len(cell.shown) == 1


@pytest.mark.fast_cases("given0", "given4")
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"progress": print}, "progress: True or False; the rounds of a fit are for callbacks="),
        ({"memory_limit": "lots"}, "memory_limit: 'lots' is not a size; write it like 600MiB or 2GiB"),
        ({"memory_limit": 0}, "memory_limit=0: must be at least 1"),
        ({"workers": 0}, "workers=0: must be at least 1"),
        ({"threads": -1}, "threads=-1: must be at least 1"),
    ],
)
def test_what_workers_and_progress_cannot_be(data, given, message):
    for call in (lambda: distls.fit("mcid", data, **given), lambda: distls.resume("nothing", **given)):
        assert raised(ParameterError, call) == message
    if "progress" not in given:
        assert raised(ParameterError, distls.plan, "mcid", data, probe=False, **given) == message


def test_a_scheduler_is_reached_by_a_client(data):
    for call in (distls.fit, distls.evaluate, distls.train):
        with pytest.raises(ParameterError, match=r"^scheduler: client=dask\.distributed\.Client"):
            call("mcid", data, scheduler="tcp://a:1")


def test_a_bar_escapes_what_it_shows(cell):
    Bar()(1, 2, "<script>")
    assert cell.shown == ['<progress value="0.5000"></progress> &lt;script&gt;']


def test_progress_of_ones_own_is_called():
    seen = []
    asked = long_call(lambda *, executor=None, progress=None: progress(1, 2, "work"))
    asked(progress=lambda *given: seen.append(given))
    assert seen == [(1, 2, "work")]


def test_a_notice_is_one_warning_of_the_callers_line(tmp_path):
    x, y = _rows()
    frame = pd.DataFrame(x, columns=list("abcdef")).assign(label=y, kind=np.where(x[:, 2] > 0, "p", "q"))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        distls.train(frame, tmp_path / "run")  # the line
    assert caught
    assert {Path(each.filename).name for each in caught} == {Path(__file__).name}
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    assert {lines[each.lineno - 1].strip()[-8:] for each in caught} == {"the line"}
    assert len({str(each.message) for each in caught}) == len(caught)


@pytest.mark.slow
def test_results_show_themselves_in_notebooks(data, tmp_path):
    result = distls.fit("mcid", data, tmp_path / "run", params={"loss": "log"}, passes=2)
    other = distls.fit("mcid", data, tmp_path / "other", params={"loss": "log"}, passes=1)
    assert other.run is not None
    shown = {
        "fit": result, "model": result.model, "evaluation": distls.evaluate(result.model, data),
        "data": distls.open_dataset(data), "report": distls.report(tmp_path / "run"),
        "comparison": distls.compare([tmp_path / "run", tmp_path / "other"]),
        "export": distls.export(tmp_path / "run", tmp_path / "m.csv", to="csv"),
        "plan": distls.plan("mcid", data, params={"loss": "log"}, probe=False),
        "cluster plan": distls.plan("mcid", data, params={"loss": "log"}, rate=1e8, cluster="4x2", bytes="1GiB"),
        "ingest": distls.ingest(_rows()[0][:200], tmp_path / "d", y=_rows()[1][:200]),
        "calibrated": distls.calibrate(result.model, tmp_path / "d"),
    }  # fmt: skip
    for name, each in shown.items():
        assert "<table>" in each._repr_html_(), name
    assert distls.info(tmp_path / "run")["method"] == "mcid"
    assert "sgd" in distls.list_methods()


@pytest.mark.slow_cases("frame")
@pytest.mark.parametrize("kind", ["array", "frame"])
def test_models_predict_dask_collections_lazily(data, tmp_path, kind):
    x, y = _rows()
    frame = pd.DataFrame(x.astype(float).round(3), columns=list("abcdef")).assign(job=np.where(x[:, 3] > 0, "p", "q"))
    if kind == "frame":
        distls.ingest(frame.assign(y=y), tmp_path / "d", label_column="y")
    source = data if kind == "array" else tmp_path / "d"
    model = distls.fit("mcid", source, params={"loss": "log"}, passes=2).model
    rows = x if kind == "array" else frame
    lazy = da.from_array(x, chunks=(70, 4)) if kind == "array" else dd.from_pandas(frame, npartitions=3)
    for name in ("predict", "decision_function", "predict_proba"):
        method = getattr(model, name)
        found = method(lazy)
        assert hasattr(found, "__dask_graph__"), name
        assert np.array_equal(found.compute(scheduler="synchronous"), method(rows)), name
    raised(distls.DistlsError, model.predict, lazy[:, :3] if kind == "array" else lazy[["a"]])


@pytest.mark.slow
def test_every_estimator_has_the_model_that_load_model_returns():
    x, y = _rows()
    few = distls.DualLogisticRegression().fit(x.astype(float), y)  # in memory
    many = distls.DualLogisticRegression(lanes=1).fit(x.astype(float), y)  # by dual ascent
    streamed = distls.MCIDClassifier().partial_fit(x, y, classes=["down", "up"])
    for each in (few, many, streamed):
        assert type(each.model_) is FittedModel
        assert np.allclose(each.model_.coef_, each.coef_)
        assert np.array_equal(each.model_.decision_function(x), each.decision_function(x))


OF_A_RUN = {
    "log": (distls.DualLogisticRegression, {"alpha": 1e-3}),
    "squared_hinge": (distls.DualLinearSVC, {"alpha": 1e-3, "penalty": "elasticnet", "l1_ratio": 0.5}),
    "squared": (distls.DualRidge, {"alpha": 1e-3}),
}


@pytest.mark.fast_cases("log")
@pytest.mark.parametrize("loss", OF_A_RUN)
def test_a_run_of_dual_ascent_is_an_estimator(tmp_path, loss):
    kind, params = OF_A_RUN[loss]
    x, y = _rows()
    target = {"y": x[:, 0].astype(float) + x[:, 3], "target": "continuous"} if loss == "squared" else {"y": y}
    distls.ingest(x, tmp_path / "d", **target)
    result = distls.fit("sdca", tmp_path / "d", tmp_path / "run", params={"loss": loss, **params}, passes=3)
    found = distls.load_estimator(tmp_path / "run")
    assert type(found) is kind
    assert np.array_equal(found.predict(x), result.model.predict(x))
    assert (found.l1_ratio, found.alpha) == (params.get("l1_ratio", 0.0), 1e-3)
    found.fit(x, target["y"])


SCRIPT = """
import numpy as np
import distls

rows = np.zeros((4, 2))
report = distls.ingest(rows, "data", y=[0, 1, 0, 1], workers=2, progress=True)
print(report.rows + 1)
result = distls.fit("sgd", "data", "run", params={"loss": "log"}, passes=2, workers=2, threads=1, memory_limit="1GiB")
again = distls.fit("data", "run2", progress=False, seed=3)
print(result.passes + again.passes, result.status.value.lower())
model = distls.load_model("run")
labels: np.ndarray = model.predict(rows)
for batch in distls.batches("data", 2):
    print(batch.X.shape)
distls.resume("run", passes=3, workers=2)
plan = distls.plan("sgd", "data", params={"loss": "log"}, memory_limit="1GiB")
print(plan.to_json(), distls.evaluate("run", "data").to_json(), distls.info("run")["method"])
distls.compare(["run", "run2"], html="page.html", workers=2).to_json()
estimator = distls.StochasticClassifier(loss="log").fit(rows, [0, 1, 0, 1])
print(estimator.predict(rows).sum(), estimator.coef_.shape)
"""


@pytest.mark.slow
def test_a_users_script_is_typed(tmp_path):
    pytest.importorskip("mypy", reason="of the extra lint")
    (tmp_path / "script.py").write_text(SCRIPT)
    # mypy does not look where an editable installation leads
    silent = ["--follow-imports", "silent", "--cache-dir", str(tmp_path / "cache")]
    command = [sys.executable, "-m", "mypy", "--strict", *silent, "script.py"]
    paths = {**os.environ, "MYPYPATH": str(Path(distls.__file__).parent.parent)}
    run = partial(subprocess.run, cwd=tmp_path, env=paths, capture_output=True, text=True, check=False)
    ran = run(command)
    assert ran.returncode == 0, ran.stdout
    wrong = 'import distls\ndistls.fit("sgd", "data", passes="two")\ndistls.fit("sgd", "data", worker=2)\n'
    (tmp_path / "script.py").write_text(wrong)
    ran = run(command)
    assert ran.stdout.count("error:") == 2
