"""Tasks that fit the transform ``impute``: what is known of columns with missing values, partition by partition.

The median is exact: of the 32 bits of a float32, in an order in which larger numbers have larger bits, three passes
count the values by the next eleven. Counts are whole numbers, so that the bits are those of any order of the rows.
"""

from typing import NamedTuple

import numpy as np

from distls.storage.errors import BadInputError
from distls.storage.rows import CsrRows
from distls.workers.ingestion.assemble_task import AssemblySpec, Items, transformed_rows
from distls.workers.ingestion.column_moments import columns_of
from distls.workers.ingestion.parsing.array_types import Array, Doubles, Ints, UInts

DIGITS = 11, 11, 10  # bits of each pass
MOST_VALUES = 2**17  # of a column whose most frequent one is sought


class Digits(NamedTuple):
    """What is counted in a pass."""

    columns: Ints
    prefixes: Ints  # the first bits of the value that is sought in each
    done: int  # these bits
    bits: int  # of the digit


def _ordered_bits(values: Array) -> UInts:
    """Return float32 numbers as whole ones of the same order."""
    bits = (values.astype(np.float32) + np.float32(0)).view(np.uint32)  # minus zero is zero
    return np.where(bits >> 31, ~bits, bits | np.uint32(2**31)).astype(np.uint32)


def number_of_bits(bits: UInts) -> Doubles:
    """Return the numbers that `_ordered_bits` made."""
    own = np.where(bits >> 31, bits & np.uint32(2**31 - 1), ~bits).astype(np.uint32)
    return own.view(np.float32).astype(np.float64)


def column_gaps(columns: Ints, spec: AssemblySpec, items: Items) -> tuple[Ints, Doubles, Ints, int]:
    """Return missing values and the sum of the others of some columns, the non-zeros of all, and the rows."""
    gaps, sums, n_rows = np.zeros(len(columns), np.int64), np.zeros(len(columns)), 0
    counts = np.zeros(spec.n_columns, np.int64)
    for x in transformed_rows(spec, items):
        values = columns_of(x, columns)
        missing = np.isnan(values)
        # whole numbers, and sums in the order of the items: the same bits on any worker
        gaps += missing.sum(axis=0)
        sums += np.where(missing, 0.0, values).sum(axis=0, dtype=np.float64)
        n_rows += len(values)
        if isinstance(x, CsrRows):
            counts += np.bincount(x.indices, minlength=spec.n_columns)
    return gaps, sums, counts, n_rows


def column_digits(digits: Digits, spec: AssemblySpec, items: Items) -> Ints:
    """Count the values of columns by their next digit, of those that begin like their prefix."""
    columns, prefixes, done, bits = digits
    different, places = np.unique(columns, return_inverse=True)
    counts = np.zeros((len(columns), 2**bits), np.int64)
    for x in transformed_rows(spec, items):
        values = columns_of(x, different)[:, places]
        known, keys = ~np.isnan(values), _ordered_bits(values)
        for k in range(len(columns)):
            # as int64: numpy shifts unsigned numbers by no more than their size
            own = keys[known[:, k], k].astype(np.int64)
            own = own[own >> (32 - done) == prefixes[k]]
            counts[k] += np.bincount((own >> (32 - done - bits)) & (2**bits - 1), minlength=2**bits)
    return counts


def column_values(columns: Ints, spec: AssemblySpec, items: Items) -> list[tuple[Doubles, Ints]]:
    """Return the different values of some columns and how often they occur."""
    parts = (columns_of(x, columns).astype(np.float64) for x in transformed_rows(spec, items))
    values = np.concatenate(list(parts))
    return [value_counts(column[~np.isnan(column)]) for column in values.T]


def value_counts(values: Doubles, weights: Ints | None = None) -> tuple[Doubles, Ints]:
    """Return different values, increasing, and the sums of their weights; raise BadInputError for too many."""
    found, places = np.unique(values + 0.0, return_inverse=True)
    if len(found) > MOST_VALUES:
        remedy = "most_frequent is for few, take median"
        raise BadInputError(f"impute: a column has more than {MOST_VALUES} values; {remedy}")
    return found, np.bincount(places, weights=weights, minlength=len(found)).astype(np.int64)
