"""The metric of generalized least squares: L Sigma + alpha P factorised once, and solves in it.

Sigma is the mean of ``z z^T`` over rows z, the constant column in front where there is an intercept; P has ones on
its diagonal but for that column. Everything happens in coordinates ``q = B^-T z``, in which Sigma is as near to the
identity as one read of the data makes it: B is first the scale of each column, and, where that leaves the matrix
too ill-conditioned for its Cholesky factor to mean anything, the shifted Cholesky factor whose inverse the rows are
multiplied with in another read.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from distls.workers.linear_algebra.packed_triangle import unpacked
from distls.workers.linear_algebra.shifted_solve import Shifted

Array = NDArray[np.float64]

_EPS = float(np.finfo(np.float64).eps)
# Directions below this many roundings of the largest eigenvalue are noise.
_NOISE = 10.0


def second_moments(gram: Array, sums: Array, weight_sum: float, *, intercept: bool) -> Array:
    """Return Sigma, both triangles, shape (d + intercept,) * 2, with the constant column in front.

    `gram` is ``sum_i s_i x_i x_i^T``, packed (`distls.workers.linear_algebra.packed_triangle`), and `sums`, shape (d,),
    ``sum_i s_i x_i``.
    """
    first = int(intercept)
    # Both triangles, because LAPACK routines differ in which one they read.
    sigma = np.empty((len(sums) + first, len(sums) + first))
    unpacked(gram, sigma[first:, first:])
    if intercept:
        sigma[0, 0] = weight_sum
        sigma[0, 1:] = sigma[1:, 0] = sums
    sigma /= weight_sum
    return sigma


@dataclass(frozen=True)
class _Factor:
    """Solves with one matrix: by its Cholesky factor, or by the eigenvectors that are kept."""

    triangle: Array
    inverse_roots: Array | None
    left_out: int

    def solve(self, right: Array) -> Array:
        """Return ``A^-1 @ right``; in the span of the kept eigenvectors where some are left out."""
        if self.inverse_roots is None:
            # `check_finite` is off: divergence is the loop's to report, and the check reads the matrix once more.
            return np.asarray(linalg.cho_solve((self.triangle, True), right, check_finite=False))
        half = self.inverse_roots[:, None] * (self.triangle.T @ right)
        return np.asarray(self.triangle @ (self.inverse_roots[:, None] * half))


class Metric:
    """L Sigma + alpha P for any L, which alpha does not penalise in the constant column.

    Sigma = B^T gram B, with the basis B upper triangular, or diagonal and given by its diagonal. Rows and columns of
    the Gram matrix for features that are zero everywhere are zero. `eps` is its relative rounding error, and
    `condition` the reciprocal condition number of gram + alpha B^-T P B^-1, estimated in the 1-norm; 0 without a
    Cholesky factor.
    """

    def __init__(self, basis: Array, gram: Array, alpha: float, *, intercept: bool, eps: float = _EPS) -> None:
        self.basis, self.gram, self.eps = basis, gram, eps
        self._alpha, self._intercept = alpha, intercept
        # Features that no row has: their rows and columns are zero, and would make the matrix singular.
        self._zero = np.diag(gram) == 0.0
        self._factors: dict[float, _Factor] = {}
        self._penalty = self._penalty_in_basis() if alpha else None
        self._least = self._least_penalty()
        self.condition, factor = self._try_cholesky()
        if self._is_definite:
            self._factors[1.0] = factor  # the first solve is most often this one

    @classmethod
    def scaled(cls, sigma: Array, alpha: float, *, intercept: bool, eps: float = _EPS) -> Metric:
        """Return the metric of Sigma in coordinates of unit mean square; reuses the memory of `sigma`."""
        square = np.diag(sigma).copy()
        square[int(intercept) :] += alpha
        # A coordinate of all zeros keeps its scale, and is left alone.
        scale = np.where(square > 0.0, np.sqrt(square), 1.0)
        # In place: Sigma is the largest matrix of the driver.
        sigma /= scale
        sigma /= scale[:, None]
        return cls(scale, sigma, alpha, intercept=intercept, eps=eps)

    @property
    def size(self) -> int:
        """Coordinates, the constant column among them."""
        return len(self.gram)

    @property
    def rank(self) -> int:
        """Coordinates in which steps are taken."""
        if self._alpha and self._is_definite:
            return self.size
        # features that are zero everywhere, and null directions of Sigma that no alpha regularises
        zero = 0 if self._alpha else int(self._zero.sum())
        return self.size - zero - self._factor(1.0).left_out

    @property
    def is_sound(self) -> bool:
        """Whether solves keep half of the digits that the Gram matrix has."""
        # the ridge alone may bound the condition number in the 2-norm: the 1-norm is up to m times as strict
        penalty = 0.0 if self._penalty is None else float(self._penalty.sum())
        ridge = self._least / (float(np.trace(self.gram)) + penalty) if self.condition else 0.0
        return max(self.condition, ridge) >= np.sqrt(self.eps)

    @property
    def _is_definite(self) -> bool:
        """Whether no direction is noise, so that the Cholesky factor is accurate and no eigenvectors are needed."""
        # rounding of the Gram matrix may create directions at alpha = 0, but not below a ridge larger than itself
        rounding = self.size * _EPS if self._least > _NOISE * self.eps else max(self.size * _EPS, self.eps)
        return self.condition > _NOISE * rounding

    def next_basis(self) -> Array:
        """Return the factor of shifted Cholesky QR of this metric, upper triangular, shape (m, m).

        See Fukaya, Kannan, Nakatsukasa, Yamamoto, Yanagisawa 2020, SIAM J. Sci. Comput. 42: up to cond(X) = 1e11 the
        rows times its inverse have a Gram matrix whose Cholesky factor is good to half of all digits, so that steps do
        not depend on the basis in which the features are given.
        """
        # A shift of the order of rounding, with which the factorisation succeeds in spite of it.
        shift = _NOISE * self.size * self.eps
        matrix = self._matrix(1.0)
        while True:
            shifted = matrix + np.diag(np.full(self.size, shift))
            factor, info = _cholesky(shifted)
            # Not yet definite: the shift was below the rounding errors of the factorisation.
            if not info:
                triangle = np.ascontiguousarray(factor.T)
                return triangle * self.basis if self.basis.ndim == 1 else triangle @ self.basis
            shift *= 100.0

    def steps(self, gradients: Array, lipschitz: float) -> Array:
        """Return ``(L Sigma + alpha P)^-1 @ gradients`` for gradients of shape (m, any), constant column first."""
        inner = self._factor(lipschitz).solve(_solve(self.basis, gradients, transposed=True))
        if not self._alpha:
            inner /= lipschitz
            inner[self._zero] = 0.0
        return _solve(self.basis, inner)

    def _factor(self, lipschitz: float) -> _Factor:
        """Return the factor at L, the last one used again; at alpha = 0 one serves every L."""
        # At alpha = 0 the factor of Sigma serves every L, which only scales the step.
        key = lipschitz if self._alpha else 1.0
        if key not in self._factors:
            self._factors = {key: self._factorise(self._matrix(key))}
        return self._factors[key]

    def _matrix(self, lipschitz: float) -> Array:
        matrix = lipschitz * self.gram
        if self._penalty is None:
            # A unit pivot keeps the factorisation alive; the step of such features is set to zero afterwards.
            matrix[self._zero, self._zero] = 1.0
        elif self._penalty.ndim == 1:
            matrix.flat[:: self.size + 1] += self._penalty
        else:
            matrix += self._penalty
        return matrix

    def _penalty_in_basis(self) -> Array:
        """Return alpha B^-T P B^-1, or only its diagonal if B is diagonal."""
        penalised = np.ones(self.size)
        penalised[: int(self._intercept)] = 0.0
        if self.basis.ndim == 1:
            return np.asarray(self._alpha * penalised / np.square(self.basis))
        half = penalised[:, None] * linalg.solve_triangular(self.basis, np.eye(self.size), check_finite=False)
        return np.asarray(self._alpha * (half.T @ half))

    def _try_cholesky(self) -> tuple[float, _Factor]:
        """Return the reciprocal condition number at L = 1, and the factor that it was found with."""
        matrix = self._matrix(1.0)
        # dlange is given the transpose, since LAPACK reads columns; the matrix is symmetric.
        norm = float(linalg.lapack.dlange("1", matrix.T))
        triangle, info = _cholesky(matrix)
        estimate = 0.0 if info else linalg.lapack.dpocon(triangle, norm, uplo="L")[0]
        return float(estimate), _Factor(triangle, None, 0)

    def _least_penalty(self) -> float:
        """Return the smallest penalty of a penalised coordinate; 0 if P is not diagonal here."""
        if self._penalty is None or self._penalty.ndim > 1:
            return 0.0
        return float(self._penalty[int(self._intercept) :].min(initial=np.inf))

    def _factorise(self, matrix: Array) -> _Factor:
        if self._is_definite:
            factor, info = _cholesky(matrix)
            if not info:
                return _Factor(factor, None, 0)
        values, vectors = linalg.eigh(matrix, check_finite=False)
        # Directions of noise are left out of the step, which amounts to the minimum-norm solution.
        kept = values > _NOISE * max(self.size * _EPS, self.eps) * values[-1]
        return _Factor(np.ascontiguousarray(vectors[:, kept]), 1.0 / np.sqrt(values[kept]), int(np.sum(~kept)))


class PathMetric:
    """L Sigma + alpha P for any L and alpha, of several fits at once.

    `sigma` is from `second_moments`, `eps` the relative rounding error of its elements. An alpha below that is replaced
    by a larger one, in the metric only, which shortens steps in directions in which the rows hardly vary.
    """

    def __init__(self, sigma: Array, *, intercept: bool, eps: float) -> None:
        # Eliminating the constant column leaves the covariance, which has no large common part to cancel.
        self._first = int(intercept)
        self._mean = sigma[:1, self._first :][: self._first]
        covariance = sigma[self._first :, self._first :] - self._mean.T @ self._mean
        self._shifted = Shifted(covariance, eps)

    def steps(self, gradients: Array, lipschitz: Array, alphas: Array) -> Array:
        """Return ``(L Sigma + alpha P)^-1 @ gradient`` of r fits; gradients (m, r, k), L and alpha (r,)."""
        m, r, k = gradients.shape
        first = gradients[: self._first]
        # the constant column is eliminated: what remains is L times the covariances, and alpha
        centred = gradients[self._first :] - np.tensordot(self._mean.T, first, 1)
        inner = self._shifted.inside(centred.reshape(m - self._first, r * k)).reshape(centred.shape)
        shifts = alphas / lipschitz
        for shift in np.unique(shifts):
            own = shifts == shift
            columns = inner[:, own]
            solved = self._shifted.solve_inside(columns.reshape(len(inner), -1), float(shift))
            inner[:, own] = solved.reshape(columns.shape)
        rest = self._shifted.outside(inner.reshape(len(inner), r * k)).reshape(inner.shape)
        scaled = np.concatenate([first - np.tensordot(self._mean, rest, 1), rest])
        return np.asarray(scaled / lipschitz[:, None])


def _cholesky(matrix: Array) -> tuple[Array, int]:
    """Return the lower triangle of a factor, and 0 where there is one; the matrix's memory is used again."""
    # The transposed view of a C-ordered symmetric matrix is Fortran-ordered, so LAPACK works in place.
    factor, info = linalg.lapack.dpotrf(matrix.T, lower=1, clean=1, overwrite_a=1)
    return factor, int(info)


def _solve(basis: Array, right: Array, *, transposed: bool = False) -> Array:
    """Return ``B^-1 @ right``, or ``B^-T @ right``."""
    if basis.ndim == 1:
        return right / basis[:, None]
    trans = "T" if transposed else "N"
    return np.asarray(linalg.solve_triangular(basis, right, trans=trans, check_finite=False))
