"""Reference data of ``like``: a dataset, or a model as far as it describes its training data.

Recorded transforms and sources are validated before other data are read like them; see docs/security.md.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

import msgspec
import numpy as np

from distls.ingestion.request.format_options import encoding_name
from distls.storage.dataset.dataset import Dataset, is_dataset, open_dataset
from distls.storage.dataset.feature_names import NAME_ARRAYS
from distls.storage.dataset.metadata import DatasetMeta, Positive, Width
from distls.storage.errors import ParameterError
from distls.storage.filesystem.paths import Place, place_of
from distls.storage.filesystem.safe_read import as_format_error, convert_json
from distls.storage.model.model import LinearModel, load_model
from distls.workers.ingestion.formats.table_columns import MISSING, Dialect, Feature
from distls.workers.ingestion.parsing.array_types import Array, Doubles
from distls.workers.ingestion.stand_ins import stand_ins


@dataclass(frozen=True)
class ModelLike:
    """A model in the role of its training data."""

    path: Place  # for messages
    meta: DatasetMeta  # classes, width, base, transforms, source; row counts are meaningless
    fingerprint: str
    arrays: dict[str, Array]

    def features(self) -> dict[str, Array]:
        """Return the arrays of ``features/``."""
        return self.arrays


Like = Dataset | ModelLike


def open_like(like: str | Place | LinearModel | Like) -> Like:
    """Open a dataset, run or model; raises as `open_dataset` and `load_model`."""
    if isinstance(like, (Dataset, ModelLike)):
        return _checked(like)
    if isinstance(like, LinearModel):
        return like_model(like, "the model")
    path = place_of(like)
    if is_dataset(path) or not any((path / name).exists() for name in ("config.json", "bundle.json")):
        return _checked(open_dataset(path))
    return like_model(load_model(path), str(path))


def like_model(model: LinearModel, name: str) -> ModelLike:
    """Return the description of the training data in `model`; `name` is for messages."""
    meta = DatasetMeta(
        n_rows=0,
        n_features=model.n_features,
        nnz=0,
        layout="csr",
        dtype="float32",
        target=model.target,
        classes=model.classes,
        n_targets=model.n_outputs if model.target == "continuous" else 0,
        transforms=model.transforms,
        transforms_digest=model.transforms_digest,
        zero_based=model.zero_based,
        source=model.source,
    )
    return _checked(ModelLike(place_of(name), meta, model.sha256, model.features))


L = TypeVar("L", bound=Like)


def _checked(like: L) -> L:
    """Return `like` once its transforms and source are known to be applicable to other data."""
    meta, where = like.meta, str(like.path)
    with as_format_error(where):
        check_transforms(meta.transforms, like.features(), meta.n_features)
        check_source(meta.source)
    return like


def description_of(like: Like | None) -> dict[str, Any]:
    """Return how the source of `like` was read, as its format recorded it; empty without `like`."""
    return {} if like is None else dict(like.meta.source.get("recipe", {}))


def known_dialect(like: Like | None) -> Dialect | None:
    """Return how the values of `like` were written, None if nothing is recorded."""
    found = description_of(like).get("dialect")
    return None if found is None else msgspec.convert(found, Dialect)


def missing_values(given: Sequence[str], like: Like | None, *, typed: bool) -> tuple[str, ...]:
    """Return the texts that stand for no value: those of `like`, or the usual ones unless `typed`; and the given.

    Behind a mark, ``!None``, a text is given as a value.

    What is a category or a class of `like` is a value there, as when fewer texts stood for none.
    """
    known = known_dialect(like)
    written = like is not None and like.meta.source.get("format") in ("csv", "text")
    usual = MISSING if written or not typed else ()
    if known is not None and written:
        usual = known.missing
    elif like is not None:
        columns = description_of(like).get("features", ())
        taken = {*map(str, like.meta.classes)}.union(*(column.get("categories") or () for column in columns))
        usual = (*usual, *(known.missing if known is not None else ()))
        # the empty category is that of missing values
        usual = tuple(text for text in usual if not text or text not in taken)
    marked = {text for text in given if len(text) > 1 and text.startswith("!")}
    values = marked | {text[1:] for text in marked}
    return tuple(dict.fromkeys(text for text in (*usual, *given) if text not in values))


def known_stand_ins(like: Like) -> Doubles | None:
    """Return what stands for missing values of columns that lacked none in `like`, as `stand_ins` has it."""
    features = description_of(like).get("features", ())
    return stand_ins(msgspec.convert(features, tuple[Feature, ...])) if features else None


class _Plain(msgspec.Struct, tag_field="name", tag="log1p", kw_only=True):
    """A transform of all columns, or of ranges of them."""

    ranges: list[tuple[Annotated[int, msgspec.Meta(ge=0)], int]] = []


class _Norm(_Plain, tag="l2norm"):
    pass


class _Idf(_Plain, tag="idf"):
    pass


class _Standardize(_Plain, tag="standardize"):
    float64: bool = False  # rows have 64 bits until they are centred
    dense: Annotated[int, msgspec.Meta(ge=0)] = 0  # leading columns, which alone are centred


class _Impute(_Plain, tag="impute"):
    columns: Width
    kept: Width
    indicators: list[Annotated[int, msgspec.Meta(ge=0)]]
    moved: list[tuple[int, int]] = []

    def __post_init__(self) -> None:
        numbers = [*self.indicators, *(column for pair in self.moved for column in pair)]
        if self.kept != self.columns + len(self.indicators) or not all(0 <= c < self.columns for c in numbers):
            raise ValueError("impute has columns that are not there")


class _Scale(_Plain, tag="scale"):
    divisor: Positive


class _MinCount(_Plain, tag="min_count"):
    columns: Width
    kept: Width


_FITTED: dict[type[_Plain], str] = {_Idf: "idf", _Standardize: "std"}


def check_transforms(transforms: Sequence[dict[str, Any]], features: Mapping[str, Array], n_features: int) -> None:
    """Raise ValueError for transforms, fitted arrays or feature names that do not suit rows of `n_features`."""
    step_types = list[_Plain | _Norm | _Idf | _Standardize | _Scale | _MinCount | _Impute]
    steps = convert_json(transforms, step_types, "transforms")
    kinds = [type(step) for step in steps]
    once: tuple[type[_Plain], ...] = (_MinCount, _Impute, *_FITTED)
    if any(kinds.count(kind) > 1 for kind in once):
        raise ValueError("a transform that is fitted once is there twice")
    for step in steps:
        _check_ranges(step, n_features, "mean" in features)
        if isinstance(step, _Impute):
            _check_fill(step is steps[0], step, features.get("fill"))
        if isinstance(step, _MinCount):
            _check_kept(step, features.get("kept"), n_features)
    # mean is optional: sparse rows are not centred
    for name in {_FITTED[kind] for kind in kinds if kind in _FITTED} | ({"mean"} & features.keys()):
        array = features.get(name)
        if array is None or array.shape != (n_features,) or array.dtype.kind != "f":
            raise ValueError(f"fitted array {name} of another shape than its {n_features} features")
    ends = features.get(NAME_ARRAYS[1])
    if ends is not None and (ends.shape != (n_features,) or ends.dtype.kind not in "iu"):
        raise ValueError(f"names of other than its {n_features} features")


def _check_ranges(step: _Plain, n_features: int, centred: bool) -> None:
    if any(not start <= stop <= n_features for start, stop in step.ranges):
        raise ValueError("a transform of columns that are not there")
    if isinstance(step, _Standardize) and step.dense and (step.dense > n_features or not centred):
        raise ValueError("standardize centres columns that are not there")


def _check_fill(first: bool, step: _Impute, fill: Array | None) -> None:
    if not first or fill is None or fill.shape != (step.kept,) or fill.dtype.kind != "f":
        raise ValueError("impute is first, and has a value for each of its columns")


def _check_kept(step: _MinCount, kept: Array | None, n_features: int) -> None:
    if kept is None or kept.dtype != np.int64 or not kept.shape == (n_features,) == (step.kept,):
        raise ValueError("min_count keeps other columns")
    if np.any(np.diff(kept, prepend=-1) <= 0) or int(kept.max(initial=-1)) >= step.columns:
        raise ValueError("min_count keeps columns that are not there")


class _Source(msgspec.Struct):
    format: str = ""
    recipe: dict[str, Any] = {}


class _Table(msgspec.Struct):
    columns: list[str]
    label: str
    weight: str
    na: str
    features: list[Feature]
    labels: list[str] = []  # of several targets
    id_column: str = ""
    dialect: Dialect | None = None

    def __post_init__(self) -> None:
        stand_ins(self.features)


class _Vw(msgspec.Struct):
    hash_bits: Annotated[int, msgspec.Meta(gt=0, le=32)] | None
    namespace: str
    id_column: str = ""


_Words = Annotated[int, msgspec.Meta(ge=1, le=2**16)]


class _Text(msgspec.Struct):
    n_features: Annotated[int, msgspec.Meta(gt=0, le=2**32)]
    analyzer: Literal["word", "char", "char_wb"]
    lowercase: bool
    alternate_sign: bool
    binary: bool
    ngrams: tuple[_Words, _Words]
    text_column: str
    label_column: str
    weight_column: str
    id_column: str = ""
    dialect: Dialect | None = None

    def __post_init__(self) -> None:
        if self.ngrams[0] > self.ngrams[1]:
            raise ValueError("ngrams from more words to fewer")


class _Svmlight(msgspec.Struct):
    id_column: str = ""
    weight_column: str = ""


class _AnnData(msgspec.Struct):
    label: str
    weight: str


# Members of ``source.recipe`` (docs/format.md) that a reader needs, by format.
_RECIPES: dict[str, type[msgspec.Struct]] = {
    "svmlight": _Svmlight, "vw": _Vw, "text": _Text, "csv": _Table, "parquet": _Table, "anndata": _AnnData
}  # fmt: skip


def check_source(source: Mapping[str, Any]) -> None:
    """Raise ValueError for a description of source files that does not suffice to read others."""
    own = convert_json(source, _Source, "its source")
    if own.recipe.get("encoding"):
        try:
            encoding_name(convert_json(own.recipe["encoding"], str, "its encoding"))
        except ParameterError as error:
            raise ValueError(str(error)) from None
    # a recipe with features is read as that of a table, whatever its format says
    kind = _Table if "features" in own.recipe else _RECIPES.get(own.format)
    if kind is not None:
        convert_json(own.recipe, kind, "its source recipe")
