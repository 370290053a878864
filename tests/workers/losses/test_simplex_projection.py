"""The projection within the Crammer-Singer dual step ends, also where rounding moves its threshold back."""

import subprocess
import sys

# a mass so near the threshold that it is above that of two masses, and not above that of three
_MASSES = [0.8755234310144959, 0.48895628664335555, 0.8022845542794598, 0.3889214239791038]

_PROGRAM = f"""
import numpy as np
from numba import njit
from distls.workers.losses.crammer_singer import _project
masses = np.array({_MASSES})
njit(lambda v: _project(v, len(v)))(masses)
assert abs(masses.sum() - 1.0) < 1e-12, masses
assert (masses >= 0.0).all(), masses
"""


def test_the_projection_ends():
    # a loop of compiled code cannot be interrupted from within its process
    subprocess.run([sys.executable, "-c", _PROGRAM], check=True, timeout=300)
