"""A trained linear model and its folder."""

import hashlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from distls.storage.dataset.metadata import Label, TargetKind, Width
from distls.storage.errors import CorruptDataError, FormatError
from distls.storage.filesystem.checksums import little_endian
from distls.storage.filesystem.paths import Place, place_of
from distls.storage.filesystem.safe_read import convert_json
from distls.storage.machine import available_memory
from distls.storage.model.bundle import read_arrays, read_bundle, write_bundle
from distls.storage.model.sparse_blocks import ARRAYS, BlockPlace, ClassBlocks

_FEATURES = "features_"
_ROWS = "rows"
_RECIPE = "recipe_"
_CALIBRATION = "calibration_"
_BLOCK = "block_"
_LITTLE = 2**24  # bytes


class _Attributes(msgspec.Struct, forbid_unknown_fields=True):
    """A model's attributes on disk; those with a default may be absent."""

    classes: list[Label]
    method: str
    loss: str
    params: dict[str, Any]
    transforms: list[dict[str, Any]]
    transforms_digest: str
    dataset_fingerprint: str
    zero_based: bool | None = None
    source: dict[str, Any] = {}
    recipe: dict[str, Any] = {}
    target: Literal["class", "multilabel", "continuous"] = "class"
    weights_sha256: str | None = None
    n_features: Width | None = None
    calibration: dict[str, Any] = {}
    class_blocks: list[Annotated[int, msgspec.Meta(ge=0)]] = []


class _Recipe(msgspec.Struct):
    """The part of a recipe that is used before its features and its calibration are validated."""

    n_features: Width
    calibration: dict[str, Any] = {}


@dataclass(frozen=True, repr=False)
class LinearModel:
    """Scores of a row x are ``x @ weights + intercept``; the class is the highest score, ties the lowest code.

    Two classes have one score: the second's where it is above zero.

    With a recipe they come from `weights` in another way, which distls.workers.prediction.predictor knows. What is
    predicted may also be a set of labels, those whose scores are above a threshold, or the scores themselves:
    see `target`.

    Attributes
    ----------
    weights : float32 or float64 array of shape (n_features, n_outputs)
        Of very many classes `ClassBlocks`, which stand for it: the weights that are not zero, read block by block.
    intercept : array of shape (n_outputs,), same dtype
        Both of another shape where the recipe says so.
    classes : list of labels, sorted as in the training data; empty where the target is continuous
    method : str
    loss : str
        Full loss name.
    params : dict
        All parameters of the fit.
    transforms_digest : str
        Recipe of the training data: data to be scored must have gone through the same.
    transforms : list of dict
    dataset_fingerprint : str
    zero_based : bool or None
        Base of the feature numbers in the text that the training data came from.
    source : dict
        Format and recipe of that source: what else of its kind is read like it.
    features : dict of name -> array
        ``features/`` of the training data: what its transforms were fitted to.
    recipe : dict
        JSON values; empty for a plain linear model, else with ``n_features``, the width of the rows it scores.
    arrays : dict of name -> array
        What the recipe needs besides.
    target : {"class", "multilabel", "continuous"}
        What is predicted: a class, a set of labels, or a number for each output.
    calibration : dict
        JSON values; empty where probabilities are those of the loss, else ``kind``, and what they were fitted to.
    calibration_arrays : dict of name -> array
        See `distls.workers.prediction.probability_map`.
    """

    weights: NDArray[Any]
    intercept: NDArray[Any]
    classes: list[Label]
    method: str
    loss: str
    params: dict[str, Any]
    transforms: list[dict[str, Any]]
    transforms_digest: str
    dataset_fingerprint: str
    zero_based: bool | None = None
    source: dict[str, Any] = field(default_factory=dict)
    features: dict[str, NDArray[Any]] = field(default_factory=dict)
    recipe: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)
    target: TargetKind = "class"
    calibration: dict[str, Any] = field(default_factory=dict)
    calibration_arrays: dict[str, NDArray[Any]] = field(default_factory=dict)

    def __repr__(self) -> str:
        outputs = {"class": "classes", "multilabel": "labels", "continuous": "outputs"}[self.target]
        steps = ",".join(step["name"] for step in self.transforms)
        facts = [
            f"method={self.method!r}",
            f"loss={self.loss!r}",
            f"{self.n_features} features",
            f"{self.n_outputs} {outputs}",
            *([f"source={self.source['format']!r}"] if self.source.get("format") else []),
            *([f"transforms={steps!r}"] if steps else []),
        ]
        return f"{type(self).__name__}({', '.join(facts)})"

    @property
    def n_features(self) -> int:
        """Width of the rows it scores."""
        return int(self.recipe.get("n_features", len(self.weights)))

    @property
    def n_outputs(self) -> int:
        """Classes, labels or numbers that it predicts."""
        return len(self.classes) or len(self.intercept)

    def weights_for(self, k: int) -> NDArray[Any]:
        """Return the weights (n_features,) for an output; for the first of two classes with one column against it."""
        if len(self.classes) == 2 and self.weights.shape[1] == 1:
            return np.asarray(self.weights[:, 0] if k else -self.weights[:, 0])
        return np.asarray(self.weights[:, k])

    @property
    def sha256(self) -> str:
        """Digest of the weights, and of the recipe's arrays by name; see `weights_sha256`."""
        if isinstance(self.weights, ClassBlocks):
            return self.weights.sha256(self.intercept)
        return weights_sha256(self.weights, self.intercept, *(self.arrays[name] for name in sorted(self.arrays)))


def one_of_two(columns: NDArray[Any]) -> NDArray[Any]:
    """Return columns of classes as scikit-learn has them: of two, which earlier versions stored, their difference."""
    return columns[1:] - columns[:1] if len(columns) == 2 else columns


def used_rows(weights: NDArray[Any]) -> NDArray[np.int64]:
    """Return the rows of weights that are not all zero, increasing; -0.0 is not zero here."""
    if isinstance(weights, ClassBlocks):
        return weights.used_rows()
    # As bits, so that -0.0 and NaN count as values.
    bits = weights.view(f"u{weights.itemsize}")
    return np.flatnonzero(bits.any(axis=1))


def weights_sha256(weights: NDArray[Any], intercept: NDArray[Any], *others: NDArray[Any]) -> str:
    """Sha256 of the little-endian C-order bytes of the weights, the intercept in the same dtype, then the others."""
    digest = hashlib.sha256()
    for array in (weights, intercept.astype(weights.dtype, copy=False), *others):
        digest.update(little_endian(array).data)
    return digest.hexdigest()


def save_model(folder: Place, model: LinearModel) -> None:
    """Write a model; it appears whole or not at all."""
    # in the order of their declaration, of which those behind the digest are in some models only
    always = itertools.takewhile(lambda name: name != "weights_sha256", _Attributes.__struct_fields__)
    attributes: dict[str, Any] = {name: getattr(model, name) for name in always}
    attributes["weights_sha256"] = model.sha256
    features = {f"{_FEATURES}{name}": array for name, array in model.features.items()}
    others = {f"{_RECIPE}{name}": array for name, array in model.arrays.items()}
    if model.calibration:
        attributes["calibration"] = model.calibration
        others |= {f"{_CALIBRATION}{name}": array for name, array in model.calibration_arrays.items()}
    others = {"intercept": model.intercept, **features, **others}
    if isinstance(model.weights, ClassBlocks):
        attributes["class_blocks"] = [block.first for block in model.weights.blocks]
        attributes["n_features"] = model.n_features
        write_bundle(folder, "model", attributes, others, _block_arrays(model.weights))
        return
    weights = {"weights": model.weights}
    # sparse models store the non-zero rows only
    if not model.recipe and model.weights.ndim == 2:
        rows = used_rows(model.weights)
        # At most half: otherwise the row numbers cost more than the zeros.
        if len(rows) <= len(model.weights) // 2:
            weights = {"weights": model.weights[rows], _ROWS: rows}
            attributes["n_features"] = len(model.weights)
    write_bundle(folder, "model", attributes, {**weights, **others})


def _block_arrays(weights: ClassBlocks) -> Iterator[tuple[str, NDArray[Any]]]:
    for block in weights.read():
        for name in ARRAYS:
            yield f"{_block_prefix(block.first)}{name}", getattr(block, name)


def _block_prefix(first: int) -> str:
    return f"{_BLOCK}{first:08d}_"


def _blocks_of(folder: Place, attributes: _Attributes, intercept: NDArray[Any]) -> ClassBlocks:
    """Return the weights of a model of blocks of classes, which stay on disk."""
    n_features, firsts, k = attributes.n_features, attributes.class_blocks, len(intercept)
    # Blocks follow each other without gaps, from class 0 on.
    if n_features is None or firsts[0] != 0 or np.any(np.diff(firsts, append=k) <= 0) or attributes.recipe:
        raise FormatError(f"{folder}: its blocks of classes are not those of {k} classes")
    blocks = tuple(
        BlockPlace(str(folder.absolute()), "model", first, stop, _block_prefix(first))
        for first, stop in zip(firsts, [*firsts[1:], k], strict=True)
    )
    return ClassBlocks((n_features, k), intercept.dtype, blocks)


def _all_rows(folder: Place, arrays: dict[str, NDArray[Any]], n_features: int | None) -> NDArray[Any]:
    """Return the weights of all features where only rows of them are stored."""
    weights, rows = arrays["weights"], arrays.get(_ROWS)
    if rows is None:
        return weights
    # Row numbers come from a file, and index memory.
    sound = rows.dtype == np.int64 and weights.ndim == 2 and rows.shape == weights.shape[:1]
    if n_features is None or not sound or np.any(np.diff(rows, prepend=-1, append=n_features) <= 0):
        raise FormatError(f"{folder}: its rows of weights are not rows of {n_features} features")
    n_bytes = n_features * weights.shape[1] * weights.itemsize
    # There is room for little ones.
    if n_bytes > _LITTLE and n_bytes > (free := available_memory()):
        # a few bytes on disk may declare any number of zero rows
        raise FormatError(
            f"{folder}: weights of {n_features} features take {n_bytes} bytes, more than the {free} that are free"
        )
    full = np.zeros((n_features, weights.shape[1]), weights.dtype)
    full[rows] = weights
    return full


def weights_digest(path: str | Place) -> str:
    """Return the recorded digest of the weights of a model, which are not read; raises as `load_model`."""
    root = place_of(path)
    folder = root / "model" if (root / "model").is_dir() else root
    # the description alone, which has a checksum
    attributes, _ = read_arrays(folder, "model", set())
    return str(attributes.get("weights_sha256"))


def load_model(path: str | Place) -> LinearModel:
    """Load the model of a run, or a model folder.

    Raises FormatError if there is no model at `path`, CorruptDataError if its arrays do not match their checksums.
    """
    root = place_of(path)
    # A run without `model` is told from a model folder by its configuration.
    # `path` is a run, which has its model in a folder, or the model itself
    folder = root / "model" if (root / "model").is_dir() else root
    if not root.exists():
        raise FormatError(f"{root}: no such run or model")
    if not root.is_dir():
        raise FormatError(f"{root}: a file, not a run or model")
    if folder == root and (root / "config.json").exists():
        raise FormatError(f"{root}: this run has published no model yet; `distls resume {root}` continues it")
    stored, arrays = read_bundle(folder, "model", root, leave=_BLOCK)
    attributes = _checked(stored, arrays, folder)
    features, others, calibration = (
        {name.removeprefix(start): array for name, array in arrays.items() if name.startswith(start)}
        for start in (_FEATURES, _RECIPE, _CALIBRATION)
    )
    said = msgspec.structs.asdict(attributes)
    recorded, n_features, blocks = (said.pop(name) for name in ("weights_sha256", "n_features", "class_blocks"))
    # the digest is that of all rows, however they are stored
    if blocks:
        weights = cast("NDArray[Any]", _blocks_of(folder, attributes, arrays["intercept"]))
    else:
        weights = _all_rows(folder, arrays, n_features)
    model = LinearModel(
        weights, arrays["intercept"], **said, features=features, arrays=others, calibration_arrays=calibration
    )
    _check_whole(model, folder)
    # The digest comes last: it is of weights whose shapes are known to be sound.
    if recorded != model.sha256:
        raise CorruptDataError(f"{folder}: its weights do not match their recorded weights_sha256")
    return model


def _checked(stored: dict[str, Any], arrays: dict[str, NDArray[Any]], folder: Place) -> _Attributes:
    """Return the attributes of a model, once they are those of one and it has the arrays that each has."""
    needed = {"intercept"} if stored.get("class_blocks") else {"weights", "intercept"}
    if missing := needed - arrays.keys():
        raise FormatError(f"{folder}: incomplete model (no array {min(missing)})")
    try:
        attributes = convert_json(stored, _Attributes)
        if attributes.recipe:
            convert_json(attributes.recipe, _Recipe, "its recipe")
    except ValueError as error:
        raise FormatError(f"{folder}: not a model written by distls ({error})") from None
    # Codes would be ambiguous.
    if len(set(attributes.classes)) != len(attributes.classes):
        raise FormatError(f"{folder}: not a model written by distls (a class is there twice)")
    return attributes


def _check_whole(model: LinearModel, folder: Place) -> None:
    """Refuse a model whose parts do not fit together."""
    weights, intercept = model.weights, model.intercept
    if bool(model.classes) == (model.target == "continuous"):
        raise FormatError(f"{folder}: a model of {model.target} targets with {len(model.classes)} classes")
    one = model.target == "class" and model.n_outputs == 2
    fits = bool(model.recipe) or len(intercept) in ((1, 2) if one else (model.n_outputs,))
    if weights.ndim != 2 or intercept.shape != weights.shape[1:] or not fits:
        raise FormatError(f"{folder}: weights, intercept and classes have different sizes")
    if weights.dtype not in (np.float32, np.float64) or intercept.dtype != weights.dtype:
        raise FormatError(
            f"{folder}: weights of {weights.dtype}, intercept of {intercept.dtype}; not a model of distls"
        )
