"""The features that a model gives the largest weights, by name."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.storage.dataset.feature_names import target_names, unpack_names
from distls.storage.model.model import LinearModel


def strongest_features(model: LinearModel, outputs: list[int], most: int) -> dict[str, list[tuple[str, float]]]:
    """Return for each of some classes its features of largest weight, at most `most` for it and half as many against.

    Empty for models of generated features, whose weights mean nothing to a reader. Features without names are
    numbered from 0.
    """
    if model.recipe:
        return {}
    names = unpack_names(model.features, "the model")
    found = {}
    for k in outputs:
        weights = model.weights_for(k)
        places = [*largest_places(weights, most), *largest_places(-weights, most // 2)[::-1]]
        found[output_name(model, k)] = [
            (names[j] if names is not None and j < len(names) else f"feature {j}", float(weights[j])) for j in places
        ]
    return found


def output_name(model: LinearModel, k: int) -> str:
    """Return the class or label of an output, of numbers its column, if there are several."""
    if model.classes:
        return str(model.classes[k])
    names = target_names(model.source, model.n_outputs)
    return names[k] if names else "the number" if model.n_outputs == 1 else f"output {k}"


def largest_places(weights: NDArray[Any], most: int) -> list[int]:
    """Return the places of the largest positive weights, decreasing; ties to the lower place."""
    positive = np.flatnonzero(weights > 0)
    if len(positive) > most:
        # all that reach the last place shown, so that ties are broken below and not by the partition
        bound = -np.partition(-weights[positive], most - 1)[most - 1]
        positive = positive[weights[positive] >= bound]
    order = np.argsort(-weights[positive], kind="stable")[:most]
    return [int(j) for j in positive[order]]
