"""Columns of mean zero and deviation one, and targets of mean zero: how a fit sees rows whose scales are no matter."""

from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from distls.storage.rows import DenseRows, Partition

_FAR = 10.0  # deviations, or means in deviations, from which on columns are seen otherwise


class Standardization(NamedTuple):
    """What is subtracted from dense rows and from numbers as targets, and what columns are divided by."""

    mean: NDArray[Any]  # (n_features,), of the type of the rows, as is `scale`
    scale: NDArray[Any]
    target: NDArray[Any]  # (n_targets,); of one element, zero, where targets are not numbers

    @classmethod
    def of(cls, part: Partition, *, numbers: bool) -> Self:
        """Measure the rows of a partition."""
        assert isinstance(part.x, DenseRows)
        x = part.x.values
        scale, mean = x.std(axis=0, dtype=np.float64), x.mean(axis=0, dtype=np.float64)
        # what is constant but for rounding has no scale
        scale[~(scale > 1e-12 * np.abs(mean))] = 1.0
        target = part.y.mean(axis=0, dtype=np.float64).astype(part.y.dtype) if numbers else np.zeros(1)
        return cls(mean.astype(x.dtype), scale.astype(x.dtype), target)

    @property
    def is_far(self) -> bool:
        """Whether rows are far from standardized, so that a strength of their own size does not suit all columns."""
        far = np.maximum(np.maximum(self.scale, 1.0 / self.scale), np.abs(self.mean) / self.scale)
        return bool(far.max() > _FAR)

    def seen(self, part: Partition) -> Partition:
        """Standardize a partition in place."""
        if isinstance(part.x, DenseRows):
            part.x.values[...] -= self.mean
            part.x.values[...] /= self.scale
        if self.target.any():
            part.y[...] -= self.target
        return part

    def of_raw_rows(self, weights: NDArray[Any], intercept: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return weights (n_features, k) and intercept (k,) of rows as they are, from those of standardized ones."""
        raw = (weights / self.scale[:, None]).astype(weights.dtype)
        return raw, intercept + self.target - self._at_mean(raw)

    def of_seen_rows(self, weights: NDArray[Any], intercept: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return what `of_raw_rows` has made."""
        own = (weights * self.scale[:, None]).astype(weights.dtype)
        return own, intercept - self.target + self._at_mean(weights)

    def _at_mean(self, weights: NDArray[Any]) -> NDArray[np.float64]:
        """Return the scores of the mean row, feature by feature: a product by BLAS has the bits of a processor."""
        return np.add.reduce(self.mean.astype(np.float64)[:, None] * weights, axis=0)
