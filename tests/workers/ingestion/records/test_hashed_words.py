"""Hashes of words and counts of documents have the bits of scikit-learn's."""

import numpy as np
import pytest
from helpers import examples
from hypothesis import given
from hypothesis import strategies as st
from sklearn.utils import murmurhash3_32

from distls.workers.ingestion.formats.document_records import Hashing, hashed_texts, hashed_values
from distls.workers.ingestion.records.hashed_words import hash_columns, word_hashes

TEXT = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("aAbB ß_1\n"), max_size=40)


@examples(200)
@given(st.lists(TEXT, max_size=9))
def test_hashes_are_those_of_scikit_learn(words):
    assert word_hashes(words).tolist() == [murmurhash3_32(word, 0) for word in words]
    assert hashed_values(words, 97).tolist() == [
        murmurhash3_32(word, 0, positive=True) % 97 for word in words
    ]


def test_long_words_are_hashed_alone():
    words = ["a", *(("x1" * 500)[:size] for size in (255, 256, 257, 260, 999))]
    assert word_hashes(words).tolist() == [murmurhash3_32(word, 0) for word in words]


def test_the_least_number_has_a_column():
    found = hash_columns(np.array([-(2**31), -5, 5], np.int32), 7)
    assert found.tolist() == [(2**31 - 7) % 7, 5, 5]


@pytest.mark.parametrize("analyzer", ["word", "char_wb"])
@examples(200)
@given(
    st.lists(TEXT, max_size=5),
    st.sampled_from([(1, 1), (1, 2), (2, 3)]),
    st.tuples(st.booleans(), st.booleans(), st.booleans()),
    st.sampled_from([3, 2**18]),
)
def test_counts_are_those_of_scikit_learn(analyzer, texts, ngrams, flags, n_features):
    named = dict(zip(("lowercase", "alternate_sign", "binary"), flags, strict=True))
    hashing = Hashing(n_features=n_features, ngrams=ngrams, analyzer=analyzer, **named)
    indptr, indices, values = hashed_texts(hashing, texts, np.dtype(np.float64))
    if not texts:
        assert (indptr.tolist(), len(indices), len(values)) == ([0], 0, 0)
        return
    wanted = hashing.vectorizer().transform(texts)
    wanted.eliminate_zeros()
    assert indptr.tolist() == wanted.indptr.tolist()
    assert indices.tolist() == wanted.indices.tolist()
    assert values.tolist() == wanted.data.tolist()
