"""Imported once by the process that workers are forked from: what every worker would import and load itself."""

import atexit
import gc

import numpy as np

from distls.storage.dataset.chunks import encoder_of
from distls.workers.rounds.averaging import merge_mean

# The first kernel that is called makes numba load its own library, a third of a second.
merge_mean(np.zeros(1, np.float32), np.zeros(1, np.float32), 0.5)

encoder_of("zstd")

# At its end the process would search all this for garbage, while it still holds the driver's stderr open.
atexit.register(gc.freeze)
