"""Step sizes of stochastic gradient methods, as functions of a lane's own count of rows t = 1, 2, ...

| schedule    | eta_t                                                | source |
|-------------|------------------------------------------------------|--------|
| `CONSTANT`  | eta0                                                 | |
| `SQRT`      | eta0 / sqrt(t)                                       | NCSGD of the constrained SGD paper, section 5.1 |
| `INVERSE`   | eta0 / t                                             | its Corollary 4.3 |
| `TWO_PHASE` | eta0 / sqrt(t) for t < m, eta0 sqrt(m) / t for t >= m | its section 4.2 |
| `POWER`     | eta0 t^-m                                            | its section 5.1, where 1/2 < m < 1 |
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, disable-error-code="arg-type, assignment, return-value"
import math

from distls.workers.compilation.jit import helper

CONSTANT, SQRT, INVERSE, TWO_PHASE, POWER = 0, 1, 2, 3, 4

SCHEDULES = {"constant": CONSTANT, "sqrt": SQRT, "inverse": INVERSE, "two-phase": TWO_PHASE, "power": POWER}
POWERS = "t^-"  # with the exponent, what the parameter calls a power


def schedule_code(name: str) -> int:
    """Return the number of a schedule by its name, or by t^- and an exponent."""
    return SCHEDULES["power" if name.startswith(POWERS) else name]


@helper
def step_size(schedule, eta0, m, t):
    """Return eta_t for t >= 1, the row of this step included; `TWO_PHASE` and `POWER` read m."""
    if schedule == CONSTANT:
        return eta0
    if schedule == INVERSE:
        return eta0 / t
    if schedule == TWO_PHASE and t >= m:
        return eta0 * math.sqrt(m) / t
    if schedule == POWER:
        return eta0 * math.pow(t, -m)
    return eta0 / math.sqrt(t)
