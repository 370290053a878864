"""Nesterov's momentum (1983), for the solvers that accelerate their steps, as Beck and Teboulle (2009) have it."""

import math


def next_momentum(t: float) -> float:
    """Return Nesterov's t after t; 1 after 0."""
    return 0.5 * (1.0 + math.sqrt(1.0 + 4.0 * t * t))
