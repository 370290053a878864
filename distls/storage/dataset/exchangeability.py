"""Whether rows may be taken in any order: means of partitions against what chance allows. See docs/metrics.md."""

import math
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from distls.storage.rows import CsrRows, DenseRows, Rows, n_rows_of

SUMS = 32  # signed sums of columns that stand for them
FALSE_ALARMS = 1e-6  # of data in random order, at most
_MOST_ROWS, _MOST_VALUES = 2**12, 2**22  # of a partition that are looked at
_BLOCK_VALUES = 2**16
_MULTIPLIER = np.uint32(2654435761)  # the golden ratio's: its products have random high bits


class Deviation(msgspec.Struct, frozen=True):
    """The partition whose mean is furthest from that of all rows."""

    times_chance: Annotated[float, msgspec.Meta(ge=0)]  # its distance by what rows in random order allow
    partition: Annotated[int, msgspec.Meta(ge=0)]


class Exchangeability(msgspec.Struct, frozen=True):
    """The deviations of a data set: above 1 its rows are not in random order."""

    labels: Deviation | None = None
    features: Deviation | None = None

    @property
    def largest(self) -> tuple[str, Deviation] | None:
        """The larger deviation, and of what."""
        found = [(name, each) for name in ("labels", "features") if (each := getattr(self, name)) is not None]
        return max(found, key=lambda each: each[1].times_chance, default=None)


def moments(values: NDArray[np.float64]) -> dict[str, Any]:
    """Return what is kept of the numbers of a partition's rows, shape (n, k): JSON."""
    if not len(values):
        return {"count": 0}
    with np.errstate(over="ignore", invalid="ignore"):
        mean = values.mean(axis=0)
        squares = np.square(values - mean).sum(axis=0)
    numbers = {"mean": mean, "squares": squares, "low": values.min(axis=0), "high": values.max(axis=0)}
    finite = np.all([np.isfinite(each) for each in numbers.values()], axis=0)
    # numbers near the end of float64 say nothing
    return {"count": len(values)} | {name: np.where(finite, each, 0).tolist() for name, each in numbers.items()}


def feature_moments(x: Rows) -> dict[str, Any]:
    """Return the moments of SUMS signed sums of the columns over evenly spaced rows."""
    n_rows = n_rows_of(x)
    size = (x.values if isinstance(x, DenseRows) else x.data).size
    # Evenly spaced rows: cheap, and no random numbers.
    step = max(-(-n_rows // _MOST_ROWS), -(-size // _MOST_VALUES), 1)
    rows = np.arange(0, n_rows, step)
    sums = np.zeros((len(rows), SUMS))
    at_once = max(_BLOCK_VALUES * n_rows // max(size, 1), 1)
    for first in range(0, len(rows), at_once):
        chosen = rows[first : first + at_once]
        place, columns, values = _dense_values(x, chosen) if isinstance(x, DenseRows) else _values(x, chosen)
        # Random-looking signs by a multiplicative hash: the same everywhere, without a table.
        signs = np.where((columns.astype(np.uint32) * _MULTIPLIER) >> np.uint32(31), -1.0, 1.0)
        key = place * SUMS + columns % SUMS
        found = np.bincount(key, signs * values, len(chosen) * SUMS)
        sums[first : first + at_once] = found.reshape(-1, SUMS)
    return moments(sums)


def _values(x: CsrRows, rows: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return number among `rows`, column and value of each stored value of these rows."""
    lengths = x.indptr[rows + 1] - x.indptr[rows]
    ends = np.cumsum(lengths)
    at = np.repeat(x.indptr[rows] - ends + lengths, lengths) + np.arange(int(ends[-1]))
    return np.repeat(np.arange(len(rows)), lengths), x.indices[at].astype(np.int64), x.data[at]


def _dense_values(x: DenseRows, rows: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    width = x.values.shape[1]
    place = np.repeat(np.arange(len(rows)), width)
    return place, np.tile(np.arange(width), len(rows)), x.values[rows].reshape(-1)


def largest_deviation(parts: Sequence[dict[str, Any]]) -> Deviation | None:
    """Return the largest deviation of the `moments` of partitions; None where nothing can be compared."""
    known = [(number, part) for number, part in enumerate(parts) if part.get("count")]
    if len(known) < 2:
        return None
    count = np.array([part["count"] for _, part in known], dtype=np.float64)[:, None]
    mean, squares, low, high = (
        np.array([part[name] for _, part in known]) for name in ("mean", "squares", "low", "high")
    )
    centre = (count * mean).sum(axis=0) / count.sum()
    # The variance of all rows: within the partitions, and between their means.
    variance = (squares + count * np.square(mean - centre)).sum(axis=0) / count.sum()
    span = np.maximum(high.max(axis=0) - centre, centre - low.min(axis=0))
    allowed = _allowed(variance, span, count, mean.size)
    # A column that never varies cannot deviate.
    ratio = np.divide(np.abs(mean - centre), allowed, out=np.zeros_like(mean), where=allowed > 0)
    return _deviation(ratio.max(axis=1, initial=0.0), [number for number, _ in known])


def label_deviation(counts: Sequence[Sequence[int]], rows: Sequence[int]) -> Deviation | None:
    """Return the largest deviation of the classes' shares; `counts` has the rows of each class, by partition."""
    known = [number for number, n in enumerate(rows) if n]
    if len(known) < 2 or not len(counts[0]):
        return None
    total = sum(rows)
    share = np.sum([np.asarray(counts[number], dtype=np.float64) for number in known], axis=0) / total
    # a class at a time is an indicator of its rows; one that all or no rows have does not vary
    variance, span = share * (1 - share), np.maximum(share, 1 - share) * ((share > 0) & (share < 1))
    worst = []
    for number in known:
        allowed = _allowed(variance, span, rows[number], len(share) * len(known))
        off = np.abs(np.asarray(counts[number]) / rows[number] - share)
        worst.append(np.divide(off, allowed, out=np.zeros_like(off), where=allowed > 0).max(initial=0.0))
    return _deviation(np.array(worst), known)


def _allowed(variance: NDArray[Any], span: NDArray[Any], count: Any, tests: int) -> NDArray[Any]:
    """Return Bernstein's bound on the distance of a mean of `count` rows drawn without replacement."""
    # A union bound over all means that are compared.
    chance = math.log(2 * tests / FALSE_ALARMS)
    third = span * chance / (3 * count)
    return np.asarray(third + np.sqrt(np.square(third) + 2 * variance * chance / count))


def _deviation(worst: NDArray[np.float64], numbers: Sequence[int]) -> Deviation:
    at = int(np.argmax(worst))
    return Deviation(float(f"{worst[at]:.4g}"), numbers[at])
