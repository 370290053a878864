"""Truncated Newton with conjugate gradients over row partitions; a round is one read of the rows.

Newton's step solves H p = -g roughly, by preconditioned conjugate gradients each of whose iterations is a read (Nash,
Dembo-Eisenstat-Steihaug 1983; of linear models Lin, Weng, Keerthi 2008), but where a gradient's read has H too, of few
dense columns. Where its end does not lower the objective enough (Armijo), one read has the losses of several shorter
steps, whose best is taken. Sums over rows are all that a read returns, so that passes depend neither on lanes nor
on workers.
With the l1 of an elastic net it works within orthants (`Orthants`), and steps are halved.
As the slopes of the losses are a dual point, the gradient at the weights gives the duality gap at no further read;
with an intercept without a penalty they are balanced first (`Balance`), for one more.

It works on the problem's form with one output for two classes (`distls.dual_problem`).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.dual_problem import DualProblem, balance_of
from distls.execution.executor import Executor
from distls.methods.method import Params
from distls.problem import Problem
from distls.solvers.block_reads import BlockReader
from distls.solvers.solver import Fitted, RoundReport, Solver, State, predictor_of
from distls.solvers.status import Record, Status
from distls.solvers.truncated_newton.newton_state import GRADIENT, PRODUCT, SEARCH, START, NewtonState
from distls.solvers.truncated_newton.orthants import Orthants
from distls.solvers.truncated_newton.preconditioner import ROUNDING, Preconditioner
from distls.solvers.warm_start import check_initial, check_start, covering, is_wide, sgd_for, sgd_pass
from distls.workers.duals.dual_domains import Balance
from distls.workers.rounds.block_stream import DatasetRef
from distls.workers.rounds.lanes import Lane
from distls.workers.rounds.task import Call
from distls.workers.runtime.process import single_threaded_blas
from distls.workers.truncated_newton.newton_task import Kind, NewtonSum, NewtonTask, Points

Array = NDArray[np.float64]

# Of dense rows of so few columns the Hessian's blocks are a better preconditioner than its diagonal.
_MOST_BLOCK_COLUMNS = 256
_ARMIJO, _SHORTEST = 1e-4, 2.0**-20
_SHORTER = 0.5 ** np.arange(1, 8)  # of the last share that was tried: the shares of a search
_FORCING = 0.25  # of the gradient in the preconditioner's metric: where conjugate gradients end
_MOST_PRODUCTS = 60  # of a Newton step
_FAR = 0.03, 1.0  # of the gap, parts of the objective between which it is far from the optimum
_WARY = 0.1  # of the objective: the gap down to which a step has to lead far, and its curvature is that of a secant
_FLAT = 0.02  # curvature in an intercept, at least, of losses that are not saturated


class Newton(Solver[NewtonState]):
    """The solver of `newton`."""

    state_type = NewtonState

    def __init__(self, problem: Problem, params: Params, **given: Any) -> None:
        super().__init__(problem, params, **given)
        check_start(params)
        check_initial(self._initial, problem, params["init"])
        self._form = DualProblem.of(problem)
        self._first = int(problem.fit_intercept)
        n_features, k = problem.shape[0] + self._first, self._form.n_outputs
        self._blocks = problem.dataset.meta.layout == "dense" and n_features <= _MOST_BLOCK_COLUMNS
        self._apart = k == 1 or self._form.form.separable  # outputs, in the Hessian of a row
        self._whole = self._blocks and self._apart
        needs = NewtonTask.needs((n_features, k), blocks=self._blocks)
        self._reader = BlockReader(
            problem,
            lanes=params["lanes"],
            needs=needs,
            # states before and after of six matrices and the curvature, and what a step is made from
            driver_bytes=16 * 8 * n_features * k + 2 * int(needs.result),
            memory=self._memory,
        )
        self.plan, self.lanes = self._reader.plan, self._reader.lanes
        self.data = DatasetRef.of(problem.dataset, self.plan.cache_bytes)  # with its fold
        start = params["start"] or ("sgd" if is_wide(problem) else "zero")
        starts = start == "sgd" and self._initial is None
        self.sgd = sgd_for(problem, params, self._memory) if starts else None
        self.plan = covering(self.plan, self.sgd)

    @cached_property
    def _strength(self) -> Array:
        """The penalty's second derivative in each row of the weights, shape (m, 1)."""
        form, m = self._form, self.problem.shape[0] + self._first
        strength = np.full((m, 1), form.alpha * (1.0 - form.l1))
        if self._first:
            strength[0] = 0.0 if form.free_intercept else form.alpha / form.intercept_square
        return strength

    @cached_property
    def _preconditioner(self) -> Preconditioner:
        return Preconditioner(self._strength, self._blocks)

    @cached_property
    def _orthants(self) -> Orthants:
        l1 = np.full_like(self._strength, self._form.alpha * self._form.l1)
        l1[: self._first] = 0.0
        return Orthants(l1, not self._form.l1)

    def tasks(self, data: DatasetRef, block: int = 0) -> list[Call]:
        """See `Solver.tasks`: a gradient, then a product and the duals' read; these evaluate the fit too."""
        m = (data.one_row or self.problem.shape[0]) + self._first
        zero, lane = np.zeros((m, self._form.n_outputs)), Lane(0, (block,))
        kinds: list[tuple[Kind, Array]] = [("gradient", zero), ("product", np.hstack([zero, zero]))]
        if self._form.free_intercept:
            kinds.append(("dual", zero))
        return [
            Call(replace(self._task(kind), data=data), Points(theta, bool(self._first)), lane) for kind, theta in kinds
        ]

    def _task(self, kind: Kind, balance: Balance | None = None, *, secant: bool = False) -> NewtonTask:
        return NewtonTask(
            data=self.data,
            loss=self.problem.loss,
            n_outputs=self._form.n_outputs,
            class_weight=self.problem.row_weights,
            kind=kind,
            blocks=self._blocks,
            balance=balance,
            secant=secant,
        )

    def _read(
        self, executor: Executor, task: NewtonTask, points: Points, only: Sequence[int] | None = None
    ) -> NewtonSum:
        result: Any = self._reader.reduce(executor, task, points, only=only)
        assert isinstance(result, NewtonSum)
        return result

    def init(self) -> NewtonState:
        """Return zero weights, those of the initial model, or the state before a pass of stochastic gradients."""
        theta = np.zeros((self.problem.shape[0] + self._first, self._form.n_outputs))
        if self._initial is not None:
            theta = self._theta_of(self._initial.weights, self._initial.intercept.astype(np.float64))
        elif self.sgd is not None:
            return NewtonState(stage=START, point=theta, candidate=theta)
        return NewtonState(point=theta, candidate=self._rounded(theta))

    def _theta_of(self, weights: NDArray[Any], intercept: Array) -> Array:
        return np.concatenate([intercept[None]] * self._first + [np.asarray(weights, np.float64)])

    def _rounded(self, theta: Array) -> Array:
        """Return weights as a model stores them: what is proven is proven of the model."""
        return theta.astype(self.problem.dtype).astype(np.float64)

    # -- rounds

    def step(self, state: NewtonState, executor: Executor) -> tuple[NewtonState, RoundReport]:
        """Do one read of the rows, or the pass of stochastic gradients before the first."""
        far = state.stage == PRODUCT and _FAR[0] * abs(state.value) < state.gap < _FAR[1] * abs(state.value)
        # The products of a step far from the optimum are of a quarter of the rows (Byrd, Chin, Neveitt, Nocedal 2011).
        only, read = self._reader.quarter(state.steps) if far else (None, 1.0)
        following = replace(state, round=state.round + 1, passes=state.passes + read)
        if state.stage == START:
            assert self.sgd is not None
            return self._begun(following, self.sgd, executor)
        # A read has either what judges a point or a product, never both: products are needed at accepted points alone.
        kind, points, follow = self._asked(state)
        sums = self._read(executor, self._task(kind, secant=self._is_wary(state)), points, only)
        # divergence is the loop's to report
        with single_threaded_blas(), np.errstate(over="ignore", invalid="ignore"):
            following = self._solved(follow(following, sums))
        return following, self._report(following, sums)

    def _is_wary(self, state: NewtonState) -> bool:
        """Return whether rows predicted wrong get the curvature of a secant: their own makes steps far too long."""
        return self._apart and (not state.steps or state.gap > _WARY * abs(state.value))

    def _asked(self, state: NewtonState) -> tuple[Kind, Points, Callable[..., NewtonState]]:
        """Return what is read, of which points, and what follows from the sums."""
        first = bool(self._first)
        if state.stage == PRODUCT:
            return "product", Points(np.hstack([state.point, state.direction]), first), self._read_product
        if state.stage == SEARCH:
            points = Points(np.hstack([state.point, state.step]), first, np.multiply(state.share, _SHORTER))
            return "search", points, self._searched
        return "gradient", Points(state.candidate, first), self._judged

    def _begun(
        self, following: NewtonState, starter: Solver[State], executor: Executor
    ) -> tuple[NewtonState, RoundReport]:
        """Do a pass of averaged stochastic gradients (Agarwal et al. 2014); its model is tried against zero weights."""
        found, passes, report = sgd_pass(starter, executor)
        theta = self._rounded(self._theta_of(found.coefficients, found.intercept))
        if not np.isfinite(theta).all():
            theta = np.zeros_like(theta)
        return replace(following, stage=GRADIENT, candidate=theta, passes=passes), report

    def _judged(self, state: NewtonState, sums: NewtonSum) -> NewtonState:
        """Take or shorten the step that led to the candidate; a step taken begins the next."""
        theta, n = state.candidate, sums.weight_sum
        value = sums.loss_sum / n + self._penalty(theta)
        smooth = sums.image / n + self._strength * theta
        gradient = self._orthants.subgradient(theta, smooth)
        if not state.steps:
            sound = math.isfinite(value) and bool(np.isfinite(gradient).all())
            if self.sgd is not None and theta.any() and not (sound and value <= self._value_at_zero()):
                return replace(state, candidate=np.zeros_like(theta))  # a pass whose steps were too bold
            if not sound:
                return replace(state, candidate=np.full_like(theta, np.nan))
        elif not value <= state.value + _ARMIJO * state.share * self._slope(state):
            return self._shortened(state)
        state = replace(
            state,
            point=theta,
            value=value,
            gradient=gradient,
            curvature=sums.curvature / n,
            up=sums.up,
            down=sums.down,
            gap=self._gap(theta, smooth),
            steps=state.steps + 1,
            products=0,
        )
        residual = -gradient
        direction = self._preconditioned(state, residual)
        square = float(np.vdot(residual, direction))
        return replace(
            state,
            stage=PRODUCT,
            step=np.zeros_like(theta),
            residual=residual,
            direction=direction,
            square=square,
            first_square=square,
            settled=not square > 0.0,
        )

    def _penalty(self, theta: Array) -> float:
        return 0.5 * float(np.vdot(self._strength * theta, theta)) + self._orthants.value(theta)

    def _slope(self, state: NewtonState) -> float:
        return float(np.vdot(state.gradient, state.step))

    def _shortened(self, state: NewtonState) -> NewtonState:
        share = 0.5 * state.share
        # A step whose whole promise is rounding, or so short, has nothing left to give.
        if share < _SHORTEST or -share * self._slope(state) <= ROUNDING * abs(state.value):
            return replace(state, settled=True)
        if self._orthants.none:
            return replace(state, stage=SEARCH)
        return replace(state, share=share, candidate=self._end(state, share))

    def _searched(self, state: NewtonState, sums: NewtonSum) -> NewtonState:
        """Take the share of the step at which the objective is lowest; where none is low enough shorter ones follow."""
        shares, n = state.share * _SHORTER, sums.weight_sum
        values = sums.along / n + [self._penalty(state.point + share * state.step) for share in shares]
        values[~(values <= state.value + _ARMIJO * shares * self._slope(state))] = np.inf
        best = int(np.argmin(values))
        if values[best] == np.inf:
            return self._shortened(replace(state, share=float(shares[-1])))
        share = float(shares[best])
        return replace(state, stage=GRADIENT, share=share, candidate=self._end(state, share))

    def _value_at_zero(self) -> float:
        """Return the objective of zero weights, where it needs no read: with classes."""
        meta, form = self.problem.dataset.meta, self._form
        if self.problem.target != "class":
            return math.inf
        codes = np.arange(len(meta.classes))
        values = form.form.values(np.zeros((len(codes), form.n_outputs)), codes.astype(np.int32))
        weights = np.asarray(meta.label_weights) * self.problem.class_weight
        return float(weights @ values / weights.sum())

    def _read_product(self, state: NewtonState, sums: NewtonSum) -> NewtonState:
        return self._multiplied(state, sums.image / float(sums.ledger.n_rows))

    def _solved(self, state: NewtonState) -> NewtonState:
        """Make the whole step where the blocks are the Hessian: then its products need no read."""
        while self._whole and state.stage == PRODUCT and not state.settled:
            columns = zip(state.curvature, state.direction.T, strict=True)
            state = self._multiplied(state, np.stack([block @ column for block, column in columns], axis=1))
        return state

    def _multiplied(self, state: NewtonState, product: Array) -> NewtonState:
        """Do an iteration of conjugate gradients, with the product of the losses; the last makes the next candidate."""
        direction = state.direction
        product = self._free(state, product + self._strength * direction)
        bend = float(np.vdot(direction, product))
        if not (math.isfinite(bend) and bend > 0.0):
            return self._stepped(state) if state.products else replace(state, settled=True)
        length = state.square / bend
        # The residual is updated, not recomputed: a step of some tens of products does not lose digits that matter.
        residual = state.residual - length * product
        moved = self._preconditioned(state, residual)
        square = float(np.vdot(residual, moved))
        following = replace(
            state,
            step=state.step + length * direction,
            residual=residual,
            square=square,
            direction=moved + (square / state.square) * direction,
            products=state.products + 1,
        )
        # Far from the optimum an exact step would be wasted: the quadratic model holds only near the point.
        near = square <= _FORCING**2 * state.first_square
        return self._stepped(following) if near or following.products >= _MOST_PRODUCTS else following

    def _stepped(self, state: NewtonState) -> NewtonState:
        scale = self._preconditioner.scale(state.curvature)
        state = replace(state, step=self._orthants.within(state.point, state.gradient, state.step, scale))
        candidate = self._end(state, 1.0)
        # A step below the rounding of the weights would be taken again and again.
        settled = np.array_equal(candidate, state.point)
        # like the last one it is too long, more likely than not
        if state.share < 1.0 and self._orthants.none:
            return replace(state, stage=SEARCH, share=2.0, settled=settled)
        return replace(state, stage=GRADIENT, share=1.0, candidate=candidate, settled=settled)

    def _end(self, state: NewtonState, share: float) -> Array:
        return self._rounded(self._orthants.moved(state.point, share * state.step))

    def _free(self, state: NewtonState, moves: Array) -> Array:
        return self._orthants.free(state.point, state.gradient, moves)

    def _preconditioned(self, state: NewtonState, residual: Array) -> Array:
        return self._free(state, self._preconditioner.solve(state.curvature, residual))

    # -- what is known of the optimum

    def _gap(self, theta: Array, gradient: Array) -> float:
        """Return the duality gap of the point, of l2 |gradient|^2 / (2 alpha); with a free intercept an estimate."""
        own, form = gradient[self._first :], self._form
        gap = float(np.vdot(own, own)) / (2.0 * form.alpha)
        if form.l1:  # what Fenchel's inequality leaves between the weights w and the image u, in two parts
            w = theta[self._first :]
            u = (1.0 - form.l1) * w - own / form.alpha
            apart, kept = w - form.shrunk(u), np.clip(u, -form.l1, form.l1)
            gap = 0.5 * (1.0 - form.l1) * float(np.vdot(apart, apart))
            gap = form.alpha * (gap + float((form.l1 * np.abs(w) - kept * w).sum()))
        if self._first:
            tilt = float(np.vdot(gradient[0], gradient[0]))
            gap += tilt / _FLAT if form.free_intercept else tilt / (2.0 * float(self._strength[0, 0]))
        return gap

    def _report(self, following: NewtonState, sums: NewtonSum) -> RoundReport:
        n = float(self.problem.dataset.meta.n_rows)
        judged = len(sums.curvature) > 0
        loss = sums.loss_sum if judged else (following.value - self._penalty(following.point)) * n
        rows = float(sums.ledger.n_rows)
        report = RoundReport.of(
            sums.ledger,
            loss * rows / n,
            sums.errors if judged and self.problem.target != "continuous" else None,
            details={name: getattr(following, name) for name in ("stage", "steps", "products", "share")},
        )
        if following.steps:
            report.gap_estimate = following.gap
            report.objective_estimate = following.value
        return report

    def status(self, state: NewtonState) -> Status:
        """Return CONVERGED where no step lowers the objective any more."""
        if not np.isfinite(state.candidate).all():
            return Status.DIVERGED
        return Status.CONVERGED if state.settled else Status.RUNNING

    def weights(self, state: NewtonState) -> Fitted:
        """Return the point of the lowest objective, which its reads have proven something about."""
        predictor = predictor_of(state.point if state.steps else state.candidate, self.problem)
        if not state.steps:
            return Fitted(predictor)
        if self._form.free_intercept:
            return Fitted(predictor, known=partial(self._balanced, state))
        return Fitted(predictor, known=self._known(state, state.gap, 0))

    def _known(self, state: NewtonState, gap: float, read: int) -> Record:
        value = state.value
        # Sums of many rows round by more than one number does.
        rounding = max(float(np.finfo(self.problem.dtype).eps), ROUNDING) * abs(value)
        return {
            "objective": value,
            "certificate": {"kind": "duality_gap", "value": max(gap, 0.0) + rounding},
            "eval_bytes_read": read,
        }

    def _balanced(self, state: NewtonState, executor: Executor) -> Record:
        """Return objective and gap at the balanced slopes of the point, from one more read."""
        form, n = self._form, float(self.problem.dataset.meta.n_rows)
        balance = balance_of(self.problem, form.form.dual_domain, state.up, state.down)
        sums = self._read(executor, self._task("dual", balance), Points(state.point, bool(self._first)))
        u, none = sums.image[self._first :] / (form.alpha * n), np.zeros(form.n_outputs)
        gap = state.value - form.dual(sums.conjugate_sum / n, u, none, none)
        return self._known(state, gap, sums.ledger.bytes_read)
