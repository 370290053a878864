"""One-versus-rest by blocks of classes: each block is trained to its end by one worker, and stored at once.

Each class is trained by SDCA (Shalev-Shwartz and Zhang 2013).
"""

import contextlib
import itertools
import re
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from distls.execution.executor import Executor
from distls.execution.memory_budget import MIB, MemoryBudget
from distls.memory_plan import SLACK, Footprint, Plan, make_plan
from distls.methods.method import Params
from distls.problem import Problem
from distls.solvers.solver import Fitted, RoundReport, Solver, State
from distls.solvers.status import Status
from distls.storage.errors import CorruptDataError, FormatError
from distls.storage.filesystem.atomic import remove_tree, subfolders
from distls.storage.filesystem.paths import place_of
from distls.storage.model.bundle import read_arrays
from distls.storage.model.sparse_blocks import BlockPlace, ClassBlocks
from distls.workers.dual_ascent.class_kernels import ClassSettings
from distls.workers.dual_ascent.class_task import (
    SUMS,
    BlockResult,
    ClassTask,
    block_kind,
    block_name,
    trained,
    visit_block,
)
from distls.workers.losses.loss_registry import loss_named
from distls.workers.prediction.predictor import LinearPredictor
from distls.workers.rounds.block_stream import DatasetRef
from distls.workers.rounds.ledger import Ledger
from distls.workers.rounds.task import Call, Needs

_WIDTH = 16  # classes: the arrays of a block are as wide as a multiple of it
_LARGEST = 128  # classes of a block by default: more are no faster
_WORTH_IT = 64  # classes that a block should have before memory is left for decoded partitions
_ROUNDS = 32  # of a fit, about: after each of them the run says how far it is
_NAME = re.compile(r"classes-(\d{8})-(\d{8})")
_S = {name: place for place, name in enumerate(SUMS)}


@dataclass
class ClassBlockState(State):
    """Which classes are trained, in the order of their codes, and in which blocks."""

    stops: NDArray[np.int64] = field(default_factory=lambda: np.zeros(1, np.int64))  # 0, end of the first block, ...
    sums: NDArray[np.float64] = field(default_factory=lambda: np.zeros(len(SUMS)))
    intercept: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))


class ClassBlockSolver(Solver[ClassBlockState]):
    """Trains blocks of classes, each a fit of its own to the same rows."""

    state_type = ClassBlockState

    def __init__(self, problem: Problem, params: Params, **given: Any) -> None:
        super().__init__(problem, params, **given)
        n = problem.dataset.meta.n_rows
        # The intercept is a constant feature of this value, so its square adds to every row's squared norm.
        intercept_square = (problem.intercept_scaling or 1.0) ** 2 if problem.fit_intercept else 0.0
        self._settings = ClassSettings(1.0 / (problem.alpha * n), intercept_square, loss_named(problem.loss))
        self.width, self.plan = self._planned(self._memory)
        dataset = problem.dataset
        self.data = DatasetRef.of(dataset, self.plan.cache_bytes)
        self.reads = self.plan.lanes  # of all rows in a pass
        # A block is one task from start to end, so it reads all partitions itself, and needs no other lane.
        self.lanes = [tuple(range(len(dataset)))] * self.plan.lanes  # every block reads all partitions

    # ---- memory

    def _class_bytes(self) -> int:
        n_rows, n_features = self.problem.dataset.meta.n_rows, self.problem.shape[0]
        return ClassTask.class_bytes(n_features, n_rows, self.problem.dtype)

    def _planned(self, budget: MemoryBudget) -> tuple[int, Plan]:
        """Return the classes of a block and the plan of a fit; raise MemoryPlanError if not even a few fit."""
        (_, k), given = self.problem.shape, self.params["class_block"]
        # Kernels work on vectors of a fixed width, so arrays are rounded up to it.
        most = -(-k // _WIDTH) * _WIDTH
        if given is not None:
            width = min(-(-given // _WIDTH) * _WIDTH, most)
            return min(given, k), self._plan_of(width, min(given, k), budget)
        # At least one block for each thread, so that none is idle from the start.
        width = min(_LARGEST, most, -(-k // (_WIDTH * self._slots)) * _WIDTH)
        # a plan of the smallest block says what everything else takes, or that there is no room
        smallest = self._plan_of(_WIDTH, min(_WIDTH, k), budget)
        rest = sum(size for name, size in smallest.worker_parts.items() if name in ("base", "reserve", "partitions"))
        room = int(budget.worker_limit * budget.calm) - rest
        data = int(self.problem.dataset.decoded_bytes.sum() * SLACK)
        each = self._class_bytes() * budget.threads
        # Decoded partitions beside the blocks save a decoding in every sweep; with very narrow blocks they
        # are not worth it.
        beside = (room - data) // each
        fits = beside if beside >= _WORTH_IT else room // each
        width = max(min(width, fits // _WIDTH * _WIDTH), _WIDTH)
        return min(width, k), self._plan_of(width, min(width, k), budget)

    def _plan_of(self, width: int, classes: int, budget: MemoryBudget) -> Plan:
        dataset, k = self.problem.dataset, self.problem.shape[1]
        rows = int(dataset.table.rows.max())
        own = width * self._class_bytes() + 2 * rows * width * self.problem.dtype.itemsize
        plan = make_plan(
            dataset, Footprint(Needs(0, 0), 0, lane_bytes=own, exchanged=(0, 0)), lanes=-(-k // classes), budget=budget
        )
        parts = dict(plan.worker_parts)
        parts[f"blocks of {classes} classes"] = parts.pop("work")
        return replace(plan, worker_parts=parts, driver_bytes=plan.driver_bytes + 64 * MIB)

    # ---- the rounds

    def tasks(self, data: DatasetRef, block: int = 0) -> list[Call]:
        """See `Solver.tasks`; a block of classes brings its own evaluation."""
        width = data.one_row or self.problem.shape[0]
        task = replace(self.task(), data=data, n_features=width, n_rows=1, sweeps=1)
        return [
            Call(partial(visit_block, task), block, (0, self.width)),
            Call(partial(trained, task), Ledger(), (0, self.width)),
        ]

    def init(self) -> ClassBlockState:
        """Return the state in which no class is trained."""
        return ClassBlockState(intercept=np.zeros(self.problem.shape[1]))

    def step(self, state: ClassBlockState, executor: Executor) -> tuple[ClassBlockState, RoundReport]:
        """Train the next blocks; those that were finished before the run was stopped are taken as they are."""
        k, ledger, stored = self.problem.shape[1], Ledger(), self._stored(int(state.stops[-1]))
        spans = self._next_spans(int(state.stops[-1]), stored)
        missing = [span for span in spans if span not in stored]
        # Blocks are independent of each other, so their order of completion does not change any weight.
        results: dict[tuple[int, int], BlockResult] = {
            (one.first, one.stop): one for one in executor.map(self.task(), missing)
        }
        following, sums = replace(state), np.zeros(len(SUMS))
        following.intercept = state.intercept.copy()
        # In the order of classes, also for those of an earlier process: the sums are the same after a resume.
        for span in spans:
            arrays = self._small_arrays(*span)
            sums += arrays["sums"]
            following.intercept[slice(*span)] = arrays["intercept"]
            if span in results:
                ledger = ledger.merge(results[span].ledger)
        following.stops = np.concatenate([state.stops, [stop for _, stop in spans]]).astype(np.int64)
        following.sums = state.sums + sums
        following.round, following.passes = state.round + 1, float(following.sums[_S["sweeps"]] / k)
        return following, self._report(ledger, following, sums, spans)

    def _next_spans(self, first: int, stored: set[tuple[int, int]]) -> list[tuple[int, int]]:
        """Return the blocks of a round: stored ones where they begin, new ones up to the next that is stored."""
        k, spans = self.problem.shape[1], list[tuple[int, int]]()
        wanted = max(2 * self._slots, -(-k // (self.width * _ROUNDS)))
        while first < k and len(spans) < wanted:
            own = [stop for begin, stop in stored if begin == first]
            later = [begin for begin, _ in stored if begin > first]
            # A stored block that begins later must stay whole, so a new one ends there.
            stop = max(own) if own else min([first + self.width, k, *later])
            spans.append((first, stop))
            first = stop
        return spans

    def _stored(self, done: int) -> set[tuple[int, int]]:
        """Return the blocks from class `done` on that are stored whole; remove damaged ones, to train them again."""
        if self._folder is None or not place_of(self._folder).is_dir():
            return set()
        found = set()
        for path in subfolders(place_of(self._folder)):
            name = _NAME.fullmatch(path.name)
            if name is None or int(name[1]) < done:
                continue
            span = int(name[1]), int(name[2])
            with contextlib.suppress(CorruptDataError, FormatError):
                # Reading checks length and checksum: a block cut off by a crash is trained again, not published.
                if span[0] < span[1] <= self.problem.shape[1]:
                    self._block(*span).load().check(span[1], self.problem.shape[0], self.problem.dtype, str(path))
                    self._small_arrays(*span)
                    found.add(span)
                    continue
            # A damaged folder must go, since its block will be stored under the same name.
            remove_tree(path)
        return found

    def _small_arrays(self, first: int, stop: int) -> dict[str, NDArray[Any]]:
        block = self._block(first, stop)
        _, arrays = read_arrays(place_of(block.folder), block.kind, {"intercept", "sums"})
        if arrays["intercept"].shape != (stop - first,) or arrays["sums"].shape != (len(SUMS),):
            raise FormatError(f"{block.folder}: not a block of classes of this fit; remove it and resume")
        return arrays

    def _block(self, first: int, stop: int) -> BlockPlace:
        folder, name = self._folder or "", block_name(first, stop)
        return BlockPlace(str(place_of(folder) / name), block_kind(folder, name), first, stop)

    def task(self) -> ClassTask:
        """Return what all blocks share."""
        problem, params = self.problem, self.params
        return ClassTask(
            data=self.data,
            settings=self._settings,
            alpha=problem.alpha,
            class_weight=problem.row_weights,
            n_features=problem.shape[0],
            n_classes=problem.shape[1],
            n_rows=problem.dataset.meta.n_rows,
            dtype=problem.dtype.name,
            sweeps=params["sweeps"],
            tol=params["class_tol"],
            prune=params["prune"] or 0.0,
            shuffle=params["shuffle"],
            seed=problem.seed,
            folder=self._folder or "",
        )

    def _report(
        self, ledger: Ledger, state: ClassBlockState, sums: NDArray[np.float64], spans: list[tuple[int, int]]
    ) -> RoundReport:
        ledger.n_rows = max(ledger.n_rows, 1)  # none where all blocks of the round were finished before
        report = RoundReport.of(
            ledger,
            0.0,
            None,
            details={
                "classes": int(state.stops[-1]),
                "blocks": len(spans),
                "weights": int(state.sums[_S["nnz"]]),
                "open_classes": int(state.sums[_S["open"]]),
            },
        )
        report.running_loss = float(sums[_S["loss"]])
        return report

    def status(self, state: ClassBlockState) -> Status:
        """Return RUNNING until all classes are trained."""
        # One number that is not finite in any class makes the sums so.
        if not np.isfinite(state.sums).all():
            return Status.DIVERGED
        if state.stops[-1] < self.problem.shape[1]:
            return Status.RUNNING
        return Status.MAX_PASSES if state.sums[_S["open"]] else Status.CONVERGED

    def weights(self, state: ClassBlockState) -> Fitted:
        """Return the weights of the trained classes, which stay on disk; those of others are zero."""
        ends = state.stops.tolist()
        blocks = tuple(self._block(*span) for span in itertools.pairwise(ends))
        weights = ClassBlocks(self.problem.shape, self.problem.dtype, blocks)
        predictor = LinearPredictor(cast("NDArray[Any]", weights), state.intercept)
        certificate = {"kind": "duality_gap", "value": float(state.sums[_S["gap"]])}
        return Fitted(
            predictor,
            known={"objective": float(state.sums[_S["objective"]]), "certificate": certificate, "eval_bytes_read": 0},
        )
