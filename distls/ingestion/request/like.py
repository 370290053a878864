"""Reference data of ``like``: a dataset, or a model as far as it describes its training data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

from numpy.typing import NDArray

from distls.ingestion.request.recipe_check import check_source, check_transforms
from distls.storage.dataset.dataset import Dataset, is_dataset, open_dataset
from distls.storage.dataset.metadata import DatasetMeta
from distls.storage.filesystem.paths import Place, place_of
from distls.storage.filesystem.safe_read import making_sense
from distls.storage.model.model import LinearModel, load_model


@dataclass(frozen=True)
class ModelLike:
    """A model in the role of its training data."""

    path: Place  # for messages
    meta: DatasetMeta  # classes, width, base, transforms, source; row counts are meaningless
    fingerprint: str
    arrays: dict[str, NDArray[Any]]

    def features(self) -> dict[str, NDArray[Any]]:
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
    with making_sense(where):
        check_transforms(meta.transforms, like.features(), meta.n_features)
        check_source(meta.source)
    return like


def description_of(like: Like | None) -> dict[str, Any]:
    """Return how the source of `like` was read, as its format recorded it; empty without `like`."""
    return {} if like is None else dict(like.meta.source.get("recipe", {}))
