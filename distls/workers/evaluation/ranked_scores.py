"""Rows of a class against all others, ordered by their scores: area under the ROC curve and average precision.

The weights of a class's rows, and of the others, are summed for each distinct score. Where these become too many, the
last bits of all scores are dropped until they are few enough: then some scores share a bin, and what they may add to
or take from a curve is known exactly. Both are functions of the rows and of the fixed tree alone.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# Scores kept of all classes together, 24 bytes each: 24 MiB for a lane's result.
ALL_SCORES = 2**20
_MOST_SCORES = 2**15  # of one class: errors of some 1e-4 (tests/workers/evaluation/test_ranked_scores.py)
_SIGN = np.uint64(1 << 63)


class WithBound(NamedTuple):
    """A number, and how far it is from the exact one at most."""

    value: float
    bound: float


class RankedScores(NamedTuple):
    """Rows by score."""

    keys: NDArray[np.uint64]  # (m,) increasing: the order of the scores, without their last `level` bits
    level: int
    own: Floats  # (m,): weight of the rows of the class
    others: Floats  # (m,): weight of other rows


NO_SCORES = RankedScores(np.empty(0, np.uint64), 0, np.empty(0), np.empty(0))


def capacity_for(n_classes: int, most: int = _MOST_SCORES) -> int:
    """Return how many distinct scores are kept of each of this many classes, at most so many."""
    return min(most, max(ALL_SCORES // max(n_classes, 1), 2))


def ranked(scores: Floats, own: NDArray[np.bool_], weight: Floats, capacity: int) -> RankedScores:
    """Sum the weights of rows by score; `own` says whether a row is of the class. All have shape (n_rows,)."""
    keys = _ordered(scores)
    # By the integer keys: a stable sort of equal scores is the order of the rows.
    order = np.argsort(keys, kind="stable")
    weight, own = weight[order], own[order]
    return _fitted(keys[order], 0, np.where(own, weight, 0.0), np.where(own, 0.0, weight), capacity)


def merge_ranked(left: RankedScores, right: RankedScores, capacity: int) -> RankedScores:
    """Merge the rows of two blocks."""
    level = max(left.level, right.level)
    # Both sides at the coarser level, so that equal bins meet.
    keys = np.concatenate([side.keys >> np.uint64(level - side.level) for side in (left, right)])
    order = np.argsort(keys, kind="stable")
    own, others = (np.concatenate(pair)[order] for pair in zip(left[2:], right[2:], strict=True))
    return _fitted(keys[order], level, own, others, capacity)


def _ordered(scores: Floats) -> NDArray[np.uint64]:
    """Return unsigned integers in the order of the scores."""
    bits = (scores + 0.0).view(np.uint64)  # without negative zeros
    # Bits of negative floats run backwards: inverted; those of others get the sign bit, above all negative ones.
    return np.where(bits & _SIGN, ~bits, bits | _SIGN)


def scores_of(rows: RankedScores) -> Floats:
    """Return the scores, increasing; of bins of several scores their middles."""
    keys = rows.keys << np.uint64(rows.level)
    # The middle of what the dropped bits may be.
    if rows.level:
        keys += np.uint64(1 << (rows.level - 1))
    return np.where(keys & _SIGN, keys ^ _SIGN, ~keys).view(np.float64)


def _fitted(keys: NDArray[np.uint64], level: int, own: Floats, others: Floats, capacity: int) -> RankedScores:
    """Sum over equal keys, which are sorted, with as many bits dropped as makes them few enough."""
    if not len(keys):
        return RankedScores(keys, level, own, others)
    fewest, most = 0, 63 - min(level, 63)
    if _distinct(keys, 0) > capacity:
        # Bisection: fewer bits never give more bins.
        while most - fewest > 1:
            middle = (fewest + most) // 2
            if _distinct(keys, middle) > capacity:
                fewest = middle
            else:
                most = middle
        keys, level = keys >> np.uint64(most), level + most
    starts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
    return RankedScores(keys[starts], level, np.add.reduceat(own, starts), np.add.reduceat(others, starts))


def _distinct(keys: NDArray[np.uint64], dropped: int) -> int:
    shifted = keys >> np.uint64(dropped)
    return 1 + int(np.count_nonzero(shifted[1:] != shifted[:-1]))


def roc_auc(rows: RankedScores) -> WithBound | None:
    """Return the share of pairs of a row of the class and another one that are in order, ties half; None without pairs.

    In a bin of several scores the pairs count half; all of them may be in order, or none.
    """
    pairs = rows.own.sum() * rows.others.sum()
    if not pairs > 0.0:
        return None
    # Weight of the others strictly below each score.
    below = np.cumsum(rows.others) - rows.others
    # Equal scores are half in order.
    value = (rows.own * (below + 0.5 * rows.others)).sum() / pairs
    undecided = 0.5 * (rows.own * rows.others).sum() / pairs
    return WithBound(float(value), float(undecided) if rows.level else 0.0)


def rates(rows: RankedScores) -> Floats:
    """Return rates above each score, the highest first, shape (m, 3); none without rows of both kinds.

    They are the rate of other rows, the rate of the class's own (recall), and the precision.
    """
    own, others = np.cumsum(rows.own[::-1]), np.cumsum(rows.others[::-1])
    if not len(own) or not own[-1] > 0.0 or not others[-1] > 0.0:
        return np.empty((0, 3))
    return np.stack([others / others[-1], own / own[-1], own / (own + others)], axis=1)


def average_precision(rows: RankedScores) -> WithBound | None:
    """Return the precision at each row of the class, rows of equal score together, averaged; None without such rows.

    The bounds of a bin of several scores: all rows of the class come first and together, or last and one by one.
    """
    own, others = rows.own[::-1], rows.others[::-1]
    if not own.sum() > 0.0:
        return None
    held = own > 0.0
    before, mixed = np.cumsum(own) - own, np.cumsum(others)
    own, others, before, mixed = (part[held] for part in (own, others, before, mixed))
    after, total = before + own, own.sum()
    if not rows.level:
        return WithBound(float((own * after / (after + mixed)).sum() / total), 0.0)
    # As if all of the class came first within its bin.
    first = own * after / (after + mixed - others)
    # rows one by one, in the limit of small weights: the integral of x / (x + mixed) from `before` to `after`
    safe = np.where(mixed > 0.0, mixed, 1.0)
    last = own - np.where(mixed > 0.0, mixed * (np.log(after + safe) - np.log(before + safe)), 0.0)
    low, high = last.sum() / total, first.sum() / total
    return WithBound(float(0.5 * (low + high)), float(0.5 * (high - low)))
