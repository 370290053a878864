"""The size of a step after t of them."""

# mypy: allow-untyped-defs, allow-untyped-calls
from __future__ import annotations

import math

from distls.workers.kernels._jit import kernel

__all__ = ["SCHEDULES", "step_size"]

# "inverse": eta0 / t. "sqrt": eta0 / sqrt(t). "two-phase" (constrained SGD paper, section 4.2): eta0 / sqrt(t)
# for t < m, eta0 sqrt(m) / t from m on.
SCHEDULES = {"inverse": 0, "constant": 1, "sqrt": 2, "two-phase": 3}

_INVERSE, _CONSTANT, _TWO_PHASE = SCHEDULES["inverse"], SCHEDULES["constant"], SCHEDULES["two-phase"]


@kernel
def step_size(schedule, eta0, m, t):
    """Return the step of time t > 0, float64.

    Parameters
    ----------
    schedule : a value of `SCHEDULES`
    eta0 : float
    m : float, when the second of two phases starts
    t : float, the lane's steps including this one
    """
    if schedule == _CONSTANT:
        return eta0
    if schedule == _INVERSE:
        return eta0 / t
    if schedule == _TWO_PHASE and t >= m:
        return eta0 * math.sqrt(m) / t
    return eta0 / math.sqrt(t)
