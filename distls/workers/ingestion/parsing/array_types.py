"""Short names for the arrays of parsers and their kernels."""

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
UInts = NDArray[np.uint32]
Ints = NDArray[np.int64]
Singles = NDArray[np.float32]
Doubles = NDArray[np.float64]
