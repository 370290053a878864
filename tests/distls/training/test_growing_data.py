"""Day after day: rows are appended, a fit starts from the last model, and takes its place."""

import os
from types import SimpleNamespace

import numpy as np
import pytest
from helpers import distls as command

import distls
from distls.solvers.warm_start import with_further_classes
from distls.storage.errors import FormatError, MismatchError
from distls.storage.model.model import load_model

RNG = np.random.default_rng(0)
X = RNG.normal(size=(600, 3))
Y = np.argmax(X + 0.3 * RNG.normal(size=X.shape), axis=1)
TWO = np.flatnonzero(Y < 2)  # rows of the first day


def test_a_model_takes_up_a_further_class(tmp_path):
    data = tmp_path / "d"
    distls.ingest(X[TWO], data, y=Y[TWO])
    first = distls.fit("newton", data, tmp_path / "1", tol=1e-8)
    distls.append(data, X, y=Y)
    # a fit of the rows before cannot go on with others
    with pytest.raises(MismatchError, match="new run"):
        distls.resume(tmp_path / "1")
    problem = SimpleNamespace(dataset=distls.open_dataset(data), shape=(3, 3))
    start = with_further_classes(first.model, problem)
    half = first.model.weights[:, 0] / 2
    assert np.array_equal(start.weights, np.stack([-half, half, 0 * half], axis=1))
    starts = ({"init": str(tmp_path / "1")}, {})
    with pytest.warns(UserWarning, match=r'1 has no class "2": its weights begin at zero') as said:
        warm, cold = (
            distls.fit("newton", data, tmp_path / f"2{len(start)}", params=start, tol=1e-8)
            for start in starts
        )
    assert len(said) == 1
    done = command("fit", "newton", data, tmp_path / "3", "--from", tmp_path / "1", "--tol", "1e-8")
    assert done[0] == 0
    assert '1 has no class "2": its weights begin at zero' in done[2]
    assert load_model(tmp_path / "3").sha256 == warm.model.sha256
    assert warm.model.classes == [0, 1, 2]
    assert np.allclose(warm.model.weights, cold.model.weights, atol=1e-4)


def test_a_class_that_is_gone_is_refused(tmp_path):
    distls.ingest(X, tmp_path / "three", y=Y)
    distls.fit("sgd", tmp_path / "three", tmp_path / "m", passes=1)
    distls.ingest(X[TWO], tmp_path / "two", y=Y[TWO])
    with pytest.raises(MismatchError, match="other labels"):
        distls.fit("sgd", tmp_path / "two", tmp_path / "n", params={"init": str(tmp_path / "m")})


@pytest.mark.slow
def test_a_link_gives_the_model_to_others_in_one_step(tmp_path):
    distls.ingest(X, tmp_path / "d", y=Y)
    current = tmp_path / "current"
    for day in ("1", "2"):
        given = {"init": str(current)} if current.exists() else {}
        distls.fit("sgd", tmp_path / "d", tmp_path / day, passes=1, params=given)
        (tmp_path / "next").symlink_to(day)
        os.replace(tmp_path / "next", current)
        assert load_model(current).sha256 == load_model(tmp_path / day).sha256
        assert len(distls.load_model(current).predict(X[:4])) == 4


def test_a_run_finds_data_that_were_moved(tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    distls.ingest(X, old / "d", y=Y)
    whole = distls.fit("sgd", old / "d", tmp_path / "whole", passes=3)
    distls.fit("sgd", old / "d", old / "run", passes=2)
    old.rename(new)
    # both together
    assert distls.resume(new / "run", passes=3).model.sha256 == whole.model.sha256
    (new / "d").rename(tmp_path / "elsewhere")
    with pytest.raises(FormatError, match="--data"):
        distls.resume(new / "run", passes=4)
    assert distls.resume(new / "run", passes=4, data=tmp_path / "elsewhere").passes == 4
    distls.ingest(X[:300], tmp_path / "others", y=Y[:300])
    with pytest.raises(MismatchError, match="fingerprint"):
        distls.resume(new / "run", passes=5, data=tmp_path / "others")
