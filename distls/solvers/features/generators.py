"""GEN of Algorithm 3 (least squares revisited): the features of a stage, and the statistics that they need.

`design_for` fits principal components, a bandwidth or filters by reduced statistics,
`column_order` and `gradient_order` rank original features, and `design_at` returns the block of one stage.
`distls.solvers.features.generator_parameters` has the parameters.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from scipy import sparse as sp

from distls.execution.executor import Executor
from distls.execution.row_reads import reduce_rows
from distls.solvers.block_reads import BlockReader
from distls.solvers.features.generator_parameters import (
    COUNTED,
    MASKS,
    ORIGINAL,
    RARENESS,
    SAMPLE_ROWS,
    SCALE_ROWS,
    block_width,
    convolution_of,
    filter_design,
    filters_per_stage,
    given_or_default,
    image_shape,
)
from distls.storage.errors import ParameterError
from distls.storage.rows import CsrRows, DenseRows, Rows, concatenate_rows, dense_of, n_rows_of
from distls.workers.features.convolution import Convolution
from distls.workers.features.design import Design, Projection, blocks
from distls.workers.features.fit_task import (
    CountTask,
    MomentsTask,
    RowMoments,
    SampleTask,
    kmeans,
    random_filters,
    sample_patches,
    shares,
    whitening_of,
)
from distls.workers.features.generator_registry import registered_generator
from distls.workers.linear_algebra.packed_triangle import diagonal, unpacked
from distls.workers.runtime.process import single_threaded_blas
from distls.workers.runtime.rng import Purpose, rng

Floats = NDArray[np.float64]


def design_for(params: Mapping[str, Any], reader: BlockReader, executor: Executor, seed: int) -> Design:
    """Fit the feature map and return the design of stage 0, without the columns of `design_at`.

    Reads the data once for `pca`, and some partitions for the median trick and for filters. Raises ParameterError if a
    parameter does not suit the data.
    """
    n_features = reader.problem.shape[0]
    kind, size = params["features"], block_width(params, n_features)
    if kind in ORIGINAL:
        return Design("columns", size, seed, n_features=n_features)
    if kind in MASKS:
        images = dense_of(_sample(reader, executor, seed), n_features, np.float64)
        with single_threaded_blas():
            # Filters are fitted on a sample in the driver; the data are not read again for them.
            own = _fitted_filters(params, images, n_features, seed)
        design = filter_design(params, own, seed)
        return replace(design, bandwidth=_expansion_bandwidth(params, images, design))
    plain = Design(n_features=n_features)
    if params.get("pca") is not None:
        plain = replace(plain, projection=principal_components(reader, executor, params["pca"]))
    if registered_generator(kind) is not None:
        return replace(plain, kind=kind, size=size, seed=seed)
    s, degree = params.get("bandwidth"), given_or_default(params, "degree")
    if s is None or s == "median":
        fitted = unit_scale if s is None and kind == "polynomials" else median_distance
        s = fitted(_sample(reader, executor, seed), replace(plain, degree=degree))
    return replace(plain, kind=kind, size=size, seed=seed, bandwidth=float(s), degree=degree)


def principal_components(reader: BlockReader, executor: Executor, n_components: int) -> Projection:
    """Return the leading eigenvectors of the weighted covariance of rows, from one read of the data.

    The value of largest magnitude (the first of several) of each is positive. Raises ParameterError if rows vary in
    fewer directions.
    """
    n_features = reader.problem.shape[0]
    # In float64, since the covariance is the difference of two large sums.
    task = MomentsTask(reader.data, Design(n_features=n_features), reader.class_weight)
    total: RowMoments = reduce_rows(executor, reader.problem.dataset, None, task, reader.work)
    mean = total.sums / total.weight_sum
    covariance = unpacked(total.gram, np.empty((n_features, n_features))) / total.weight_sum
    # E[xx^T] - mean mean^T in place: a second read of centred rows is not worth it for leading components.
    covariance -= np.outer(mean, mean)
    with single_threaded_blas():
        # Only the leading eigenvectors are computed.
        variances, vectors = linalg.eigh(
            covariance, lower=False, subset_by_index=(n_features - n_components, n_features - 1)
        )
    # LAPACK sorts eigenvalues ascending.
    variances, vectors = variances[::-1], vectors[:, ::-1]
    n_varying = int(
        # Relative to the raw mean squares: after centring, a constant feature leaves rounding of that size.
        (variances > 1e-12 * max(variances[0], diagonal(total.gram).max() / total.weight_sum)).sum()
    )
    if n_varying < n_components:
        raise ParameterError(f"pca={n_components}: rows vary in {n_varying} directions only; set pca to at most that")
    # The sign of an eigenvector is arbitrary; fixing it makes the model the same on every machine.
    largest = vectors[np.abs(vectors).argmax(axis=0), np.arange(n_components)]
    return Projection(mean, np.ascontiguousarray(vectors * np.sign(largest)))


def _sample(reader: BlockReader, executor: Executor, seed: int) -> Rows:
    """Return at most SAMPLE_ROWS rows, the same for a data set and seed."""
    rows = reader.problem.dataset.table.rows
    # Samples are not cached: the data would displace what training needs.
    task = SampleTask(replace(reader.data, cache_bytes=0), SAMPLE_ROWS, seed)
    return concatenate_rows(list(executor.map(task, shares(task, rows))))


def _matrix(x: CsrRows, n_features: int) -> sp.csr_matrix:
    return sp.csr_matrix((x.data.astype(np.float64), x.indices.astype(np.int64), x.indptr), (n_rows_of(x), n_features))


def median_distance(x: Rows, design: Design) -> float:
    """Return the median squared distance over all pairs of rows, projected as `design` says (appendix A.2.1).

    Raises ParameterError if there is no pair of rows, or if half of them or more are equal.
    """
    products = _inner_products(x, design)
    squares = np.diag(products)
    first, second = np.triu_indices(len(products), 1)
    # The squared distance, not the distance, takes the place of s in exp(-d^2/s).
    distances = squares[first] + squares[second] - 2.0 * products[first, second]
    s = float(np.median(distances)) if len(distances) else 0.0
    # Differences of rounding size count as zero: s divides the squared distances.
    if not s > 1e-12 * float(squares.max(initial=0.0)):
        raise ParameterError("bandwidth: the median distance of rows is 0; give a number, such as bandwidth=1")
    return s


def unit_scale(x: Rows, design: Design) -> float:
    """Return the s for which random polynomials of rows have mean square one; raise ParameterError if all are 0."""
    squares = np.diag(_inner_products(x, design))
    if not squares.any():
        raise ParameterError("bandwidth: all rows are zero; give a number, such as bandwidth=1")
    # the mean square, mean (|x|^2 / s + 1/2)^degree, falls from above one to below one in this interval
    largest = float(squares.max())
    low, high = 1e-9 * largest, 1e9 * largest
    for _ in range(200):  # bisection in the logarithm of s
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
        values = np.concatenate([chunk.copy() for chunk in _dense_chunks(design, x)])
        # Copies: the generator of chunks uses its buffer again.
        return np.asarray(values @ values.T)


def _dense_chunks(design: Design, x: Rows) -> Iterator[Floats]:
    for _, chunk in blocks(design, x, np.dtype(np.float64)):
        assert isinstance(chunk, DenseRows)
        yield chunk.values


def _fitted_filters(params: Mapping[str, Any], images: Floats, n_features: int, seed: int) -> Convolution:
    """Return the filters of all stages; features have mean zero and variance one on some of the images."""
    n_stages = params["stages"] * (params.get("models") or 1)
    n_filters = n_stages * filters_per_stage(params, n_features)
    shape, side = image_shape(params, n_features), given_or_default(params, "mask_side")
    patches, floor = sample_patches(images, shape, side, seed, contrast=given_or_default(params, "contrast"))
    # Whitening is folded into the filters (masks and offsets), so that images are convolved once.
    white, triangle = whitening_of(patches), given_or_default(params, "rectify") == "triangle"
    if params["features"] == "kmeans-masks":
        chosen = kmeans((patches - white.mean) @ white.matrix, n_filters, seed, directions=not triangle)
    else:
        chosen = random_filters(n_filters, patches.shape[1], seed)
    masks = chosen @ white.matrix
    own = replace(convolution_of(params, n_features, masks, -(masks @ white.mean)), contrast=floor)
    if triangle:  # of distances from the filters
        whitening = np.vstack([white.mean @ white.matrix, white.matrix])
        own = replace(own, whitening=whitening, offsets=own.offsets - 0.5 * np.square(chosen).sum(axis=1))
    chunks = _dense_chunks(Design(convolution=own), DenseRows(images[:SCALE_ROWS]))
    features = np.concatenate([chunk.copy() for chunk in chunks]).reshape(-1, own.per_filter, n_filters)
    spreads = features.std(axis=0)
    if not spreads.any():
        raise ParameterError(
            f"features={params['features']}: no filter activates on the sampled images: are the images constant, or is "
            "threshold too high?"
        )
    # a constant feature becomes 0
    scales = 1.0 / np.where(spreads > 1e-9 * spreads.max(), spreads, np.inf)
    return replace(own, means=features.mean(axis=0), scales=scales)


def _expansion_bandwidth(params: Mapping[str, Any], images: Floats, design: Design) -> float:
    """Return the s of polynomials of the first stage's features, from some of the images."""
    s = params.get("bandwidth")
    if not design.expand:
        return 1.0
    if s is not None and s != "median":
        return float(s)
    plain = replace(design.at(0), expand=0, size=design.size - design.expand)
    return (unit_scale if s is None else median_distance)(DenseRows(images[:SCALE_ROWS]), plain)


def column_order(
    params: Mapping[str, Any], reader: BlockReader, executor: Executor, seed: int, pass_index: int
) -> NDArray[np.int64]:
    """Return the order of the original features in a pass, shape (n_features,).

    "columns" has a new one in each pass, "frequency" and "rareness" take one read of the data, and those by the
    gradient need a round: `gradient_order`. "columns-replaced" and random features have no order: an empty array.
    """
    if params["features"] == "columns":
        return rng(seed, Purpose.COLUMNS, pass_index).permutation(reader.problem.shape[0])
    if params["features"] in COUNTED:
        task = CountTask(reader.data)
        counts = executor.reduce(task, reader.work, merge=task.merge)
        # A stable sort breaks ties by column, so the order does not depend on the sorting algorithm.
        return np.argsort(counts if params["features"] == RARENESS else -counts, kind="stable")
    return np.empty(0, np.int64)


def gradient_order(cross: Floats) -> NDArray[np.int64]:
    """Return columns by the norm of their row of the gradient (n_features, k), descending; ties by column."""
    # The norm over classes: an order must be the same for all outputs of a block.
    return np.argsort(-np.square(cross).sum(axis=1), kind="stable")


def design_at(design: Design, stage: int, order: NDArray[np.int64]) -> Design:
    """Return the design of a stage from that of stage 0; `order` is from `column_order` or `gradient_order`."""
    if design.kind != "columns":
        return design.at(stage)
    if len(order):
        # Passes repeat the slices of one order; ascending columns make the access to sparse rows sequential.
        place = stage % -(-len(order) // design.size) * design.size
        columns = np.sort(order[place : place + design.size])
    else:
        # with replacement between stages, not within a block, where a second copy would add nothing
        generator = rng(design.seed, Purpose.COLUMNS, stage)
        columns = np.sort(generator.choice(design.n_features, design.size, replace=False))
    return replace(design, stage=stage, columns=columns, size=len(columns))
