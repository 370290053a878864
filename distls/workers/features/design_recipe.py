"""The recipe of generated features, as models and checkpoints store it, and its validation when it is read."""

from dataclasses import replace
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from distls.storage.dataset.metadata import Amount, Positive, Width
from distls.storage.errors import FormatError
from distls.storage.filesystem.safe_read import convert_json
from distls.workers.features.convolution import Convolution
from distls.workers.features.design import GIVEN, Design, Projection
from distls.workers.features.generator_registry import NAME, generator_names

_Size = Annotated[int, msgspec.Meta(gt=0)]
# Stages, factors: far more than in any real model, and few enough to be created one by one.
_Few = Annotated[int, msgspec.Meta(ge=0, le=2**16)]


class _ConvolutionRecipe(msgspec.Struct, forbid_unknown_fields=True):
    shape: tuple[_Size, _Size, _Size]
    side: _Size
    pool: _Size
    rectify: Literal["two-sided", "absolute", "triangle"]
    threshold: Amount
    contrast: Amount


class _Recipe(msgspec.Struct, forbid_unknown_fields=True):
    """JSON values of the designs of consecutive stages."""

    kind: Annotated[str, msgspec.Meta(pattern=NAME)]
    size: Width
    seed: Annotated[int, msgspec.Meta(ge=0)]
    bandwidth: Positive
    degree: _Few
    n_features: Width
    expand: Width
    first_stage: _Few
    n_stages: _Few
    convolution: _ConvolutionRecipe | None = None


_SCALARS = _Recipe.__struct_fields__[:-3]  # of a design, as are those of its convolution
# field of a convolution -> name of its array in a model, unchanged since the first version of the format
_CONVOLUTION_ARRAYS = {
    "filters": "masks", "offsets": "mask_offsets", "means": "mask_means", "scales": "mask_scales",
    "whitening": "mask_whitening",
}  # fmt: skip


def recipe_of(design: Design, n_stages: int) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return JSON values and arrays from which `design_of` makes n_stages designs, of `design`'s stage and the next."""
    if design.columns is not None and n_stages != 1:
        raise ValueError("columns are those of one stage")
    recipe = {name: getattr(design, name) for name in _SCALARS}
    recipe |= {"first_stage": design.stage, "n_stages": n_stages}
    arrays: dict[str, NDArray[Any]] = {}
    if design.columns is not None:
        arrays["columns"] = design.columns
    if design.projection is not None:
        arrays |= {"pca_mean": design.projection.mean, "pca_components": design.projection.components}
    if design.convolution is not None:
        own = design.convolution
        recipe["convolution"] = {name: getattr(own, name) for name in _ConvolutionRecipe.__struct_fields__}
        recipe["convolution"]["shape"] = list(own.shape)
        found = {name: getattr(own, field) for field, name in _CONVOLUTION_ARRAYS.items()}
        arrays |= {name: array for name, array in found.items() if array is not None}
    return recipe, arrays


def design_of(recipe: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> list[Design]:
    """Return the designs of a model, in the order of its blocks of weights.

    Raises FormatError if they are not as `recipe_of` makes them.
    """
    # A model file is not trusted: kernels index by these numbers without checks.
    try:
        own = convert_json(recipe, _Recipe)
    except ValueError as error:
        raise _foreign(str(error)) from None
    if own.kind not in (*GIVEN, *generator_names()):
        raise FormatError(
            f"this model's features are {own.kind!r}, which no program here has made known: call register_generator"
        )
    first = Design(
        **{name: recipe[name] for name in _SCALARS},
        stage=own.first_stage,
        columns=_read_columns(own, arrays),
        projection=_read_projection(arrays),
        convolution=_read_convolution(own.convolution, arrays),
    )
    # Widths that do not chain would make products of the wrong shape.
    _check(_chained(first, own.n_stages), "widths that do not follow from one another")
    if "widths" in arrays:
        return _column_blocks(first, own.n_stages, arrays["widths"])
    return [replace(first, stage=first.stage + number) for number in range(own.n_stages)]


def _column_blocks(first: Design, n_stages: int, widths: NDArray[np.int64]) -> list[Design]:
    """Return the designs of several blocks of columns, which stand one after the other in that of the first."""
    columns, found, start = first.columns, [], 0
    sound = columns is not None and widths.dtype == np.int64 and widths.shape == (n_stages,)
    _check(sound and bool(np.all(widths > 0)), "widths")
    for number, width in enumerate(map(int, widths)):
        own = columns[start : start + width] if columns is not None else np.empty(0, np.int64)
        # Increasing and not negative: duplicates would count a feature twice.
        _check(len(own) == width and bool(np.all(np.diff(own, prepend=-1) > 0)), "columns")
        found.append(replace(first, stage=number, size=width, columns=own))
        start += width
    _check(columns is not None and start == len(columns), "columns")
    return found


def _check(sound: bool, what: str) -> None:
    if not sound:
        raise _foreign(what)


def _foreign(what: str) -> FormatError:
    return FormatError(f"this model's recipe of features was not written by distls: {what}")


def _read_columns(recipe: _Recipe, arrays: dict[str, NDArray[Any]]) -> NDArray[np.int64] | None:
    columns = arrays.get("columns")
    _check((columns is not None) == (recipe.kind == "columns"), "columns")
    if columns is None:
        return None
    if "widths" in arrays:  # of several blocks, checked one by one
        _check(columns.ndim == 1 and columns.dtype == np.int64, "columns")
        return columns
    # One block of columns only, since others would need widths.
    sound = columns.shape == (recipe.size,) and columns.dtype == np.int64 and recipe.n_stages <= 1
    _check(sound and bool(np.all(np.diff(columns, prepend=-1) > 0)), "columns")
    return columns


def _read_projection(arrays: dict[str, NDArray[Any]]) -> Projection | None:
    mean, components = arrays.get("pca_mean"), arrays.get("pca_components")
    if mean is None or components is None:
        _check(mean is components, "principal components")
        return None
    _check(mean.dtype == components.dtype == np.float64, "principal components")
    _check(components.ndim == 2 and mean.shape == components.shape[:1], "principal components")
    return Projection(mean, components)


def _read_convolution(given: _ConvolutionRecipe | None, arrays: dict[str, NDArray[Any]]) -> Convolution | None:
    found = {field: arrays.get(name) for field, name in _CONVOLUTION_ARRAYS.items()}
    filters, offsets = found["filters"], found["offsets"]
    if given is None or filters is None or offsets is None:
        _check(given is None and all(array is None for array in found.values()), "masks")
        return None
    sizes = msgspec.structs.asdict(given)
    means, scales, whitening = found["means"], found["scales"], found["whitening"]
    own = Convolution(**sizes, filters=filters, offsets=offsets, means=means, scales=scales, whitening=whitening)
    n = own.patches[1]
    _check((whitening is not None) == (own.rectify == "triangle"), "masks")
    _check(whitening is None or (whitening.dtype.name, whitening.shape) == ("float64", (n + 1, n)), "masks")
    # Names of arrays are those of the first format, and stay.
    fits = filters.dtype == offsets.dtype == np.float64 and offsets.shape == filters.shape[:1]
    _check(fits and filters.shape[1:] == own.patches[1:], "masks")
    for array in (own.means, own.scales):
        _check(array is None or (array.dtype.name, array.shape) == ("float64", (own.per_filter, len(filters))), "masks")
    _check((own.means is None) == (own.scales is None), "masks")
    _check(min(own.shape[1:]) - own.side + 1 >= own.pool, "sizes of masks")
    return own


def _chained(design: Design, n_stages: int) -> bool:
    """Return whether the widths of rows, convolution, projection, columns and filters fit together."""
    own, projection = design.convolution, design.projection
    width = design.n_features
    if own is not None and width not in (0, own.n_inputs):
        return False
    width = width if own is None else own.width
    if projection is not None and width not in (0, len(projection.mean)):
        return False
    if design.kind == "masks":
        return own is not None and projection is None and _enough_filters(own, design, n_stages)
    if design.expand:
        return False
    if design.columns is not None and design.inputs(design.n_features):
        return bool(design.columns.max(initial=-1) < design.inputs(design.n_features))
    return design.kind == "all" or design.size > 0


def _enough_filters(convolution: Convolution, design: Design, n_stages: int) -> bool:
    size, last = design.size - design.expand, design.stage + n_stages
    if size <= 0 or size % convolution.per_filter:
        return False
    # All stages' filters in one array, each stage taking the next ones.
    return (convolution.width == size and n_stages <= 1) or last * size <= convolution.width
