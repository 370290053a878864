"""Which points of paths are still worth a fit, by the rows that were held back so far (``prune=true``)."""

from __future__ import annotations

import math

import numpy as np

from distls.methods.method import Params

# Differences that are told apart no further: of the error itself, and as a part of it
_PRECISION, _PART = 0.003, 0.07
# Errors of numbers and of label sets are no counts: what one differs from another by chance, as a part of it
_SPREAD = 3.0  # over the square root of the rows


class Race:
    """The points that are left, and what they got wrong on the rows of the folds so far.

    `paths` has the parameters of the points of each path, by decreasing strength. With `counts` errors are shares of
    rows that are wrong; without `prune` no points are left out.
    """

    def __init__(self, paths: list[list[Params]], *, counts: bool, prune: bool) -> None:
        self.points = [point for path in paths for point in path]
        self._path = np.repeat(np.arange(len(paths)), [len(path) for path in paths])
        self._counts, self._prune = counts, prune
        self._wrong, self._rows = np.zeros(len(self.points)), np.zeros(len(self.points))
        self.left = list(range(len(self.points)))

    def judge(self, place: int, error: float | None, rows: int) -> None:
        """Enter the error of a point on the rows of a fold; None where the fit has diverged.

        What is clearly worse than the best of its own path is followed by no weaker penalties.
        """
        self._wrong[place] += math.inf if error is None else error * rows
        self._rows[place] += rows
        if not self._prune:
            return
        before = [i for i in self.left if self._path[i] == self._path[place] and i < place]
        if before and self._behind(place, min(before, key=self._wrong.__getitem__)):
            self.left = [i for i in self.left if self._path[i] != self._path[place] or i <= place]

    def fold_ended(self) -> bool:
        """Leave out what is clearly worse than the best; return whether another fold can change the choice."""
        if not self._prune:
            return True
        best = self.best
        self.left = [i for i in self.left if i == best or not self._behind(i, best)]
        error, rows = self._wrong[best] / self._rows[best], self._rows[best]
        fine = self._margin(best, best) / rows <= min(_PRECISION, _PART * error)
        return len(self.left) > 1 and not fine

    @property
    def best(self) -> int:
        """The place of the point with the least error of those left, of equal ones the first."""
        return min(self.left, key=self._wrong.__getitem__)

    def errors(self) -> list[tuple[int, float]]:
        """Return the place of each point that was fitted, and its error on all the rows that it has judged."""
        fitted = np.flatnonzero(self._rows).tolist()
        return [(place, float(self._wrong[place] / self._rows[place])) for place in fitted]

    def _behind(self, place: int, best: int) -> bool:
        """Return whether a point that has judged the same rows is worse by more than chance."""
        return bool(self._wrong[place] - self._wrong[best] > self._margin(place, best))

    def _margin(self, place: int, best: int) -> float:
        if self._counts:  # no more rows than these are right with the one and wrong with the other
            return math.sqrt(self._wrong[place] + self._wrong[best])
        return float(self._wrong[best] * _SPREAD / math.sqrt(self._rows[best]))
