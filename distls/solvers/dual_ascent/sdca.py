"""Stochastic dual coordinate ascent over lanes (Shalev-Shwartz, Zhang 2013): problems with l2, with a duality gap.

A lane maximises the dual over the duals of its rows, one row after the other, and the lanes' changes are added
(CoCoA+, Ma et al. 2015). Partitions go to other lanes in every pass, and lanes are added several times a pass. How much
a lane holds back for the others, their `sigma_prime`, follows what was observed in the last pass: the largest ratio of
the squared norm of the sum of the lanes' changes to the sum of their squared norms. The dual never falls: a sum that
would lower it is taken in part.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.dual_problem import DualProblem
from distls.execution.executor import Executor
from distls.execution.memory_budget import MIB, MemoryBudget
from distls.execution.row_reads import lanes_of
from distls.memory_plan import Footprint, Plan, make_plan
from distls.methods.method import Params
from distls.problem import Problem
from distls.solvers.block_reads import lane_count
from distls.solvers.dual_ascent.sdca_state import DualStarter, KeptDuals, SdcaState, lost_duals
from distls.solvers.solver import Fitted, RoundReport, Solver, State
from distls.solvers.status import Status
from distls.solvers.warm_start import check_initial, check_start, covering, is_wide, sgd_for, sgd_pass
from distls.storage.errors import DistlsError, StateLostError
from distls.workers.dual_ascent.ascent_kernels import AscentSettings, Totals
from distls.workers.dual_ascent.ascent_task import (
    AscentResult,
    AscentTask,
    PrimalImage,
    rows_of_runs,
    runs_of,
    square_sum,
)
from distls.workers.duals.stored_duals import DualPoint
from distls.workers.evaluation.dual_task import DualStart, DualTask
from distls.workers.prediction.predictor import LinearPredictor
from distls.workers.rounds.block_stream import DatasetRef
from distls.workers.rounds.lanes import Lane, deal
from distls.workers.rounds.task import Call
from distls.workers.runtime.rng import Purpose, rng

_T = Totals()
# More lanes need more passes, so few lanes are the best choice on few cores (docs/decisions/0021). With a partition for
# each lane, no rows of two partitions would ever meet in a lane: many times the passes, so there is one lane fewer.
_DEFAULT_LANES = 2
# Lanes of which a pass of `sgd` saves more passes than it costs, with the read that makes duals of its slopes; those of
# a kink are few, and far from what they become (docs/decisions/0044).
_MANY_LANES = 32
_DEFAULT_ROUNDS = 2  # a pass, of several lanes
# Decoded MiB that one of many lanes visits between additions: additions undo what lanes cost (docs/decisions/0044), and
# one, of some hundredths of a second, stays the smaller part of a round.
_ROUND_MIB = 48
# Decoded MiB of a lane's partitions: all at once up to this, which workers of 600 MiB can hold, else groups of so many.
_WHOLE_MIB, _GROUP_MIB = 192, 128
# Of losses with a kink: few rows have duals inside their domain, and these are all that still moves.
_ACTIVE_SWEEPS = 3
FIRST_RATIO = 0.8  # of the lanes: what is expected of the first pass
SAFETY = 0.9  # times the largest ratio of the last pass is what lanes hold back
# How much the dual may fall by rounding, relative to the objective at zero weights.
_ROUNDING = {"float64": 1e-10, "float32": 1e-5}
# Weight-sized arrays: the driver's state before and after, its weights and the sum.
_DRIVER_ARRAYS = 5


class Sdca(Solver[SdcaState]):
    """The solver of `sdca`."""

    state_type = SdcaState

    def __init__(self, problem: Problem, params: Params, **given: Any) -> None:
        super().__init__(problem, params, **given)
        check_start(params)
        check_initial(self._initial, problem, params["init"])
        self._form = DualProblem.of(problem)
        dataset = problem.dataset
        own = lanes_of(problem.parallelism, len(dataset) - 1, _DEFAULT_LANES)
        n_lanes = lane_count(params["lanes"] or own, len(dataset), problem.parallelism)
        self.lanes = deal(dataset.decoded_bytes, n_lanes)
        many = n_lanes >= _MANY_LANES and is_wide(problem) and self._form.form.smooth
        starts = self._initial is None and (params["start"] or ("sgd" if many else "zero")) == "sgd"
        self.sgd = sgd_for(problem, params, self._memory) if starts else None
        self._groups = self._group_count()
        asked = params["rounds"] or (self._default_rounds() if n_lanes > 1 else 1)
        # of each partition's rows: no more than the largest partition of any group has
        fewest = int(np.sort(dataset.table.rows)[len(dataset) // self._groups - 1])
        self._slices = max(1, min(-(-asked // self._groups), fewest))
        self._rounds = self._groups * self._slices
        asked = params["active_sweeps"]
        self._active_sweeps = (0 if self._form.form.smooth else _ACTIVE_SWEEPS) if asked is None else asked
        self.plan = covering(self._plan(self._memory), self.sgd)
        self.data = DatasetRef.of(dataset, self.plan.cache_bytes)
        self._kept = KeptDuals(self._folder)

    def _held(self) -> float:
        """Return the decoded bytes of a lane."""
        return int(self.problem.dataset.decoded_bytes.sum()) / len(self.lanes)

    def _default_rounds(self) -> int:
        """Return how often a pass adds up the changes: more often if many lanes are meant, and hold much."""
        wanted = min(self.problem.parallelism, int(self._held() / (_ROUND_MIB * MIB)))
        return max(_DEFAULT_ROUNDS, wanted)

    def _group_count(self) -> int:
        """Return into how many groups a pass divides the partitions: lanes hold those of a group all at once."""
        n_lanes, sizes, held = len(self.lanes), self.problem.dataset.decoded_bytes, self._held()
        most = self.params["group_mib"] or (_GROUP_MIB if held > _WHOLE_MIB * MIB else _WHOLE_MIB)
        wanted = math.ceil(held / (most * MIB))
        return max(1, min(wanted, len(sizes) // n_lanes))

    def _plan(self, memory: MemoryBudget) -> Plan:
        meta, sizes, k = self.problem.dataset.meta, self.problem.dataset.decoded_bytes, self._form.n_outputs
        itemsize, shrinks = self.problem.dtype.itemsize, self._form.l1 > 0.0
        most = -(-len(sizes) // (len(self.lanes) * self._groups))  # partitions that a lane holds
        rows = int(np.sort(self.problem.dataset.table.rows)[-most:].sum())
        # duals as read, mixed and packed; the targets of label sets as numbers
        row_bytes = 3 * k * itemsize + (8 * k if meta.target == "multilabel" else 0)
        needs = AscentTask.needs((self.problem.shape[0], k), self.problem.dtype, shrinks=shrinks)
        return make_plan(
            self.problem.dataset,
            Footprint(
                needs,
                _DRIVER_ARRAYS * needs.shared,
                lane_bytes=int(np.sort(sizes)[-most:].sum()) + rows * row_bytes,
                exchanged=(needs.shared, self.problem.shape[0] * k * itemsize),
                stored_row_bytes=2 * k * itemsize,
            ),
            lanes=len(self.lanes),
            rounds_per_pass=self._rounds,
            budget=memory,
        )

    def tasks(self, data: DatasetRef, block: int = 0) -> list[Call]:
        """See `Solver.tasks`; duals are zero, and new ones are not stored."""
        k, lane, state = self._form.n_outputs, Lane(0, (block,)), self.init()
        u = np.zeros((data.one_row or self.problem.shape[0], k), self.problem.dtype)
        task = replace(self._task(state, 1), data=data, version=0, part=0, parts=1)
        image = PrimalImage(u, u if self._form.l1 > 0.0 else u[:0], np.zeros(k))
        dual = DualTask(data, self.problem.row_weights, self.point(state))
        judged = DualStart(judged=LinearPredictor(u, np.zeros(k)))
        return [Call(task, image, lane), Call(dual, judged, lane)]

    def init(self) -> SdcaState:
        """Return the state in which all duals are zero."""
        n_features, k, n = self.problem.shape[0], self._form.n_outputs, len(self.problem.dataset)
        return SdcaState(
            u=np.zeros((n_features, k), self.problem.dtype),
            center=np.zeros(k),
            up=np.zeros(k),
            down=np.zeros(k),
            versions=np.zeros(n, np.int64),
            before=np.zeros(n, np.int64),
            mix=np.ones(n),
            ratios=np.full(self._rounds, FIRST_RATIO * len(self.lanes)),
            gaps=np.full(self._rounds, math.inf),
        )

    def step(self, state: SdcaState, executor: Executor) -> tuple[SdcaState, RoundReport]:
        """Do one round, or the pass of `sgd` before the first; where duals have been lost, make them anew first."""
        self._kept.sweep(state)
        if self.sgd is not None and not state.round:
            return self._begun(state, self.sgd, executor)
        if self._initial is not None and not state.round:
            state = self._starter(executor).started(state, self._initial, self.params["init"])
        try:
            result = self._ascend(state, executor)
        except StateLostError:
            # Gradients at the current weights are feasible duals near those lost; their dual is compared anew.
            state = self._starter(executor).renewed(state, self.weights(state).predictor)
            result = self._ascend(state, executor)
        following, share = self._advanced(state, result)
        return following, self._report(result, following, share)

    def _begun(self, state: SdcaState, sgd: Solver[State], executor: Executor) -> tuple[SdcaState, RoundReport]:
        """Do a pass of `sgd`; the slopes at its weights are the duals to start from, by one more read."""
        found, passes, report = sgd_pass(sgd, executor)
        if np.isfinite(found.coefficients).all() and np.isfinite(found.intercept).all():
            starter = self._starter(executor)
            state, passes = starter.started_at(state, found), passes + 1.0
            report = report.with_costs(starter.ledger)
        return replace(state, round=1, passes=passes), report

    def _pass(self, state: SdcaState) -> int:
        """Return the number of the pass that the next round belongs to."""
        return max(state.round - (self.sgd is not None), 0) // self._rounds

    def _starter(self, executor: Executor) -> DualStarter:
        return DualStarter(self.problem, self._form, self.data, self.point, executor)

    def near(self, predictor: LinearPredictor, executor: Executor) -> SdcaState:
        """Return the state at duals made from the gradients at given weights, in one read."""
        return self._starter(executor).started_at(self.init(), predictor)

    def point(self, state: SdcaState) -> DualPoint:
        """Return the dual point of a state."""
        return DualPoint(
            folder=self._folder or "",
            loss=self.problem.loss,
            n_outputs=self._form.n_outputs,
            dtype=self.problem.dtype.name,
            versions=state.versions,
            before=state.before,
            mix=state.mix,
            up=state.up,
            down=state.down,
        )

    def _intercept(self, state: SdcaState) -> NDArray[np.float64]:
        return state.center + self._form.intercept_square * self._mean_duals(state)

    def _mean_duals(self, state: SdcaState) -> NDArray[np.float64]:
        """Return t: the sum of the weighted duals over alpha n."""
        return (state.up - state.down) / (self._form.alpha * self.problem.dataset.meta.n_rows)

    def _lanes_of(self, state: SdcaState) -> list[Lane]:
        """Return the partitions of each lane in the round after `state`."""
        n, group = len(self.problem.dataset), state.part // self._slices
        order = np.arange(n)
        if self.params["shuffle"]:
            # Drawn from the seed and the number of the pass, not from a running generator: a resumed fit
            # deals the same lanes.
            rng(self.problem.seed, Purpose.ORDER, self._pass(state)).shuffle(order)
        chosen = order[n * group // self._groups : n * (group + 1) // self._groups]
        # Dealt one by one after shuffling, so that rows of every two partitions meet in some lane in some pass.
        dealt = [chosen[lane :: len(self.lanes)] for lane in range(len(self.lanes))]
        return [Lane(i, tuple(blocks.tolist())) for i, blocks in enumerate(dealt) if len(blocks)]

    def _task(self, state: SdcaState, live: int) -> AscentTask:
        form = self._form
        # by how much lanes magnify their own changes
        sigma_prime = float(np.clip(SAFETY * state.ratios.max(), 1.0, live))
        # two numbers that say which rows share a part of the pass
        mixing = rng(self.problem.seed, Purpose.ROWS, self._pass(state)).integers(2**30, size=2)
        step = sigma_prime / (form.alpha * self.problem.dataset.meta.n_rows)
        return AscentTask(
            data=self.data,
            settings=AscentSettings(step, form.l1, form.intercept_square, form.form),
            sigma_prime=sigma_prime,
            class_weight=self.problem.row_weights,
            duals=self.point(state),
            shuffle=self.params["shuffle"],
            seed=self.problem.seed,
            mixing=(int(mixing[0]), int(mixing[1])),
            round=state.round,
            # New names for new duals: a task that is run twice never overwrites what a checkpoint needs.
            version=3 * state.round + 3,  # the two before it: duals recomputed, and those that were mixed
            part=state.part % self._slices,
            parts=self._slices,
            active_sweeps=self._active_sweeps,
        )

    def _ascend(self, state: SdcaState, executor: Executor) -> AscentResult:
        lanes = self._lanes_of(state)
        task, shrinks = self._task(state, len(lanes)), self._form.l1 > 0.0
        u = state.u if shrinks else state.u[:0]
        image = PrimalImage(self._form.shrunk(state.u), u, self._intercept(state))
        result: AscentResult = executor.reduce(task, lanes, merge=task.merge, shared=image)
        blocks = [block for lane in lanes for block in lane.blocks]
        counts = self.problem.dataset.table.rows
        # The number of rows is recomputed here: a lane that skipped a run would go unnoticed.
        visited = sum(len(rows_of_runs(runs_of(int(counts[p]), task, p), int(counts[p]), task.parts)) for p in blocks)
        result.ledger.check_cover(blocks, visited)
        return result

    def _advanced(self, state: SdcaState, result: AscentResult) -> tuple[SdcaState, float]:
        """Return the state after a round, and which share of the lanes' changes it took."""
        n, blocks = self.problem.dataset.meta.n_rows, np.array(sorted(result.ledger.blocks))
        change = (result.totals[_T.after] - result.totals[_T.before]) / n
        old, share = self._dual(state), 1.0
        while True:  # adding 1/K of the lanes' changes cannot lower the dual, which is concave
            following = replace(
                state,
                u=state.u + (result.change if share == 1.0 else state.u.dtype.type(share) * result.change),
                up=state.up + share * result.up,
                down=state.down + share * result.down,
                conjugate=state.conjugate + share * change,
            )
            dual = self._dual(following)
            if not dual < old - 1e-2 * self._slack(old) or share * len(self.lanes) <= 1.0:
                break
            share *= 0.5
        self._check_ascent(state.round, old, dual)
        following.versions, following.before, following.mix = (
            state.versions.copy(),
            state.before.copy(),
            state.mix.copy(),
            # The arrays of the state before stay as they are, for the checkpoints that refer to them.
        )
        # lanes have stored as one what they found mixed
        following.before[blocks] = np.where(state.mix[blocks] == 1.0, state.versions[blocks], 3 * state.round + 2)
        following.versions[blocks] = 3 * state.round + 3
        following.mix[blocks] = share
        return self._counted(following, result, dual, share), share

    def _counted(self, following: SdcaState, result: AscentResult, dual: float, share: float) -> SdcaState:
        """Enter what a round has observed, and where the pass stands."""
        several = len(self.lanes) > 1 and result.square > 0.0
        ratio = square_sum(result.change) / result.square if several else 1.0
        part = following.part
        following.ratios, following.gaps = following.ratios.copy(), following.gaps.copy()
        # A share below 1 says that the lanes overshot: the next pass holds back as much as the theory asks for.
        following.ratios[part] = ratio if share == 1.0 else len(self.lanes)
        following.gaps[part] = result.totals[_T.gap]
        following.round += 1
        following.part = (part + 1) % self._rounds
        following.dual = dual if math.isfinite(dual) else None
        rows = result.ledger.n_rows / self.problem.dataset.meta.n_rows
        following.passes += rows
        if following.part == 0:
            # Fractions of rows add up with rounding, and a limit of whole passes must be met exactly.
            following.passes = float(round(following.passes))  # whole passes are whole numbers
            # The sum of the row gaps over a pass is an estimate: rows were visited at different weights.
            total, last = float(following.gaps.sum()), following.last_gap
            following.decline = min(1.0, total / last) if last and math.isfinite(total) else 1.0
            following.last_gap = total if math.isfinite(total) else None
            if self._form.free_intercept:
                # The centre of the penalised intercept has moved, so old and new dual values are of different
                # problems.
                following.center, following.dual = self._intercept(following), None
        return following

    def _dual(self, state: SdcaState) -> float:
        return self._form.dual(state.conjugate, state.u, self._mean_duals(state), state.center)

    def _slack(self, dual: float) -> float:
        """Return by how much the dual may fall by rounding."""
        return _ROUNDING[self.problem.dtype.name] * max(abs(dual), 1.0)

    def _check_ascent(self, number: int, before: float, after: float) -> None:
        """Raise DistlsError if the dual has fallen, which its concavity rules out."""
        if after < before - self._slack(before):
            raise DistlsError(
                f"round {number + 1}: the dual fell from {before:.12g} to {after:.12g}; this is an error in distls, "
                "please report it"
            )

    def _report(self, result: AscentResult, following: SdcaState, share: float) -> RoundReport:
        totals = result.totals
        errors = None if self.problem.target != "class" else int(totals[_T.errors])
        report = RoundReport.of(
            result.ledger,
            float(totals[_T.loss]),
            errors,
            details={
                "dual": following.dual,
                "ratio": float(following.ratios[following.part - 1]),
                "share": share,
                "rows_moved": int(totals[_T.moved]),
            },
        )
        gap = float(following.gaps.sum()) / self.problem.dataset.meta.n_rows
        report.gap_estimate = gap
        # The decline from pass to pass extrapolates the gap to the end of the pass that follows.
        report.gap_expected = report.gap_estimate * following.decline
        dual = self._dual(following) if following.dual is None else following.dual
        report.objective_estimate = dual + gap
        if following.renewed:
            report.notes = [f"the duals of {following.renewed} partitions were lost and recomputed from the weights"]
        return report

    def status(self, state: SdcaState) -> Status:
        """Return DIVERGED once weights are not finite."""
        # a dual is finite only where the squared norm of U is
        finite = np.isfinite(state.up).all() and (state.dual is not None or np.isfinite(state.u).all())
        return Status.RUNNING if finite else Status.DIVERGED

    def weights(self, state: SdcaState) -> Fitted:
        """Return the weights of the dual point, which proves how good they are."""
        predictor = LinearPredictor(self._form.shrunk(state.u), self._intercept(state))
        return Fitted(predictor, duals=self.point(state) if state.versions.any() else None)

    def saved(self, state: SdcaState) -> None:
        """Keep the duals of a checkpoint."""
        self._kept.pin(state)

    def holds(self, state: SdcaState) -> bool:
        """See `Solver.holds`: recomputed duals are others."""
        return not lost_duals(self.point(state), self.problem.dataset.table.rows)
