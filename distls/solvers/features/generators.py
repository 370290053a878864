"""GEN of Algorithm 3 (least squares revisited): which features a stage has, and what must be known of the data first.

`check_features` reads the parameters, `design_for` fits what they need (principal components, a bandwidth, masks) by
reduced statistics, `column_order` and `gradient_order` rank original features, and `design_at` returns the block of
one stage. The parameters, with None for what is not given:

=============  ==========================================================================================
features       columns (random, without replacement), columns-replaced, frequency, gradient: original
               features; fourier, logits, polynomials: random features; random-masks, kmeans-masks: images
block_size     features of a stage
bandwidth      s of fourier, logits, polynomials; "median" is the median trick, and so is None, except for
               polynomials: there the s that makes their mean square one
pca            components onto which rows are projected before random features; None: not at all
degree         of polynomials (2)
image          HEIGHTxWIDTHxCHANNELS of a row, one channel after the other; None: square, three channels if that fits
mask_side      pixels (6)
pool           means over pool x pool regions (2: quadrants)
rectify        two-sided (the default) or absolute
threshold      what a response must exceed (0)
contrast       whether the contrast of patches is normalised, as in Coates et al. 2011 (false, as in the paper)
expand         so many of a block's features, where they are of masks, are random polynomials of the others (0)
stages         masks are learned for all stages, times `models` where given
=============  ==========================================================================================
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from scipy import sparse as sp

from distls.execution.executor import Executor
from distls.problem import Problem
from distls.solvers.block_reads import BlockReader
from distls.storage.errors import ParameterError
from distls.storage.rows import CsrRows, DenseRows, Rows, concatenate_rows, n_rows_of
from distls.workers.features.convolution import Convolution
from distls.workers.features.design import RANDOM, Design, Projection, blocks
from distls.workers.features.fit_task import (
    MomentsJob,
    SampleJob,
    count_lane,
    merge_counts,
    merge_moments,
    moments_lane,
    sampled_rows,
    shares,
)
from distls.workers.features.kmeans_filters import kmeans, random_masks, sample_patches, whitening_of
from distls.workers.linear_algebra.gram import gram_work_bytes
from distls.workers.linear_algebra.packed_triangle import diagonal, packed_size, unpacked
from distls.workers.rounds.lanes import Lane
from distls.workers.runtime.process import single_threaded_blas
from distls.workers.runtime.rng import Purpose, rng

__all__ = [
    "FEATURES", "GRADIENT", "block_width", "check_features", "check_used", "column_order", "design_at", "design_for",
    "frequency_order", "gradient_order", "median_distance", "preparation_bytes", "principal_components",
    "probe_design", "stage_columns", "stages_per_pass", "unit_scale", "work_bytes",
]  # fmt: skip

GRADIENT, _FREQUENCY, _REPLACED = "gradient", "frequency", "columns-replaced"
_ORIGINAL = ("columns", _REPLACED, _FREQUENCY, GRADIENT)
_MASKS = ("random-masks", "kmeans-masks")
FEATURES = (*_ORIGINAL, *RANDOM, *_MASKS)

# Which features use a parameter, and what it is where it is not given.
_USED_BY = {
    "pca": RANDOM,
    "bandwidth": RANDOM,
    "degree": ("polynomials",),
    **dict.fromkeys(("image", "mask_side", "pool", "rectify", "threshold", "contrast", "expand"), _MASKS),
}
# Those that polynomials of masks' features use too.
_USED_BY_EXPANSION = ("bandwidth", "degree")
_DEFAULTS = {
    "degree": 2,
    "expand": 0,
    "mask_side": 6,
    "pool": 2,
    "rectify": "two-sided",
    "threshold": 0.0,
    "contrast": False,
}

# Rows whose pairs have the median distance, and images whose patches are clustered.
_SAMPLE_ROWS = 2000
# Images on which the means and the variances of convolutional features are measured.
_SCALE_ROWS = 512

Floats = NDArray[np.float64]


def check_features(params: Mapping[str, Any], n_features: int) -> None:
    """Refuse parameters that the chosen kind of features does not use, and impossible ones.

    Raises
    ------
    ParameterError
    """
    kind = params["features"]
    if kind not in FEATURES:
        raise ParameterError(f"features={kind}: expected one of {', '.join(FEATURES)}")
    check_used(params)
    if params.get("pca") is not None and params["pca"] > n_features:
        raise ParameterError(f"pca={params['pca']}: rows have only {n_features} features")
    if kind in _MASKS:
        _masks_per_stage(params, n_features)


def check_used(params: Mapping[str, Any]) -> None:
    """Refuse parameters that the chosen kind of features does not use.

    Raises
    ------
    ParameterError
    """
    kind = params["features"]
    for name, users in _USED_BY.items():
        expands = name in _USED_BY_EXPANSION and kind in _MASKS
        if params.get(name) is None or kind in users or (expands and _get(params, "expand")):
            continue
        also = ", or with expand," if expands else ""
        raise ParameterError(
            f"{name}={params[name]}: used with features={'|'.join(users)}{also} only; leave it out"
        )


def _get(params: Mapping[str, Any], name: str) -> Any:
    value = params.get(name)
    return _DEFAULTS[name] if value is None else value


def _image_shape(params: Mapping[str, Any], n_features: int) -> tuple[int, int, int]:
    """Return (channels, height, width).

    Raises
    ------
    ParameterError
    """
    image = params.get("image")
    if image is None:
        for channels in (3, 1):
            side = math.isqrt(n_features // channels)
            if channels * side * side == n_features:
                return channels, side, side
        raise ParameterError(
            f"rows of {n_features} features are no square images of one or three channels; "
            "say what they are, such as image=28x28x1"
        )
    found = re.fullmatch(r"(\d+)x(\d+)x(\d+)", str(image))
    if found is None:
        raise ParameterError(f"image={image}: expected HEIGHTxWIDTHxCHANNELS, such as 32x32x3")
    height, width, channels = (int(number) for number in found.groups())
    if height * width * channels != n_features:
        raise ParameterError(
            f"image={image}: that is {height * width * channels} values, but rows have {n_features} features"
        )
    return channels, height, width


def _convolution(params: Mapping[str, Any], n_features: int, masks: Floats, offsets: Floats) -> Convolution:
    return Convolution(
        _image_shape(params, n_features),
        _get(params, "mask_side"),
        masks,
        offsets,
        pool=_get(params, "pool"),
        rectify=_get(params, "rectify"),
        threshold=float(_get(params, "threshold")),
    )


def _masks_per_stage(params: Mapping[str, Any], n_features: int) -> int:
    """Return the masks of a stage.

    Raises
    ------
    ParameterError
        Masks or regions do not fit the image, or a block is no whole number of masks.
    """
    shape, side, pool = _image_shape(params, n_features), _get(params, "mask_side"), _get(params, "pool")
    smaller = min(shape[1:])
    if side > smaller or pool > smaller - side + 1:
        raise ParameterError(
            f"mask_side={side}, pool={pool}: an image of {shape[1]} x {shape[2]} pixels has no {pool} x {pool} "
            "regions of places for a mask; make them smaller"
        )
    per_mask = pool**2 * (2 if _get(params, "rectify") == "two-sided" else 1)
    size, expand = params["block_size"], _get(params, "expand")
    if size - expand < per_mask or (size - expand) % per_mask:
        fits = max(per_mask, (size - expand) // per_mask * per_mask)
        beside, plus = (f", expand={expand}", f" + {expand}") if expand else ("", "")
        raise ParameterError(
            f"block_size={size}{beside}: a mask makes {per_mask} features; take a multiple{plus}, such as "
            f"{fits + expand}"
        )
    return int((size - expand) // per_mask)


def block_width(params: Mapping[str, Any], n_features: int) -> int:
    """Return the features of a (full) block: what Gram matrices and weights are planned for."""
    size = int(params["block_size"])
    return min(size, n_features) if params["features"] in _ORIGINAL else size


def work_bytes(params: Mapping[str, Any], problem: Problem) -> int:
    """Return what a task needs for the features of pieces of rows, and for fitting what they need."""
    n_features = problem.shape[0]
    making = probe_design(params, n_features, problem.seed).work_bytes(n_features, problem.dtype)
    fitting = 8 * _SAMPLE_ROWS * n_features if params["features"] in (*RANDOM, *_MASKS) else 0
    if params["features"] in _MASKS:
        n_masked = (
            params["stages"] * (params.get("models") or 1) * (params["block_size"] - _get(params, "expand"))
        )
        fitting += 8 * 2 * _SCALE_ROWS * n_masked
    if params["features"] in _ORIGINAL:
        # columns of a partition's sparse rows are copied
        making += int(problem.dataset.decoded_bytes.max(initial=0))
    # a partition's rows after the projection, which two blocks share
    making += (
        problem.dtype.itemsize * (params.get("pca") or 0) * int(problem.dataset.table.rows.max(initial=0))
    )
    if params.get("pca") is not None:
        fitting = max(fitting, gram_work_bytes(n_features, np.dtype(np.float64)))
    return max(making, fitting)


def preparation_bytes(params: Mapping[str, Any], n_features: int) -> int:
    """Return the bytes of a lane's result while `design_for` runs: take the maximum with a block's own sums."""
    if params.get("pca") is not None:
        return 8 * (packed_size(n_features) + n_features)
    return 8 * n_features * (params["features"] == _FREQUENCY)


def probe_design(params: Mapping[str, Any], n_features: int, seed: int) -> Design:
    """Return a design that costs what those of the stages cost, without a look at the data."""
    kind, size = params["features"], block_width(params, n_features)
    if kind in _ORIGINAL:
        columns = np.arange(size, dtype=np.int64) * n_features // size
        return Design("columns", size, seed, columns=columns, n_features=n_features)
    if kind in _MASKS:
        n_masks, side = _masks_per_stage(params, n_features), _get(params, "mask_side")
        masks = np.zeros((n_masks, _image_shape(params, n_features)[0] * side**2))
        own = _convolution(params, n_features, masks, np.zeros(n_masks))
        return _design_of_masks(params, own, seed)
    projection = None
    if params.get("pca") is not None:
        projection = Projection(np.zeros(n_features), np.zeros((n_features, params["pca"])))
    return Design(
        kind, size, seed, projection=projection, degree=_get(params, "degree"), n_features=n_features
    )


def design_for(params: Mapping[str, Any], reader: BlockReader, executor: Executor, seed: int) -> Design:
    """Fit what the features need and return the design of stage 0, without the columns of `design_at`.

    Reads the data once for `pca`, and some partitions of it for the median trick and for masks.

    Raises
    ------
    ParameterError
        A parameter does not suit the data.
    """
    n_features = reader.problem.shape[0]
    kind, size = params["features"], block_width(params, n_features)
    if kind in _ORIGINAL:
        return Design("columns", size, seed, n_features=n_features)
    if kind in _MASKS:
        images = _dense(_sample(reader, executor, seed), n_features)
        with single_threaded_blas():
            own = _fitted_masks(params, images, n_features, seed)
        design = _design_of_masks(params, own, seed)
        return replace(design, bandwidth=_bandwidth_of_masks(params, images, design))
    plain = Design(n_features=n_features)
    if params.get("pca") is not None:
        plain = replace(plain, projection=principal_components(reader, executor, params["pca"]))
    s = params.get("bandwidth")
    if s is None or s == "median":
        fitted = unit_scale if s is None and kind == "polynomials" else median_distance
        s = fitted(_sample(reader, executor, seed), replace(plain, degree=_get(params, "degree")))
    return replace(plain, kind=kind, size=size, seed=seed, bandwidth=float(s), degree=_get(params, "degree"))


def _lanes(reader: BlockReader) -> list[Lane]:
    return [Lane(i, blocks) for i, blocks in enumerate(reader.lanes)]


def principal_components(reader: BlockReader, executor: Executor, n_components: int) -> Projection:
    """Return the leading eigenvectors of the weighted covariance of rows, by one read of the data.

    Of each, the value of largest magnitude (the first of several) is positive.

    Raises
    ------
    ParameterError
        Rows vary in fewer directions.
    """
    n_features = reader.problem.shape[0]
    job = MomentsJob(reader.data, Design(n_features=n_features), reader.class_weight)
    total = executor.reduce(partial(moments_lane, job), _lanes(reader), merge=merge_moments)
    dataset = reader.problem.dataset
    total.ledger.check_cover(range(len(dataset)), dataset.meta.n_rows)
    mean = total.sums / total.weight_sum
    covariance = unpacked(total.gram, np.empty((n_features, n_features))) / total.weight_sum
    covariance -= np.outer(mean, mean)
    with single_threaded_blas():
        variances, vectors = linalg.eigh(
            covariance, lower=False, subset_by_index=(n_features - n_components, n_features - 1)
        )
    variances, vectors = variances[::-1], vectors[:, ::-1]
    n_varying = int(
        (variances > 1e-12 * max(variances[0], diagonal(total.gram).max() / total.weight_sum)).sum()
    )
    if n_varying < n_components:
        raise ParameterError(
            f"pca={n_components}: rows vary in {n_varying} directions only; take at most so many"
        )
    largest = vectors[np.abs(vectors).argmax(axis=0), np.arange(n_components)]
    return Projection(mean, np.ascontiguousarray(vectors * np.sign(largest)))


def _sample(reader: BlockReader, executor: Executor, seed: int) -> Rows:
    """Return at most _SAMPLE_ROWS rows, the same for a data set and seed."""
    rows = reader.problem.dataset.table.rows
    job = SampleJob(replace(reader.data, cache_bytes=0), _SAMPLE_ROWS, seed)
    return concatenate_rows(list(executor.map(partial(sampled_rows, job), shares(job, rows))))


def _dense(x: Rows, n_features: int) -> Floats:
    if isinstance(x, DenseRows):
        return x.values.astype(np.float64)
    return np.asarray(_matrix(x, n_features).toarray(), np.float64)


def _matrix(x: CsrRows, n_features: int) -> sp.csr_matrix:
    return sp.csr_matrix(
        (x.data.astype(np.float64), x.indices.astype(np.int64), x.indptr), (n_rows_of(x), n_features)
    )


def median_distance(x: Rows, design: Design) -> float:
    """Return the median squared distance over all pairs of rows, projected as `design` says (appendix A.2.1).

    Raises
    ------
    ParameterError
        There is no pair of rows, or half of them and more are equal.
    """
    products = _inner_products(x, design)
    squares = np.diag(products)
    first, second = np.triu_indices(len(products), 1)
    distances = squares[first] + squares[second] - 2.0 * products[first, second]
    s = float(np.median(distances)) if len(distances) else 0.0
    if not s > 1e-12 * float(squares.max(initial=0.0)):
        raise ParameterError(
            "bandwidth: the median distance of rows is 0; give a number, such as bandwidth=1"
        )
    return s


def unit_scale(x: Rows, design: Design) -> float:
    """Return the s for which random polynomials of some rows have mean square one: mean (|x|^2 / s + 1/2)^degree is.

    Raises
    ------
    ParameterError
        All rows are zero.
    """
    squares = np.diag(_inner_products(x, design))
    if not squares.any():
        raise ParameterError("bandwidth: all rows are zero; give a number, such as bandwidth=1")
    # between these the mean falls from above one to below one
    low, high = 1e-9 * squares.max(), 1e9 * squares.max()
    for _ in range(200):
        s = math.sqrt(low * high)
        above = bool(np.mean((squares / s + 0.5) ** design.degree) > 1.0)
        low, high = (s, high) if above else (low, s)
    return float(high)


def _inner_products(x: Rows, design: Design) -> Floats:
    """Return the products of all pairs of rows, projected as `design` says."""
    with single_threaded_blas():
        if isinstance(x, CsrRows) and design.projection is None:
            sparse = _matrix(x, design.n_features)
            return np.asarray((sparse @ sparse.T).toarray())
        values = np.concatenate([piece.copy() for piece in _pieces(design, x)])
        return np.asarray(values @ values.T)


def _pieces(design: Design, x: Rows) -> Iterator[Floats]:
    """Yield dense features of rows."""
    for _, piece in blocks(design, x, np.dtype(np.float64)):
        assert isinstance(piece, DenseRows)
        yield piece.values


def _fitted_masks(params: Mapping[str, Any], images: Floats, n_features: int, seed: int) -> Convolution:
    """Return masks for all stages; features have mean zero and variance one on some of the images."""
    n_stages = params["stages"] * (params.get("models") or 1)
    n_masks = n_stages * _masks_per_stage(params, n_features)
    shape, side = _image_shape(params, n_features), _get(params, "mask_side")
    patches, floor = sample_patches(images, shape, side, seed, contrast=_get(params, "contrast"))
    white = whitening_of(patches, floor)
    if params["features"] == "kmeans-masks":
        chosen = kmeans((patches - white.mean) @ white.matrix, n_masks, seed)
    else:
        chosen = random_masks(n_masks, patches.shape[1], seed)
    masks = chosen @ white.matrix
    own = replace(_convolution(params, n_features, masks, -(masks @ white.mean)), contrast=floor)
    pieces = _pieces(Design(convolution=own), DenseRows(images[:_SCALE_ROWS]))
    features = np.concatenate([piece.copy() for piece in pieces]).reshape(-1, own.per_mask, n_masks)
    spreads = features.std(axis=0)
    if not spreads.any():
        raise ParameterError(
            f"features={params['features']}: masks respond to no image; are all of them alike, or threshold too high?"
        )
    # a feature that is the same on all of them is left out: it is 0
    scales = 1.0 / np.where(spreads > 1e-9 * spreads.max(), spreads, np.inf)
    return replace(own, means=features.mean(axis=0), scales=scales)


def _design_of_masks(params: Mapping[str, Any], own: Convolution, seed: int) -> Design:
    return Design(
        "masks",
        params["block_size"],
        seed,
        convolution=own,
        n_features=own.n_inputs,
        expand=_get(params, "expand"),
        degree=_get(params, "degree"),
    )


def _bandwidth_of_masks(params: Mapping[str, Any], images: Floats, design: Design) -> float:
    """Return the s of polynomials of the first stage's features, from some of the images."""
    s = params.get("bandwidth")
    if not design.expand:
        return 1.0
    if s is not None and s != "median":
        return float(s)
    plain = replace(design.at(0), expand=0, size=design.size - design.expand)
    return (unit_scale if s is None else median_distance)(DenseRows(images[:_SCALE_ROWS]), plain)


def column_order(
    params: Mapping[str, Any], reader: BlockReader, executor: Executor, seed: int, pass_index: int
) -> NDArray[np.int64]:
    """Return the order in which a pass goes through the original features, shape (n_features,).

    For "columns" (new in each pass) and "frequency" (one read of the data). For "gradient" the caller has the
    products X^T slopes of a round: `gradient_order`. "columns-replaced" and random features have no order: an
    empty array.
    """
    if params["features"] == "columns":
        return rng(seed, Purpose.COLUMNS, pass_index).permutation(reader.problem.shape[0])
    if params["features"] == _FREQUENCY:
        job = partial(count_lane, reader.data)
        return frequency_order(executor.reduce(job, _lanes(reader), merge=merge_counts))
    return np.empty(0, np.int64)


def frequency_order(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return columns by the number of rows in which they are not zero, descending; ties by column."""
    return np.argsort(-counts, kind="stable")


def gradient_order(cross: Floats) -> NDArray[np.int64]:
    """Return columns by the norm of their row of X^T slopes (n_features, k), descending; ties by column."""
    return np.argsort(-np.square(cross).sum(axis=1), kind="stable")


def stages_per_pass(params: Mapping[str, Any], n_features: int) -> int:
    """Return how many blocks of original features make a pass over all of them; 1 for random features."""
    return -(-n_features // block_width(params, n_features)) if params["features"] in _ORIGINAL else 1


def stage_columns(order: NDArray[np.int64], stage: int, block_size: int) -> NDArray[np.int64]:
    """Return the columns of a stage: the slice number ``stage % ceil(n / block_size)`` of an order, ascending."""
    place = stage % -(-len(order) // block_size) * block_size
    return np.sort(order[place : place + block_size])


def design_at(design: Design, stage: int, order: NDArray[np.int64]) -> Design:
    """Return the design of a stage from that of stage 0; `order` as of `column_order` or `gradient_order`.

    Columns with replacement are drawn anew for each stage: different ones within a block, where a second copy of a
    feature would add nothing.
    """
    if design.kind != "columns":
        return design.at(stage)
    if len(order):
        columns = stage_columns(order, stage, design.size)
    else:
        generator = rng(design.seed, Purpose.COLUMNS, stage)
        columns = np.sort(generator.choice(design.n_features, design.size, replace=False))
    return replace(design, stage=stage, columns=columns, size=len(columns))
