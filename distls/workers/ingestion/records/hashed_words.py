"""The hashes of words and their columns (Weinberger et al. 2009), as scikit-learn has them, but without its import.

It takes a second, which is longer than few documents. A kernel is compiled for words that few documents have.
"""

from collections.abc import Sequence

import numpy as np

from distls.workers.compilation.jit import kernel
from distls.workers.ingestion.parsing.array_types import Bytes, Int32s, Ints, UInts
from distls.workers.ingestion.parsing.vw_token_kernels import murmur3_32

_LONG = 256  # bytes of a word; a longer one is hashed alone, by a kernel
_LAST = ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1))  # shifts, and factors behind them
_LEAST = -(2**31)  # whose absolute value does not fit into 32 bits


def word_hashes(words: Sequence[str]) -> Int32s:
    """Return the MurmurHash3 of words in UTF-8, of 32 bits and seed 0, four bytes of all words at a time."""
    coded = [(word.encode(), place) for place, word in enumerate(words)]
    coded.sort(key=lambda each: -len(each[0]))  # those with bytes left are always the first
    sizes = np.array([len(word) for word, _ in coded], np.int64)
    starts, text = np.cumsum(sizes) - sizes, np.frombuffer(b"".join(w for w, _ in coded) + bytes(4), np.uint8)
    found, rest = np.zeros(len(coded), np.uint32), np.uint32(0xE6546B64)
    for begin in range(0, min(int(sizes.max(initial=0)), _LONG), 4):
        n = int(np.count_nonzero(sizes > begin))
        four = text[(starts[:n] + begin)[:, None] + np.arange(4)]
        left = sizes[:n] - begin
        four[np.arange(4) >= left[:, None]] = 0
        mixed = _turned(four.view("<u4")[:, 0] * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
        found[:n] ^= mixed
        whole = left >= 4
        found[:n][whole] = _turned(found[:n][whole], 13) * np.uint32(5) + rest
    found ^= sizes.astype(np.uint32)
    for shift, factor in _LAST:
        found ^= found >> np.uint32(shift)
        found *= np.uint32(factor)
    out = np.empty(len(coded), np.uint32)
    out[[place for _, place in coded]] = found
    hashes = out.view(np.int32)
    for word, place in coded[: int(np.count_nonzero(sizes > _LONG))]:
        # the kernel loads eight bytes at a time, also behind the end
        own = _hash_alone(np.array(np.frombuffer(word + bytes(8), np.uint8)), len(word))
        hashes[place] = own - 2**32 if own >= 2**31 else own
    return hashes


@kernel
def _hash_alone(text: Bytes, size: int) -> int:
    return murmur3_32(text, 0, size, 0)


def _turned(words: UInts, bits: int) -> UInts:
    return (words << np.uint32(bits)) | (words >> np.uint32(32 - bits))


def hash_columns(hashes: Int32s, n_columns: int) -> Ints:
    """Return the columns of hashes, by their absolute values."""
    sizes = np.abs(hashes.astype(np.int64))
    return np.where(hashes == _LEAST, (2**31 - n_columns) % n_columns, sizes % n_columns)
