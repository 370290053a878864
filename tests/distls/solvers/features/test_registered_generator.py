"""A generator of features from outside: blocks of it, its model, and what is refused."""

import numpy as np
import pytest
from helpers import labelled_rows, refuses, write_dataset

from distls import fit, load_model
from distls.storage.errors import FormatError, ParameterError
from distls.workers.features import generator_registry
from distls.workers.features.generator_registry import register_generator
from distls.workers.runtime.rng import Purpose, rng
from reference import stagewise as oracle

D, SIZE = 12, 6


class Rectified:
    """Rectified projections onto random directions: an extreme learning machine."""

    def draw(self, random, n_inputs, size):
        return random.standard_normal((n_inputs, size)), random.standard_normal(size)

    def features(self, x, *drawn):
        directions, offsets = drawn
        return np.maximum(x @ directions + offsets, 0.0)


@pytest.fixture(autouse=True)
def _known(monkeypatch):
    monkeypatch.setattr(generator_registry, "_generators", {})
    register_generator("rectified", Rectified())


@pytest.mark.fast_cases("False")
@pytest.mark.parametrize("sparse", [False, True])
def test_stages_are_the_oracles_and_the_model_makes_them_again(tmp_path, sparse):
    x, y = labelled_rows(150, D, 3)
    dense = x.toarray()
    data = write_dataset(tmp_path / "d", x if sparse else dense, y)
    params = {"features": "rectified", "block_size": SIZE, "stages": 3, "alpha": 1e-3, "dtype": "float64"}
    fit("stagewise", data, tmp_path / "run", params=params, seed=5)
    drawn = [Rectified().draw(rng(5, Purpose.FEATURES, stage), D, SIZE) for stage in range(3)]
    blocks = [Rectified().features(dense, *own) for own in drawn]
    stages = oracle.linear(blocks, np.eye(3)[y], 1e-3, s=np.ones(150), intercept=True)
    scores = load_model(tmp_path / "run").decision_function(dense)
    np.testing.assert_allclose(scores, stages[-1].after, rtol=1e-8, atol=1e-10)


def test_one_block_with_principal_components(tmp_path):
    x, y = labelled_rows(150, D, 3)
    data = write_dataset(tmp_path / "d", x.toarray(), y)
    params = {"features": "rectified", "block_size": 40, "pca": 4, "lanes": 2}
    runs = [fit("cls", data, params=params | extra) for extra in ({}, {"alpha": 1e-2})]
    assert all(run.model is not None and run.record["running_error"] < 0.4 for run in runs)


def test_a_model_of_an_unknown_one_is_refused(tmp_path, monkeypatch):
    x, y = labelled_rows(60, D, 3)
    data = write_dataset(tmp_path / "d", x, y)
    fit("cls", data, tmp_path / "run", params={"features": "rectified", "block_size": 8, "rounds": 1})
    monkeypatch.setattr(generator_registry, "_generators", {})
    with pytest.raises(FormatError, match=r"features are 'rectified'.*register_generator"):
        load_model(tmp_path / "run").predict(x)
    with pytest.raises(ParameterError, match="features=rectified: expected one of none, fourier"):
        fit("cls", data, params={"features": "rectified"})


class _Wrong(Rectified):
    def __init__(self, change):
        self.change = change

    def features(self, x, *drawn):
        if self.change is None:
            x *= 2.0
            return super().features(x, *drawn)
        return self.change(super().features(x, *drawn))


@pytest.mark.fast_cases("Relu", "own-<lambda>-finite", "own-None")
@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("Relu", lambda z: z, "lower-case"),
        ("fourier", lambda z: z, "already"),
        ("own", lambda z: z[:, :1], "shape"),
        ("own", lambda z: z / 0.0, "finite"),
        ("own", lambda z: z + np.random.default_rng().random(z.shape), "what is drawn"),
        ("own", lambda z: z - z.mean(axis=0), "other rows"),
        ("own", None, "changes the rows"),
    ],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_what_is_no_generator(name, change, said):
    refuses(ValueError, said, register_generator, name, _Wrong(change))
    assert "own" not in generator_registry.generator_names()
