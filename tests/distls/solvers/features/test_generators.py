"""GEN's preparations: principal components, bandwidth, masks and orders, by any executor and from any layout."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from helpers import raised, refuses, write_dataset

from distls.execution.dask.local_cluster import start_local
from distls.execution.memory_budget import MemoryBudget
from distls.execution.serial import SerialExecutor
from distls.problem import Problem
from distls.solvers.block_reads import BlockReader
from distls.solvers.features import generator_parameters, generators
from distls.storage.errors import ParameterError
from distls.storage.rows import DenseRows
from distls.workers.features import fit_task as masks
from distls.workers.features.design import blocks
from distls.workers.rounds.task import Needs

N, D = 600, 20
PARAMS = {"features": "fourier", "block_size": 32, "stages": 3}
EXECUTOR = SerialExecutor()
_NO_ORDER = np.empty(0, np.int64)


def _rows(n=N, d=D):
    rng = np.random.default_rng(0)
    scales = 3.0 / (1 + np.arange(d))
    x = rng.standard_normal((n, d)) * scales @ np.linalg.qr(rng.standard_normal((d, d)))[0]
    return np.where(rng.random((n, d)) < 0.6, x + 0.5, 0).astype(np.float32)


def _reader(path, x, *, lanes=None, partition_rows=90, weight=None):
    y = np.arange(x.shape[0], dtype=np.int32) % 3
    dataset = write_dataset(path, x, y, partition_rows=partition_rows, sample_weight=weight)
    params = {"loss": "squared", "alpha": 1e-3, "fit_intercept": True, "dtype": "float32"}
    problem = Problem.of(dataset, params, 5, ("class",))
    return BlockReader(problem, lanes=lanes, needs=Needs(10**4, 10**5), memory=MemoryBudget())


@pytest.fixture
def reader(tmp_path):
    return _reader(tmp_path / "data", _rows())


def _values(design, x):
    pieces = blocks(design, DenseRows(x), np.dtype(np.float64))
    return np.concatenate([piece.values.copy() for _, piece in pieces])


# ---------------------------------------------------------------- principal components


@pytest.mark.fast_cases("False")
@pytest.mark.parametrize("sparse", [False, True])
def test_principal_components(tmp_path, sparse):
    x = _rows()
    reader = _reader(tmp_path / "data", sp.csr_matrix(x) if sparse else x)
    found = generators.principal_components(reader, EXECUTOR, 6)
    wide = x.astype(np.float64)
    np.testing.assert_allclose(found.mean, wide.mean(axis=0), rtol=1e-12)
    _, _, vectors = np.linalg.svd(wide - wide.mean(axis=0), full_matrices=False)
    expected = vectors[:6].T
    expected = expected * np.sign(expected[np.abs(expected).argmax(axis=0), np.arange(6)])
    np.testing.assert_allclose(found.components, expected, atol=1e-9)
    np.testing.assert_allclose(found.components.T @ found.components, np.eye(6), atol=1e-12)


def test_principal_components_count_weights(tmp_path):
    x, weight = _rows(), 1.0 + np.arange(N) % 3
    weighted = generators.principal_components(_reader(tmp_path / "a", x, weight=weight), EXECUTOR, 4)
    twice = np.repeat(x, weight.astype(int), axis=0)
    repeated = generators.principal_components(_reader(tmp_path / "b", twice), EXECUTOR, 4)
    np.testing.assert_allclose(weighted.mean, repeated.mean, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(weighted.components, repeated.components, atol=1e-9)


def test_more_components_than_rows_have_are_refused(tmp_path):
    x = _rows(d=6)
    x[:, 3] = x[:, 1]
    x[:, 4] = 1.0
    reader = _reader(tmp_path / "data", x)
    assert generators.principal_components(reader, EXECUTOR, 4).components.shape == (6, 4)
    message = "^pca=5: rows vary in 4 directions only; set pca to at most that$"
    refuses(ParameterError, message, generators.principal_components, reader, EXECUTOR, 5)


def test_principal_components_of_a_constant_are_refused(tmp_path):
    reader = _reader(tmp_path / "data", np.full((100, 3), 2.5, np.float32))
    refuses(ParameterError, "rows vary in 0 directions only", generators.principal_components, reader, EXECUTOR, 1)


# ---------------------------------------------------------------- bandwidth


@pytest.mark.fast_cases("None-False")
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("pca", [None, 5])
def test_the_bandwidth_is_the_median_squared_distance(tmp_path, sparse, pca):
    """Of all rows, since there are fewer than the sample has."""
    x = _rows()
    reader = _reader(tmp_path / "data", sp.csr_matrix(x) if sparse else x)
    design = generators.design_for({**PARAMS, "pca": pca}, reader, EXECUTOR, 0)
    values = x.astype(np.float64)
    if pca:
        values = (values - values.mean(axis=0)) @ design.projection.components
    distances = np.square(values[:, None] - values[None]).sum(axis=2)[np.triu_indices(N, 1)]
    np.testing.assert_allclose(design.bandwidth, np.median(distances), rtol=1e-10)
    asked = {**PARAMS, "features": "polynomials", "pca": pca, "bandwidth": "median"}
    assert generators.design_for(asked, reader, EXECUTOR, 0).bandwidth == design.bandwidth
    assert (design.kind, design.size, design.n_features) == ("fourier", 32, D)


def test_a_sample_is_a_choice_of_rows(reader, monkeypatch):
    monkeypatch.setattr(generators, "SAMPLE_ROWS", 100)
    sample = generators._sample(reader, EXECUTOR, 0)
    assert isinstance(sample, DenseRows)
    known = {row.tobytes() for row in _rows()}
    chosen = {row.tobytes() for row in sample.values}
    assert len(chosen) == len(sample.values) == 100
    assert chosen <= known
    again, other = (generators._sample(reader, EXECUTOR, seed) for seed in (0, 1))
    assert np.array_equal(sample.values, again.values)
    assert not np.array_equal(sample.values, other.values)


def test_a_bandwidth_of_zero_is_refused(tmp_path):
    reader = _reader(tmp_path / "data", np.ones((60, 3), np.float32))
    message = "^bandwidth: the median distance of rows is 0; give a number, such as bandwidth=1$"
    refuses(ParameterError, message, generators.design_for, PARAMS, reader, EXECUTOR, 0)
    given = generators.design_for({**PARAMS, "bandwidth": 2.5}, reader, EXECUTOR, 0)
    assert given.bandwidth == 2.5


@pytest.mark.fast_cases("None-1", "10-3")
@pytest.mark.parametrize("degree", [1, 2, 3])
@pytest.mark.parametrize("pca", [None, 10])
def test_polynomials_have_a_mean_square_of_one(reader, degree, pca):
    params = {**PARAMS, "features": "polynomials", "pca": pca, "degree": degree, "block_size": 20_000}
    design = generators.design_for(params, reader, EXECUTOR, 0)
    assert design.degree == degree
    np.testing.assert_allclose(np.square(_values(design, _rows())).mean(), 1.0, atol=0.15)
    squares = np.square(_values(replace(design, kind="all"), _rows())).sum(axis=1)
    np.testing.assert_allclose(np.mean((squares / design.bandwidth + 0.5) ** degree), 1.0, rtol=1e-9)


def test_polynomials_of_nothing_are_refused(tmp_path):
    reader = _reader(tmp_path / "data", np.zeros((60, 3), np.float32))
    with pytest.raises(ParameterError, match=r"^bandwidth: all rows are zero; give a number, such as bandwidth=1$"):
        generators.design_for({**PARAMS, "features": "polynomials"}, reader, EXECUTOR, 0)


# ---------------------------------------------------------------- orders of columns


def test_random_columns_come_once_a_pass(reader):
    params = {**PARAMS, "features": "columns", "block_size": 8}
    base = generators.design_for(params, reader, EXECUTOR, 3)
    assert generator_parameters.stages_per_pass(params, D) == 3
    orders = [generators.column_order(params, reader, EXECUTOR, 3, number) for number in (0, 0, 1)]
    assert np.array_equal(orders[0], orders[1])
    assert not np.array_equal(orders[0], orders[2])
    designs = [generators.design_at(base, stage, orders[0]) for stage in range(4)]
    assert [design.size for design in designs] == [8, 8, 4, 8]
    columns = [design.columns for design in designs]
    assert all(np.all(np.diff(own) > 0) for own in columns)
    assert sorted(np.concatenate(columns[:3])) == list(range(D))
    assert np.array_equal(columns[3], columns[0])
    assert np.array_equal(_values(designs[2], _rows()), _rows()[:, columns[2]])


def test_columns_with_replacement_are_drawn_anew(reader):
    params = {**PARAMS, "features": "columns-replaced", "block_size": 8}
    base = generators.design_for(params, reader, EXECUTOR, 3)
    order = generators.column_order(params, reader, EXECUTOR, 3, 0)
    assert order.shape == (0,)
    columns = [generators.design_at(base, stage, order).columns for stage in range(300)]
    assert all(np.all(np.diff(own) > 0) for own in columns)
    assert np.array_equal(generators.design_at(base, 7, order).columns, columns[7])
    counts = np.bincount(np.concatenate(columns), minlength=D)
    assert counts.min() > 80  # of 120 on average
    assert counts.max() < 160


@pytest.mark.parametrize("sparse", [False, True])
def test_frequency(tmp_path, sparse):
    x = _rows()
    x[:, 3] = 0.0
    x[:, 7] = x[:, 9] = 1.0
    reader = _reader(tmp_path / "data", sp.csr_matrix(x) if sparse else x)
    order = generators.column_order({**PARAMS, "features": "frequency"}, reader, EXECUTOR, 0, 0)
    counts = np.count_nonzero(x, axis=0)
    assert list(order) == sorted(range(D), key=lambda j: (-counts[j], j))
    assert list(order[:2]) == [7, 9]
    assert order[-1] == 3
    rarest = generators.column_order({**PARAMS, "features": "rareness"}, reader, EXECUTOR, 0, 0)
    assert list(rarest) == sorted(range(D), key=lambda j: (counts[j], j))


def test_gradient_order():
    cross = np.array([[3.0, 4.0], [0, 0], [-6, 0], [5, 0], [0, -6]])
    assert list(generators.gradient_order(cross)) == [2, 4, 0, 3, 1]


# ---------------------------------------------------------------- masks

IMAGE = {"features": "kmeans-masks", "block_size": 32, "stages": 2, "mask_side": 3}


def _images(n=150):
    """Return images of 8 x 8 pixels in three channels, smooth and of some contrast."""
    rng = np.random.default_rng(0)
    coarse = rng.random((n, 3, 4, 4))
    fine = np.repeat(np.repeat(coarse, 2, axis=2), 2, axis=3) + 0.05 * rng.standard_normal((n, 3, 8, 8))
    return fine.reshape(n, -1).astype(np.float32)


@pytest.mark.slow
def test_the_triangle_of_coates_is_of_distances_from_the_centres(tmp_path):
    """max(0, mean z - z_k) of whitened patches, z_k the distance from the centre k, summed over quadrants."""
    x = _images()
    params = {**IMAGE, "rectify": "triangle", "stages": 1}
    design = generators.design_for(params, _reader(tmp_path / "data", x), EXECUTOR, 0)
    patches, _ = masks.sample_patches(x.astype(np.float64), (3, 8, 8), 3, 0, contrast=False)
    white = masks.whitening_of(patches)
    centres = masks.kmeans((patches - white.mean) @ white.matrix, 8, 0, directions=False)
    every = np.lib.stride_tricks.sliding_window_view(x[:20].reshape(-1, 3, 8, 8), (3, 3), axis=(2, 3))
    every = every.transpose(0, 2, 3, 1, 4, 5).reshape(20, 6, 6, 27).astype(np.float64)
    far = np.linalg.norm(((every - white.mean) @ white.matrix)[..., None, :] - centres, axis=-1)
    near = np.maximum(far.mean(axis=-1, keepdims=True) - far, 0.0)
    sums = near.reshape(20, 2, 3, 2, 3, 8).sum(axis=(2, 4)).reshape(20, 32)
    found = _values(design, x[:20])
    scaled = (sums - sums.mean(axis=0)) / sums.std(axis=0)
    # of the same images, features are standardised by more of them: equal but for a shift and a scale of each
    own = (found - found.mean(axis=0)) / found.std(axis=0)
    np.testing.assert_allclose(own, scaled, atol=1e-4)
    assert (near > 0).mean() < 0.7  # about half are off


@pytest.mark.fast_cases("None-kmeans", "True-random")
@pytest.mark.parametrize("features", ["kmeans-masks", "random-masks"])
@pytest.mark.parametrize("contrast", [None, True])
def test_masks(tmp_path, features, contrast):
    x = _images()
    reader = _reader(tmp_path / "data", x)
    params = {**IMAGE, "features": features, "contrast": contrast}
    generator_parameters.check_features(params, x.shape[1])
    base = generators.design_for(params, reader, EXECUTOR, 0)
    own = base.convolution
    assert (own.shape, own.side, own.filters.shape) == ((3, 8, 8), 3, (8, 27))
    assert (own.contrast > 0) == bool(contrast)
    stages = [generators.design_at(base, stage, _NO_ORDER) for stage in range(2)]
    values = [_values(design, x) for design in stages]
    np.testing.assert_allclose(values[0].mean(axis=0), 0.0, atol=1e-5)
    np.testing.assert_allclose(values[0].std(axis=0), 1.0, rtol=1e-5)
    for stage, design in enumerate(stages):
        assert np.array_equal(design.convolution.filters, own.filters[4 * stage : 4 * stage + 4])
    assert np.abs(np.corrcoef(values[0].ravel(), values[1].ravel())[0, 1]) < 0.95


@pytest.mark.slow
def test_polynomials_beside_masks(tmp_path):
    """A stage's masks are as many without them, and polynomials have a mean square of a tenth."""
    x = _images()
    reader = _reader(tmp_path / "data", x)
    plain, expanded = (
        generators.design_for({**IMAGE, **more}, reader, EXECUTOR, 0)
        for more in ({}, {"block_size": 10_032, "expand": 10_000})
    )
    assert np.array_equal(plain.convolution.filters, expanded.convolution.filters)
    for stage in range(2):
        alone, beside = (_values(generators.design_at(one, stage, _NO_ORDER), x) for one in (plain, expanded))
        assert np.array_equal(beside[:, :32], alone)
        np.testing.assert_allclose(np.square(beside[:, 32:]).mean(), 0.1, rtol=0.5 if stage else 0.1)


@pytest.mark.slow
def test_the_bandwidth_of_polynomials_beside_masks(tmp_path):
    """A number is taken as it is; the median is that of distances between the first stage's features."""
    x = _images()
    reader = _reader(tmp_path / "data", x)
    params = {**IMAGE, "block_size": 40, "expand": 8}
    given = generators.design_for({**params, "bandwidth": 5.0}, reader, EXECUTOR, 0)
    assert given.bandwidth == 5.0
    found = generators.design_for({**params, "bandwidth": "median"}, reader, EXECUTOR, 0)
    z = _values(found.at(0), x)[:, :32]
    distances = np.square(z[:, None] - z[None]).sum(axis=2)[np.triu_indices(len(z), 1)]
    np.testing.assert_allclose(found.bandwidth, np.median(distances), rtol=1e-5)


def test_responses_to_random_patches_are_white(tmp_path):
    """What whitening is for: masks respond to patches with about the same variance, around zero."""
    patches, floor = masks.sample_patches(_images().astype(np.float64), (3, 8, 8), 3, seed=0, contrast=False)
    assert floor == 0.0
    assert patches.shape == (50_100, 27)
    white = masks.whitening_of(patches)
    values = (patches - white.mean) @ white.matrix
    np.testing.assert_allclose(values.mean(axis=0), 0, atol=1e-10)
    spread = np.linalg.eigvalsh(values.T @ values / len(values))
    before = np.linalg.eigvalsh(np.cov(patches.T))
    assert before[-1] / before[0] > 20 > 3 > spread[-1] / spread[0]
    np.testing.assert_allclose(white.matrix, white.matrix.T, atol=1e-12)


def test_contrast_normalised_patches(tmp_path):
    images = _images().astype(np.float64)
    patches, floor = masks.sample_patches(images, (3, 8, 8), 3, seed=0, contrast=True)
    plain, _ = masks.sample_patches(images, (3, 8, 8), 3, seed=0, contrast=False)
    expected = (plain - plain.mean(axis=1, keepdims=True)) / np.sqrt(plain.var(axis=1) + floor)[:, None]
    np.testing.assert_allclose(patches, expected, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(floor, 0.004 * plain.var(axis=1).mean(), rtol=1e-12)
    # scaled images have the same patches
    scaled, _ = masks.sample_patches(255 * images, (3, 8, 8), 3, seed=0, contrast=True)
    np.testing.assert_allclose(scaled, patches, rtol=1e-9, atol=1e-12)


def test_patches_are_cut_from_images():
    images = np.arange(2 * 48, dtype=np.float64).reshape(2, 48)
    patches, _ = masks.sample_patches(images, (3, 4, 4), 2, seed=0, contrast=False)
    windows = {
        images[i].reshape(3, 4, 4)[:, a : a + 2, b : b + 2].tobytes()
        for i in range(2) for a in range(3) for b in range(3)
    }  # fmt: skip
    assert {patch.tobytes() for patch in patches} == windows


def test_kmeans_finds_directions_of_clusters():
    rng = np.random.default_rng(0)
    centres = 10 * np.eye(6)
    points = centres[rng.integers(0, 6, 3000)] + rng.standard_normal((3000, 6))
    found = masks.kmeans(points, 12, 0)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1)
    assert set(found.argmax(axis=1)) == set(range(6))


def test_kmeans_of_few_points_leaves_no_centre_at_nothing():
    points = np.eye(3)[[0, 0, 1, 1, 2]]
    found = masks.kmeans(points, 4, 0)
    assert np.isfinite(found).all()
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1)
    assert set(found.argmax(axis=1)) == {0, 1, 2}


def test_masks_are_those_of_all_models(tmp_path):
    reader = _reader(tmp_path / "data", _images())
    base = generators.design_for({**IMAGE, "models": 3}, reader, EXECUTOR, 0)
    assert len(base.convolution.filters) == 4 * 2 * 3


def test_images_without_anything_on_them_are_refused(tmp_path):
    reader = _reader(tmp_path / "data", np.ones((60, 192), np.float32))
    with pytest.raises(ParameterError, match="no filter activates on the sampled images: are"):
        generators.design_for(IMAGE, reader, EXECUTOR, 0)


# ---------------------------------------------------------------- promises

ALL = [
    {"features": "fourier", "pca": 5},
    {"features": "logits"},
    {"features": "polynomials", "degree": 2},
    {"features": "frequency", "block_size": 7},
    {"features": "kmeans-masks", "image": "5x4x1", "mask_side": 2, "pool": 1},
    {"features": "random-masks", "image": "5x4x1", "mask_side": 3, "contrast": True},
    {"features": "kmeans-masks", "image": "5x4x1", "mask_side": 2, "rectify": "triangle"},
    {"features": "random-masks", "image": "5x4x1", "mask_side": 2, "block_size": 20, "expand": 12},
]


@pytest.fixture
def dask_executor():
    executor = start_local(2, 1, None)
    yield executor
    executor.close()


def _prepared(params, reader, executor):
    design = generators.design_for(params, reader, executor, 11)
    order = generators.column_order(params, reader, executor, 11, 0)
    found = [np.float64(design.bandwidth), order]
    if design.projection is not None:
        found += [design.projection.mean, design.projection.components]
    if design.convolution is not None:
        own = design.convolution
        found += [own.filters, own.offsets, own.means, own.scales]
    return [np.asarray(array) for array in found]


@pytest.mark.slow
def test_the_same_bits_with_workers(tmp_path, dask_executor):
    reader = _reader(tmp_path / "data", _rows())
    for params in ALL:
        merged = {**PARAMS, **params}
        serial, remote = (_prepared(merged, reader, executor) for executor in (EXECUTOR, dask_executor))
        for one, other in zip(serial, remote, strict=True):
            assert np.array_equal(one, other), params


@pytest.mark.fast_cases(r"\{'features': 'fourier', 'pca': 5\}$")
@pytest.mark.parametrize("params", ALL, ids=str)
def test_a_probe_costs_what_a_stage_costs(reader, params):
    merged = {**PARAMS, **params}
    generator_parameters.check_features(merged, D)
    probe = generator_parameters.probe_design(merged, D, 0)
    base = generators.design_for(merged, reader, EXECUTOR, 0)
    order = generators.column_order(merged, reader, EXECUTOR, 0, 0)
    stage = generators.design_at(base, 1, order)
    assert probe.kind == stage.kind
    assert probe.width(D) == stage.width(D) == generator_parameters.block_width(merged, D)
    dtype = np.dtype(np.float32)
    assert probe.work_bytes(D, dtype) == stage.work_bytes(D, dtype)
    assert np.isfinite(_values(probe, _rows(40))).all()


REFUSED = [
    ({"features": "sines"}, "features=sines: expected one of columns, columns-replaced, frequency, rareness, gradient, "
     "block-gradient, fourier, logits, polynomials, random-masks, kmeans-masks"),
    ({"features": "columns", "pca": 3}, "pca=3: used with features=fourier|logits|polynomials only; leave it out"),
    ({"features": "frequency", "bandwidth": 1.0},
     "bandwidth=1.0: used with features=fourier|logits|polynomials only; leave it out"),
    ({"features": "fourier", "expand": 3}, "expand=3: used with features=random-masks|kmeans-masks only; leave it out"),
    ({"features": "random-masks", "degree": 3},
     "degree=3: used with features=polynomials, or with expand, only; leave it out"),
    ({"features": "random-masks", "image": "5x4x1", "mask_side": 2, "block_size": 30, "expand": 12},
     "block_size=30, expand=12: a filter makes 8 features; take a multiple + 12, such as 28"),
    ({"features": "random-masks", "image": "5x4x1", "mask_side": 2, "block_size": 30, "expand": 30},
     "block_size=30, expand=30: a filter makes 8 features; take a multiple + 30, such as 38"),
    ({"features": "fourier", "degree": 3}, "degree=3: used with features=polynomials only; leave it out"),
    ({"features": "logits", "contrast": False},
     "contrast=False: used with features=random-masks|kmeans-masks only; leave it out"),
    ({"pca": 21}, "pca=21: rows have only 20 features"),
    ({"features": "random-masks"}, "rows of 20 features are no square images of one or three channels; "
     "say what they are, such as image=28x28x1"),
    ({"features": "random-masks", "image": "5x4"}, "image=5x4: expected HEIGHTxWIDTHxCHANNELS, such as 32x32x3"),
    ({"features": "random-masks", "image": "5x5x1"}, "image=5x5x1: that is 25 values, but rows have 20 features"),
    ({"features": "random-masks", "image": "5x4x1"}, "mask_side=6, pool=2: an image of 5 x 4 pixels has no 2 x 2 "
     "regions of positions of a filter; make them smaller"),
    ({"features": "random-masks", "image": "5x4x1", "mask_side": 2, "block_size": 30},
     "block_size=30: a filter makes 8 features; take a multiple, such as 24"),
]  # fmt: skip


@pytest.mark.fast_cases(
    "features=sines", "degree=3: used with features=polynomials,", "degree=3: used with features=polynomials only",
    "rows", "block_size=30:",
)  # fmt: skip
@pytest.mark.parametrize(("params", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_refusals(params, message):
    assert raised(ParameterError, generator_parameters.check_features, {**PARAMS, **params}, D) == message


def test_square_images_are_recognised():
    for n_features, shape in ((3072, (3, 32, 32)), (784, (1, 28, 28))):
        assert generator_parameters.image_shape({}, n_features) == shape
    assert generator_parameters.image_shape({"image": "5x4x2"}, 40) == (2, 5, 4)
