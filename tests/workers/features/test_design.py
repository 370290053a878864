"""Blocks of features: every kind against its formula, sparse rows as dense ones, recipes, the same bits anywhere."""

import hashlib
import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from helpers import as_rows, refuses

from distls.storage.errors import FormatError
from distls.storage.rows import CsrRows, DenseRows
from distls.workers.features import feature_kernels as kernels
from distls.workers.features.convolution import Convolution
from distls.workers.features.design import PIECE_ROWS, Design, Projection, blocks, can_pad, project, shared_projection
from distls.workers.features.design_recipe import design_of, recipe_of
from reference import features as reference

FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
D = 12


def _rows(n=700, d=D, seed=0):
    rng = np.random.default_rng(seed)
    return np.where(rng.random((n, d)) < 0.4, rng.standard_normal((n, d)), 0).astype(np.float32)


def _projection(d=D, m=5):
    rng = np.random.default_rng(1)
    return Projection(rng.standard_normal(d), np.linalg.qr(rng.standard_normal((d, m)))[0])


def _convolution(**changes):
    rng = np.random.default_rng(2)
    own = Convolution((2, 7, 6), 3, rng.standard_normal((10, 18)), rng.standard_normal(10), threshold=0.1)
    own = replace(own, **changes)
    if own.rectify == "triangle":
        # centres c of patches that are whitened by a symmetric matrix
        half, shift, centres = *rng.standard_normal((2, 18, 18)), rng.standard_normal((10, 18))
        matrix, mean = np.eye(18) + half @ half.T / 18, shift[0]
        own = replace(
            own,
            filters=centres @ matrix,
            offsets=-(centres @ matrix @ mean) - 0.5 * np.square(centres).sum(axis=1),
            whitening=np.vstack([mean @ matrix, matrix]),
        )
    means, scales = rng.standard_normal((2, own.per_filter, 10))
    return replace(own, means=means, scales=scales)


def features_of(design, x, dtype=FLOAT64):
    """Return the features of all rows."""
    n_rows, found = len(x.values) if isinstance(x, DenseRows) else len(x.indptr) - 1, []
    reached = 0
    for rows, piece in blocks(design, x, dtype):
        if isinstance(piece, CsrRows):
            width = design.width(design.n_features)
            values = sp.csr_matrix((piece.data, piece.indices, piece.indptr), (len(piece.indptr) - 1, width))
            found.append(values.toarray())
        else:
            assert len(piece.values) <= PIECE_ROWS
            assert piece.values.dtype == dtype
            found.append(piece.values.copy())
        assert rows == slice(reached, reached + len(found[-1]))
        reached = rows.stop
    assert reached == n_rows
    return np.concatenate(found)


def _expected(design, x):
    values = x.astype(np.float64)
    if design.kind == "masks":
        per_filter, expand = design.convolution.per_filter, design.expand
        per_stage = (design.size - expand) // per_filter
        values = reference.convolutions(values, design.convolution.part(design.stage, per_stage))
        if not expand:
            return values
        s, seed, stage = design.bandwidth, design.seed, design.stage
        polynomials = reference.polynomials(values, expand, s, seed, stage, design.degree)
        return np.concatenate([values, np.sqrt(0.1) * polynomials], axis=1)
    if design.convolution is not None:
        values = reference.convolutions(values, design.convolution)
    if design.projection is not None:
        values = (values - design.projection.mean) @ design.projection.components
    if design.kind == "all":
        return values
    if design.kind == "columns":
        return values[:, design.columns]
    drawn = (design.size, design.bandwidth, design.seed, design.stage)
    if design.kind == "polynomials":
        return reference.polynomials(values, *drawn, design.degree)
    return {"fourier": reference.fourier, "logits": reference.logits}[design.kind](values, *drawn)


_COLUMNS = np.array([0, 3, 4, 11])
DESIGNS = {
    "all": Design(n_features=D),
    "columns": Design("columns", 4, columns=_COLUMNS, n_features=D),
    "fourier": Design("fourier", 33, seed=3, stage=2, bandwidth=7.0, n_features=D),
    "logits": Design("logits", 33, seed=3, stage=2, bandwidth=7.0, n_features=D),
    "polynomials": Design("polynomials", 33, seed=3, stage=2, bandwidth=7.0, degree=3, n_features=D),
    "pca": Design(projection=_projection(), n_features=D),
    "pca columns": Design("columns", 2, columns=np.array([1, 4]), projection=_projection(), n_features=D),
    "pca fourier": Design("fourier", 20, bandwidth=3.0, projection=_projection(), n_features=D),
    "pca polynomials": Design("polynomials", 20, bandwidth=3.0, projection=_projection(), n_features=D),
    "masks": Design("masks", 32, stage=1, convolution=_convolution(), n_features=84),
    "triangles": Design("masks", 20, stage=1, convolution=_convolution(rectify="triangle"), n_features=84),
    "expanded masks": Design(
        "masks", 45, seed=3, stage=1, bandwidth=40.0, convolution=_convolution(), n_features=84, expand=13
    ),
    "convolved": Design(convolution=_convolution(), n_features=84),
    "convolved logits": Design(
        "logits", 9, bandwidth=50.0, convolution=_convolution(), projection=_projection(80, 7), n_features=84
    ),
}


@pytest.mark.fast_cases(
    "float32-all", "float32-pca$", "float32-expanded", "float64-fourier", "float64-pca polynomials",
    "float64-convolved logits",
)  # fmt: skip
@pytest.mark.parametrize("name", DESIGNS)
@pytest.mark.parametrize("dtype", [FLOAT32, FLOAT64], ids=str)
def test_features_are_those_of_the_formula(name, dtype):
    design = DESIGNS[name]
    x = _rows(700 if design.n_features == D else 30, design.n_features)
    expected = _expected(design, x)
    tolerance = 3e-5 if dtype == FLOAT32 else 1e-12
    found = features_of(design, DenseRows(x), dtype)
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)
    assert design.width(design.n_features) == expected.shape[1]


@pytest.mark.fast_cases("all", "pca columns", "convolved logits")
@pytest.mark.parametrize("name", DESIGNS)
def test_sparse_rows_have_the_features_of_dense_ones(name):
    design = DESIGNS[name]
    x = _rows(700 if design.n_features == D else 30, design.n_features)
    dense, sparse = (features_of(design, rows) for rows in (DenseRows(x), as_rows(x, "csr")))
    np.testing.assert_allclose(sparse, dense, rtol=1e-12, atol=1e-13)


@pytest.mark.fast_cases(r"\{'rectify': 'absolute'\}", r"\{'rectify': 'triangle', 'contrast'")
@pytest.mark.parametrize(
    "changes",
    [
        {"rectify": "absolute"},
        {"contrast": 0.3},
        {"pool": 3},
        {"pool": 1, "rectify": "absolute", "contrast": 2.0},
        {"rectify": "triangle", "threshold": 0.0},
        {"rectify": "triangle", "contrast": 0.3, "pool": 3},
    ],
    ids=str,
)
def test_convolutions(changes):
    own = _convolution(**changes)
    x = _rows(9, 84)
    found = features_of(Design(convolution=own, n_features=84), DenseRows(x))
    np.testing.assert_allclose(found, reference.convolutions(x, own), rtol=1e-12, atol=1e-13)
    assert found.shape == (9, own.width)


@pytest.mark.slow
def test_kernels_are_approximated():
    """E[z z'] over features is the Gaussian kernel, or the polynomial one, and E[z^2] is about 1."""
    x = _rows(6) / 2
    s, size = 8.0, 200_000
    distances = np.square(x[:, None] - x[None]).sum(axis=2)
    z = features_of(Design("fourier", size, bandwidth=s), DenseRows(x), FLOAT32)
    np.testing.assert_allclose(z @ z.T / size, np.exp(-distances / s), atol=0.012)
    z = features_of(Design("polynomials", size, bandwidth=s), DenseRows(x), FLOAT32)
    np.testing.assert_allclose(z @ z.T / size, np.square(x @ x.T / s + 0.5), atol=0.02)


@pytest.mark.fast_cases("fourier")
@pytest.mark.parametrize("kind", ["fourier", "logits", "polynomials"])
def test_features_of_a_row_do_not_depend_on_the_rows_beside_it(kind):
    """Any partitioning has the same features up to what BLAS rounds; whole pieces the same bits."""
    design = Design(kind, 100, bandwidth=9.0)
    x = _rows(3 * PIECE_ROWS + 77)
    whole = features_of(design, DenseRows(x), FLOAT32)
    pieces = [
        features_of(design, DenseRows(x[first : first + PIECE_ROWS]), FLOAT32) for first in range(0, len(x), PIECE_ROWS)
    ]
    assert np.array_equal(np.concatenate(pieces), whole)
    odd = [features_of(design, DenseRows(part), FLOAT32) for part in np.array_split(x, 7)]
    np.testing.assert_allclose(np.concatenate(odd), whole, rtol=1e-4, atol=1e-5)


@pytest.mark.fast_cases("dtype0-fourier", "dtype1-polynomials")
@pytest.mark.parametrize("kind", ["fourier", "logits", "polynomials"])
@pytest.mark.parametrize("dtype", [FLOAT32, FLOAT64])
def test_room_behind_the_features_changes_none_of_them(kind, dtype):
    x = DenseRows(_rows())
    design = Design(kind, 40, seed=3, bandwidth=2.0)
    assert can_pad(design, x)
    assert can_pad(replace(design, projection=_projection(), n_features=D), as_rows(x.values, "csr"))
    assert not can_pad(design, as_rows(x.values, "csr"))
    assert not can_pad(Design(), x)
    for rows, piece in blocks(design, x, dtype, padding=3):
        assert isinstance(piece, DenseRows)
        assert piece.values.shape == (rows.stop - rows.start, 43)
        assert piece.values.flags.c_contiguous
        piece.values[:, 40:] = np.nan
        expected = features_of(design, DenseRows(x.values[rows]), dtype)
        np.testing.assert_array_equal(piece.values[:, :40], expected)


def test_stages_and_seeds_are_independent():
    x = DenseRows(_rows(50))
    base = Design("fourier", 2000, bandwidth=5.0)
    first, again = features_of(base, x), features_of(base, x)
    assert np.array_equal(first, again)
    for other in (replace(base, stage=1), replace(base, seed=1), base.at(3)):
        z = features_of(other, x)
        assert abs(np.corrcoef(first[0], z[0])[0, 1]) < 0.1


def test_two_designs_can_be_worked_on_in_turns():
    """A piece's memory is its own until the next one of the same block is asked for."""
    x = DenseRows(_rows(2 * PIECE_ROWS))
    one, two = DESIGNS["fourier"], DESIGNS["logits"]
    expected = features_of(one, x, FLOAT32), features_of(two, x, FLOAT32)
    for (rows, a), (_, b) in zip(blocks(one, x, FLOAT32), blocks(two, x, FLOAT32), strict=True):
        assert np.array_equal(a.values, expected[0][rows])
        assert np.array_equal(b.values, expected[1][rows])


@pytest.mark.parametrize("layout", ["dense", "csr"])
def test_a_shared_projection_is_done_once_and_changes_no_bit(layout):
    x = _rows(2 * PIECE_ROWS + 9)
    rows = as_rows(x, layout)
    copy = Projection(_projection().mean.copy(), _projection().components.copy())
    designs = [DESIGNS["pca fourier"], replace(DESIGNS["pca polynomials"], projection=copy)]
    projection, after = shared_projection(designs)
    shared = project(projection, rows, FLOAT32)
    assert shared.values.shape == (len(x), 5)
    for before, one in zip(designs, after, strict=True):
        assert one.projection is None
        assert np.array_equal(features_of(one, shared, FLOAT32), features_of(before, rows, FLOAT32))


@pytest.mark.fast_cases("fourier")
@pytest.mark.parametrize("other", ["fourier", "masks", "changed"])
def test_projections_that_differ_are_not_shared(other):
    first = DESIGNS["pca fourier"]
    mean = _projection().mean + 1
    second = DESIGNS.get(other, replace(first, projection=replace(_projection(), mean=mean)))
    assert shared_projection([first, second]) == (None, [first, second])


# ---------------------------------------------------------------- kernels


def _ulps(found, expected):
    return float(np.abs(found - expected).max() / np.finfo(np.float32).eps)


def test_cosines_are_exact_to_a_few_units():
    rng = np.random.default_rng(0)
    turns = (rng.standard_normal((200, 501)) * 40).astype(np.float32)
    turns[0, :8] = [0, 0.25, 0.5, 0.75, 1, -0.25, 1e4, -1e4]
    offsets = np.concatenate([np.zeros(8), rng.random(493)]).astype(np.float32)
    expected = np.sqrt(2) * np.cos(2 * np.pi * (turns + offsets).astype(np.float64))
    kernels.cosines(turns, offsets)
    assert _ulps(turns, expected) < 2.5
    # without loss of relative accuracy where the cosine vanishes
    assert turns[0, 1] == turns[0, 3] == turns[0, 5] == 0


def test_logits_are_exact_to_a_few_units():
    z = np.linspace(-100, 100, 20_001, dtype=np.float32).reshape(1, -1)
    offsets = np.zeros(z.shape[1], np.float32)
    expected = np.tanh(z.astype(np.float64) / 2)
    kernels.logits(z, offsets)
    assert _ulps(z, expected) < 2.5
    assert (z[0, 0], z[0, -1]) == (-1, 1)


@pytest.mark.parametrize("kernel", [kernels.cosines, kernels.logits])
def test_what_is_not_finite_stays_so(kernel):
    z = np.full((1, 20), np.nan, np.float32)
    kernel(z, np.zeros(20, np.float32))
    assert np.isnan(z).all()


@pytest.mark.parametrize("kernel", [kernels.cosines, kernels.logits])
def test_values_do_not_depend_on_their_place(kernel):
    """Vectors of eight and what is left over at a row's end round alike."""
    z = np.random.default_rng(0).standard_normal(997).astype(np.float32) * 5
    rows = np.array([np.roll(z, shift) for shift in range(17)])
    kernel(rows, np.full(997, 0.3, np.float32))
    back = np.array([np.roll(row, -shift) for shift, row in enumerate(rows)])
    assert np.array_equal(back, np.broadcast_to(back[0], back.shape))


# ---------------------------------------------------------------- recipes


@pytest.mark.fast_cases("all", "pca columns", "convolved logits")
@pytest.mark.parametrize("name", DESIGNS)
def test_recipes_roundtrip(name):
    design = replace(DESIGNS[name], stage=0)
    n_stages = 1 if design.kind == "columns" else 2
    recipe, arrays = recipe_of(design, n_stages)
    found = design_of(json.loads(json.dumps(recipe)), arrays)
    assert [one.stage for one in found] == list(range(n_stages))
    x = DenseRows(_rows(20, design.n_features))
    for stage, one in enumerate(found):
        expected = features_of(replace(design, stage=stage), x)
        assert np.array_equal(features_of(one, x), expected)
        assert np.array_equal(features_of(one.at(stage), x), expected)
    assert recipe_of(found[0], n_stages)[0] == recipe


def test_a_recipe_of_columns_is_that_of_one_stage():
    refuses(ValueError, "columns are those of one stage", recipe_of, DESIGNS["columns"], 2)


BROKEN = [
    ("fourier", {"kind": "os.system"}, {}),
    ("fourier", {"size": -1}, {}),
    ("fourier", {"size": 2.0}, {}),
    ("fourier", {"size": 0}, {}),
    ("fourier", {"seed": True}, {}),
    ("fourier", {"expand": 3}, {}),
    ("expanded masks", {"expand": 14}, {}),
    ("expanded masks", {"expand": -13}, {}),
    ("masks", {}, {"mask_means": np.zeros((3, 10))}),
    ("masks", {}, {"mask_scales": None}),
    ("fourier", {}, {"mask_means": np.zeros((8, 10))}),
    ("fourier", {"bandwidth": 0}, {}),
    ("fourier", {"bandwidth": float("nan")}, {}),
    ("fourier", {"bandwidth": "1"}, {}),
    ("fourier", {"more": 1}, {}),
    ("fourier", {}, {"columns": np.arange(33)}),
    ("columns", {}, {"columns": None}),
    ("columns", {}, {"columns": np.array([3, 0, 4, 11])}),
    ("columns", {}, {"columns": np.array([-1, 0, 4, 11])}),
    ("columns", {}, {"columns": np.array([0, 1, 2])}),
    ("columns", {"n_features": 11}, {}),
    ("pca fourier", {}, {"pca_mean": None}),
    ("pca fourier", {}, {"pca_mean": np.zeros(3)}),
    ("pca fourier", {"n_features": 13}, {}),
    ("masks", {"size": 33}, {}),
    ("masks", {"size": 800}, {}),
    ("masks", {"n_stages": 3}, {}),
    ("masks", {}, {"masks": None}),
    ("masks", {}, {"masks": np.zeros((10, 17))}),
    ("masks", {"convolution": None}, {}),
    ("masks", {"convolution": {"shape": [2, 7, 6]}}, {}),
    ("masks", {"n_features": 83}, {}),
    ("masks", {}, {"mask_whitening": np.zeros((19, 18))}),
    ("triangles", {}, {"mask_whitening": None}),
    ("triangles", {}, {"mask_whitening": np.zeros((18, 18))}),
    ("convolved logits", {}, {"pca_mean": np.zeros(3), "pca_components": np.zeros((3, 2))}),
]


@pytest.mark.fast_cases(
    r"fourier-\{'kind'", r"fourier-\{'seed'", r"masks-\{\}-\{'mask_means'", r"fourier-\{'bandwidth': nan\}",
    r"columns-\{\}-\{'columns': None\}", r"columns-\{\}-\{'columns': array\(\[0", r"pca fourier-\{'n_features'",
    r"masks-\{\}-\{'masks': None\}", r"masks-\{'n_features'", "convolved",
)  # fmt: skip
@pytest.mark.parametrize(("name", "scalars", "changed"), BROKEN, ids=str)
def test_broken_recipes_are_refused(name, scalars, changed):
    recipe, arrays = recipe_of(replace(DESIGNS[name], stage=0), 1)
    arrays = {key: value for key, value in (arrays | changed).items() if value is not None}
    with pytest.raises(FormatError, match="this model's recipe of features was not written by distls: "):
        design_of(recipe | scalars, arrays)


@pytest.mark.parametrize(("name", "value"), [("rectify", "exec"), ("side", 9), ("shape", [84])])
def test_broken_recipes_of_masks_are_refused(name, value):
    recipe, arrays = recipe_of(replace(DESIGNS["masks"], stage=0), 1)
    recipe["convolution"][name] = value
    refuses(FormatError, "was not written by distls", design_of, recipe, arrays)


# ---------------------------------------------------------------- processes


def digest():
    """Return a digest of the bits of all kinds of features."""
    found = hashlib.sha256()
    for design in DESIGNS.values():
        x = _rows(600 if design.n_features == D else 20, design.n_features)
        for rows in (DenseRows(x), as_rows(x, "csr")):
            found.update(np.ascontiguousarray(features_of(design, rows, FLOAT32)).tobytes())
    return found.hexdigest()


@pytest.mark.slow
def test_the_same_bits_in_another_process():
    code = "import sys; sys.path[:0] = sys.argv[1:]; from test_design import digest; print(digest())"
    folders = [path for path in sys.path if path.rstrip("/").endswith("tests")]
    other = subprocess.run(
        [sys.executable, "-c", code, __file__.rpartition("/")[0], *folders],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert other.stdout.strip() == digest()


@pytest.mark.fast_cases("all", "pca columns", "convolved logits")
@pytest.mark.parametrize("name", DESIGNS)
def test_work_bytes_cover_what_is_held(name):
    """Buffers of a process that has worked on one block only, and what was drawn."""
    from distls.storage.dataset.chunks import BufferPool
    from distls.workers.features.design import _FeatureMaker

    design = DESIGNS[name]
    x = DenseRows(_rows(PIECE_ROWS, design.n_features))
    buffers = BufferPool()
    _FeatureMaker(design, x, FLOAT32, buffers).features(slice(0, PIECE_ROWS))
    assert buffers.n_bytes <= 1.1 * design.work_bytes(design.n_features, FLOAT32)
