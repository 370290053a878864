"""The parameters of generated features: which kind uses them, the sizes of blocks, and the memory they take.

`distls methods` describes them; None is what is not given. Solvers have kinds of their own: columns (random, without
replacement), columns-replaced, frequency, rareness, gradient and block-gradient are orders of the original features.
"""

import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.problem import Problem
from distls.storage.errors import ParameterError
from distls.workers.features.convolution import Convolution
from distls.workers.features.design import Design, Projection
from distls.workers.features.generator_registry import BUILT_IN, generator_names
from distls.workers.linear_algebra.gram import gram_work_bytes
from distls.workers.linear_algebra.packed_triangle import packed_size

FREQUENCY, RARENESS, REPLACED, BLOCK_GRADIENT = "frequency", "rareness", "columns-replaced", "block-gradient"
COUNTED = (FREQUENCY, RARENESS)  # by the number of rows that have a feature
RANKED = ("gradient", BLOCK_GRADIENT)  # by the gradient of a round
ORIGINAL = ("columns", REPLACED, *COUNTED, *RANKED)
MASKS = ("random-masks", "kmeans-masks")

# The features that use a parameter, and below its default.
_USED_BY = {
    "bandwidth": BUILT_IN,
    "degree": ("polynomials",),
    **dict.fromkeys(("image", "mask_side", "pool", "rectify", "threshold", "contrast", "expand"), MASKS),
}
# Parameters that polynomials of filters' features (expand) use too.
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

# Rows sampled for the median distance of their pairs, and images for the clustering of their patches.
SAMPLE_ROWS = 2000
# Images on which the means and the variances of convolutional features are measured.
SCALE_ROWS = 512


def check_features(params: Mapping[str, Any], n_features: int) -> None:
    """Raise ParameterError for unused parameters of the chosen kind of features, and for impossible values."""
    kind = params["features"]
    known = (*ORIGINAL, *generator_names(), *MASKS)
    if kind not in known:
        raise ParameterError(f"features={kind}: expected one of {', '.join(known)}")
    check_used(params)
    if params.get("pca") is not None and params["pca"] > n_features:
        raise ParameterError(f"pca={params['pca']}: rows have only {n_features} features")
    if kind in MASKS:
        filters_per_stage(params, n_features)


def check_used(params: Mapping[str, Any]) -> None:
    """Raise ParameterError for parameters that the chosen kind of features does not use."""
    kind = params["features"]
    for name, users in {"pca": generator_names(), **_USED_BY}.items():
        expands = name in _USED_BY_EXPANSION and kind in MASKS
        if params.get(name) is None or kind in users or (expands and given_or_default(params, "expand")):
            continue
        also = ", or with expand," if expands else ""
        raise ParameterError(f"{name}={params[name]}: used with features={'|'.join(users)}{also} only; leave it out")


def given_or_default(params: Mapping[str, Any], name: str) -> Any:
    """Return the value of a parameter, or its default."""
    value = params.get(name)
    return _DEFAULTS[name] if value is None else value


def image_shape(params: Mapping[str, Any], n_features: int) -> tuple[int, int, int]:
    """Return (channels, height, width); raise ParameterError if rows cannot be such images."""
    image = params.get("image")
    if image is None:
        # Guess by the size: three channels first, as a square of a third of the features is rarely a coincidence.
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


def convolution_of(
    params: Mapping[str, Any], n_features: int, masks: NDArray[np.float64], offsets: NDArray[np.float64]
) -> Convolution:
    """Return the convolution with these filters; the parameters give images, pooling and rectification."""
    rectify, n = given_or_default(params, "rectify"), masks.shape[1]
    return Convolution(
        image_shape(params, n_features),
        given_or_default(params, "mask_side"),
        masks,
        offsets,
        pool=given_or_default(params, "pool"),
        rectify=rectify,
        whitening=np.zeros((n + 1, n)) if rectify == "triangle" else None,
        threshold=float(given_or_default(params, "threshold")),
    )


def filters_per_stage(params: Mapping[str, Any], n_features: int) -> int:
    """Return the filters of a stage; raise ParameterError unless they fit the image and make up whole blocks."""
    shape, side, pool = (
        image_shape(params, n_features),
        given_or_default(params, "mask_side"),
        given_or_default(params, "pool"),
    )
    smaller = min(shape[1:])
    if side > smaller or pool > smaller - side + 1:
        raise ParameterError(
            f"mask_side={side}, pool={pool}: an image of {shape[1]} x {shape[2]} pixels has no {pool} x {pool} "
            "regions of positions of a filter; make them smaller"
        )
    # Each filter gives one feature for every pooling region, and two where both signs are kept.
    per_filter = pool**2 * (2 if given_or_default(params, "rectify") == "two-sided" else 1)
    size, expand = params["block_size"], given_or_default(params, "expand")
    if size - expand < per_filter or (size - expand) % per_filter:
        fits = max(per_filter, (size - expand) // per_filter * per_filter)
        also, plus = (f", expand={expand}", f" + {expand}") if expand else ("", "")
        raise ParameterError(
            f"block_size={size}{also}: a filter makes {per_filter} features; take a multiple{plus}, such as "
            f"{fits + expand}"
        )
    return int((size - expand) // per_filter)


def block_width(params: Mapping[str, Any], n_features: int) -> int:
    """Return the features of a (full) block: what Gram matrices and weights are planned for."""
    size = int(params["block_size"])
    return min(size, n_features) if params["features"] in ORIGINAL else size


def work_bytes(params: Mapping[str, Any], problem: Problem) -> int:
    """Return the bytes of a task for computing the features of a chunk of rows, and for fitting their map."""
    n_features = problem.shape[0]
    making = probe_design(params, n_features, problem.seed).work_bytes(n_features, problem.dtype)
    # The samples of the median trick, or of patches, are dense float64 rows in the driver.
    fitting = 8 * SAMPLE_ROWS * n_features if params["features"] in (*BUILT_IN, *MASKS) else 0
    if params["features"] in MASKS:
        n_filter_features = (
            params["stages"] * (params.get("models") or 1) * (params["block_size"] - given_or_default(params, "expand"))
        )
        fitting += 8 * 2 * SCALE_ROWS * n_filter_features
    if params["features"] in ORIGINAL:
        # columns of a partition's sparse rows are copied
        making += int(problem.dataset.decoded_bytes.max(initial=0))
    # a partition's rows after the projection, which two blocks share
    making += problem.dtype.itemsize * (params.get("pca") or 0) * int(problem.dataset.table.rows.max(initial=0))
    if params.get("pca") is not None:
        fitting = max(fitting, gram_work_bytes(n_features, np.dtype(np.float64)))
    return max(making, fitting)


def preparation_bytes(params: Mapping[str, Any], n_features: int) -> int:
    """Return the bytes of a lane's result while `design_for` runs: take the maximum with a block's own sums."""
    if params.get("pca") is not None:
        return 8 * (packed_size(n_features) + n_features)
    return 8 * n_features * (params["features"] in COUNTED)


def probe_design(params: Mapping[str, Any], n_features: int, seed: int) -> Design:
    """Return a design of the same cost as those of the stages, without reading data."""
    kind, size = params["features"], block_width(params, n_features)
    if kind in ORIGINAL:
        # Spread evenly over the columns: the first ones of text are often the densest, which would mislead the timing.
        columns = np.arange(size, dtype=np.int64) * n_features // size
        return Design("columns", size, seed, columns=columns, n_features=n_features)
    if kind in MASKS:
        n_filters, side = filters_per_stage(params, n_features), given_or_default(params, "mask_side")
        masks = np.zeros((n_filters, image_shape(params, n_features)[0] * side**2))
        own = convolution_of(params, n_features, masks, np.zeros(n_filters))
        return filter_design(params, own, seed)
    projection = None
    if params.get("pca") is not None:
        projection = Projection(np.zeros(n_features), np.zeros((n_features, params["pca"])))
    return Design(
        kind, size, seed, projection=projection, degree=given_or_default(params, "degree"), n_features=n_features
    )


def filter_design(params: Mapping[str, Any], own: Convolution, seed: int) -> Design:
    """Return the design of the first stage, with the filters of all stages."""
    return Design(
        "masks",
        params["block_size"],
        seed,
        convolution=own,
        n_features=own.n_inputs,
        expand=given_or_default(params, "expand"),
        degree=given_or_default(params, "degree"),
    )


def stages_per_pass(params: Mapping[str, Any], n_features: int) -> int:
    """Return how many blocks of original features make a pass over all of them; 1 for random features."""
    return -(-n_features // block_width(params, n_features)) if params["features"] in ORIGINAL else 1
