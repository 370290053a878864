"""The candidates of a stochastic method, tried on some rows before the first round."""

from typing import Any

import numpy as np

from distls.execution.batch import mapped
from distls.problem import Problem
from distls.storage.errors import DistlsError
from distls.workers.runtime.rng import Purpose, rng
from distls.workers.stochastic.lane_task import Trial, TrialTask
from distls.workers.stochastic.step_choice import StepChoice, trial_rows
from distls.workers.stochastic.update import Arrays


async def try_candidates(
    steps: StepChoice, task: TrialTask, start: Arrays, problem: Problem
) -> tuple[int, dict[str, Any]]:
    """Return the candidate with the lowest objective on some rows after a pass over others in one lane, and details.

    The details, JSON values, are the objectives, the chosen setting and the number of rows. Raises DistlsError if no
    candidate stays finite.
    """
    candidates, table = steps.candidates, problem.dataset.table
    wanted = trial_rows(problem.dataset.meta.n_rows, same=steps.same_rows)
    # The order of partitions is drawn from the seed, so the same trial comes out on any number of workers.
    order = rng(problem.seed, Purpose.TRIAL).permutation(len(table))
    # partitions with rows enough to learn from, and as many to judge by
    enough = int(np.searchsorted(np.cumsum(table.rows[order]), 2 * wanted)) + 1
    blocks = tuple(int(block) for block in order[:enough])
    trials = [Trial(candidate.on_trial, blocks, wanted, steps.same_rows) for candidate in candidates]
    # Trials are independent, and each is one lane: their objectives do not depend on the executor.
    objectives = await mapped(task, trials, shared=start)
    # The first of equal ones, so candidates are ordered with care.
    best = int(np.argmin([value * each.handicap for value, each in zip(objectives, candidates, strict=True)]))
    if not np.isfinite(objectives[best]):
        tried = "; ".join(str(candidate) for candidate in candidates)
        raise DistlsError(f"none of {tried} keeps the weights finite; give one, or scale the data")
    table_of = {str(candidate): value for candidate, value in zip(candidates, objectives, strict=True)}
    return best, {"objectives": table_of, "chosen": candidates[best].setting, "n_rows": wanted}
