"""The fixed sample on which averaging is assessed: the same rows every round, on every worker.

It is a pure function of the dataset and the seed, read once a process and kept for the fit: too small to need a place
in the memory plan, too expensive to send every round.
"""

import threading
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.storage.dataset.dataset import Dataset
from distls.storage.rows import Partition, Rows, concatenate_partitions, n_rows_of, take_rows
from distls.workers.evaluation.loss_sums import evaluate_rows
from distls.workers.linear_algebra.score_kernels import scores
from distls.workers.losses.loss_registry import loss_named
from distls.workers.losses.targets import NO_CLASSES, is_codes, score_gradients
from distls.workers.prediction.predictor import LinearPredictor, linear_view
from distls.workers.rounds.block_stream import DatasetRef, open_ref, stream
from distls.workers.rounds.ledger import Ledger
from distls.workers.runtime.rng import Purpose, rng

_MOST_ROWS = 65_536
_LEAST_ROWS = 256
# Each lane scores the sample with its weights: all lanes together cost at most 1/64 of a pass.
_SHARE_OF_PASS = 64


@dataclass(frozen=True)
class SampleRef:
    """A sample of `n_rows` random rows from as few random partitions as hold them."""

    n_rows: int
    seed: int


_lock = threading.Lock()
# One sample at a time: fits of other data replace it.
_kept: dict[tuple[str, SampleRef], tuple[Rows, Any]] = {}


def sample_size(dataset: Dataset, n_lanes: int) -> int:
    """Return the number of rows of the sample."""
    n_rows = dataset.meta.n_rows
    return min(n_rows, _MOST_ROWS, max(_LEAST_ROWS, n_rows // (_SHARE_OF_PASS * n_lanes)))


def mean_loss(data: DatasetRef, sample: SampleRef, loss: str, predictor: LinearPredictor, ledger: Ledger) -> float:
    """Return the mean loss of a model over the sample; the first call in a process reads it."""
    x, y = _rows_of(data, sample, ledger)
    # Unit weights: the sample is for comparing lanes, not an estimate of the objective.
    total, count = evaluate_targets(x, y, np.empty(0, np.float64), loss, predictor)
    return float(total / count) if count else 0.0


def evaluate_targets(
    x: Rows, y: NDArray[Any], weight: NDArray[np.float64], loss: str, predictor: LinearPredictor
) -> tuple[float, float]:
    """Return the sums of s_i * loss_i and of s_i, for class codes or for numbers."""
    x, weights, intercept = linear_view(predictor, x)
    if is_codes(y):
        total, count, _ = evaluate_rows(x, y, weight, loss_named(loss), weights, intercept, NO_CLASSES)
        return total, count
    values = scores(x, weights, intercept, np.empty((n_rows_of(x), weights.shape[1]), weights.dtype))
    found = score_gradients(loss, values, y, weight)
    return found.loss_sum, found.weight_sum


def _rows_of(data: DatasetRef, sample: SampleRef, ledger: Ledger) -> tuple[Rows, Any]:
    if data.one_row:
        return _read(data, sample, ledger)  # those of a fit are kept
    key = (data.fingerprint, sample)
    # The lock is held while reading: other threads of the process wait for the same rows.
    with _lock:
        if key not in _kept:
            _kept.clear()
            _kept[key] = _read(data, sample, ledger)
        return _kept[key]


def _read(data: DatasetRef, sample: SampleRef, ledger: Ledger) -> tuple[Rows, Any]:
    table = open_ref(data).table
    generator = rng(sample.seed, Purpose.SAMPLE)
    order = generator.permutation(len(table))
    # partitions are exchangeable, so as few as hold enough rows: reading them is the only cost of the sample
    enough = int(np.searchsorted(np.cumsum(table.rows[order]), sample.n_rows)) + 1
    parts, wanted = [], sample.n_rows
    # taken from the cache if a lane of this process has filled it; never cached for the sample alone
    source = replace(data, cache_bytes=0)
    for _, part in stream(source, [int(block) for block in order[:enough]], ledger):
        share = min(wanted, n_rows_of(part.x))
        # Sorted, so that rows are taken in the order in which they are stored.
        chosen = np.sort(generator.choice(n_rows_of(part.x), share, replace=False))
        parts.append(Partition(take_rows(part.x, chosen), take_rows(part.y, chosen)))
        wanted -= share
    x, y, _ = concatenate_partitions(parts)
    return x, y
