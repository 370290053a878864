"""All randomness of distls: `SeedSequence(seed, spawn_key=(purpose, ...))`, never global state."""

from enum import IntEnum

import numpy as np


class Purpose(IntEnum):
    """The purpose of a stream of random numbers. Values are part of the reproducibility promise: only add."""

    SHUFFLE = 0  # (chunk): the virtual bucket of every source row
    SHUFFLE_ROWS = 1  # (partition): the order of rows inside a written partition
    SPLIT = 2  # (chunk,) and (): stratified hold-out
    GENERATE = 3  # (kind, part, block), and (kind,) for its model: synthetic data
    ORDER = 4  # (pass, lane): the order of a lane's partitions
    ROWS = 5  # (round, partition): the order of a partition's rows
    SAMPLE = 6  # (): the fixed sample on which averaging is assessed
    PROBE = 7  # (): the partition that `plan` times
    FEATURES = 8  # (stage): random features
    COLUMNS = 9  # (pass) or (stage): a random order, or a random choice, of original features
    PREPARE = 10  # (what): samples of rows and patches that features are fitted to, and their initial filters
    TRIAL = 11  # () and (partition): the rows on which steps are tried, and their order
    BLOCKS = 12  # (round, lane, sweep): the order of shards in a sweep, and of the columns in each
    DRAWS = 13  # (round): how many columns of each shard are drawn in a sweep


def rng(seed: int, purpose: Purpose, *key: int) -> np.random.Generator:
    """Return the generator of one purpose and key; the same arguments give the same stream everywhere."""
    # A named bit generator: the default of NumPy may change.
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(int(purpose), *key))))
