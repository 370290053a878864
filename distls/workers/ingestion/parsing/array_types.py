"""Short names for the arrays of parsers and their kernels."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Bools = NDArray[np.bool_]
Bytes = NDArray[np.uint8]
UInts = NDArray[np.uint32]
ULongs = NDArray[np.uint64]
Int32s = NDArray[np.int32]
Ints = NDArray[np.int64]
Singles = NDArray[np.float32]
Doubles = NDArray[np.float64]
