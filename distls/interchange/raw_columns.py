"""The columns of a table as users have them: what stands for their missing values, and what other programs read."""

from __future__ import annotations

from collections.abc import Container
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from distls.interchange.linear_form import Folded
from distls.serving.fitted_model import FittedModel
from distls.storage.errors import ParameterError
from distls.workers.ingestion.formats.table_columns import MISSING, Feature, missing_category
from distls.workers.ingestion.stand_ins import stand_ins

_KINDS = {
    "text": "documents", "set": "sets of categories", "hash": "hashed categories", "date": "dates",
    "time": "times of day", "duration": "lengths of time", "marked": "numbers with marks",
}  # fmt: skip


def features_of(model: FittedModel) -> tuple[Feature, ...]:
    """Return the columns of the table that a model was trained on, none of other sources."""
    return msgspec.convert(model.source.get("recipe", {}).get("features", ()), tuple[Feature, ...])


def has_columns(model: FittedModel) -> bool:
    """Return whether some columns of that table are not numbers, or may lack values."""
    coded = any(feature.categories is not None or feature.kind for feature in features_of(model))
    filled = any(step["name"] == "impute" for step in model.transforms)
    return coded or filled or bool(model.source.get("recipe", {}).get("na"))


def check_columns(model: FittedModel, to: str, reads: Container[str] = ()) -> None:
    """Raise ParameterError if the format `to` cannot read a column's kind, or the model's own missing values."""
    written = model.source.get("recipe", {}).get("dialect", {}).get("missing", ())
    if own := [marker for marker in written if marker not in MISSING]:
        raise ParameterError(
            f"{model.name}: {', '.join(own)} stand for missing values of this model, which {to} would take for "
            "values; --to npz has the weights, and distls.load_model predicts"
        )
    for feature in features_of(model):
        lists = feature.indices or (feature.width and not feature.kind)
        if lists or (feature.kind and feature.kind not in reads):
            what = "lists" if lists else _KINDS.get(feature.style) or _KINDS[feature.kind]
            words = feature.kind in ("text", "set")
            other = "--to sklearn includes them" if words else "--to npz has the weights"
            raise ParameterError(
                f'{model.name}: column "{feature.name}" holds {what}, which {to} cannot read; {other}, '
                f'distls.load_model predicts, and --ignore-columns "{feature.name}" of train makes a model without it'
            )


class Gaps(NamedTuple):
    """What stands for missing values, by the number of a column's first feature."""

    na: str  # of all columns; empty: each has its own
    fill: NDArray[np.float64] | None  # of numbers, by feature; None: refused
    moved: dict[int, int]  # of the feature of missing categories, the one that it becomes
    indicators: list[int]  # columns with a feature that says where; these come behind all others

    @classmethod
    def of(cls, model: FittedModel) -> Gaps:
        """Return those that the model's training has found."""
        step = next((step for step in model.transforms if step["name"] == "impute"), {})
        na, moved = model.source["recipe"].get("na", ""), step.get("moved", ())
        fill, features = model.features.get("fill"), features_of(model)
        if features and (own := stand_ins(features)) is not None:
            fill = own if fill is None else np.where(np.isnan(own), fill[: len(own)], own)
        return cls(na, fill, dict(moved), list(step.get("indicators", ())))

    def stand_in(self, feature: Feature, first: int) -> str | float | None:
        """Return the number or category of a missing value, None where there is none."""
        if feature.categories is None:
            known = feature.impute and self.fill is not None and not feature.kind
            return float(self.na) if self.na else float(self.fill[first]) if known else None  # type: ignore[index]
        found = missing_category(feature, self.na)
        if found not in feature.categories:
            return found
        place = first + feature.categories.index(found)
        return feature.categories[self.moved.get(place, place) - first]


def without_standardize(model: FittedModel, own: Folded, dense: int) -> Folded:
    """Return weights for rows before they are standardized, of which `dense` columns are centred."""
    weights = own.weights / model.features["std"][:, None]
    return Folded(weights, own.intercept - model.features["mean"][:dense] @ weights[:dense])
