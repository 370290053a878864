"""Labels as text: numbers by value, words by hash."""

import hashlib

import numpy as np
import pytest
from helpers import raised
from hypothesis import given
from hypothesis import strategies as st

import distls.workers.ingestion.records.labels
from distls.storage.errors import BadInputError
from distls.workers.ingestion.records.labels import label_fault, label_value, number_label, value_labels

words = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


@pytest.mark.parametrize(
    ("text", "value"),
    [("7", 7), ("+7", 7), ("7.0", 7), ("7.", 7), ("-1", -1), (".5", 0.5), ("1e2", 100), ("0", 0), ("-0", 0)],
)
def test_what_reads_as_a_number_is_one(text, value):
    assert label_value(text) == value
    assert not np.signbit(label_value("-0"))
    assert value_labels([text])[1] == {}


@pytest.mark.parametrize(
    "text",
    ["cat", "007", "9007199254740993", "nan", "inf", "1e999", "0x10", "1_000", " 7", "7 ", "-", "٧", "1,5"],
)
def test_what_would_lose_something_as_a_number_is_a_word(text):
    values, found = value_labels([text])
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    assert found == {values[0]: text}
    assert values[0] == int.from_bytes(digest, "big") // 2**11 < 2**53


@given(st.lists(words))
def test_values_give_the_labels_back(labels):
    values, found = value_labels(labels)
    again = [found.get(value) or str(number_label(value)) for value in values.tolist()]
    assert [label_value(label) for label in again] == values.tolist()
    assert [a for a, label in zip(again, labels, strict=True) if label in found.values()] == [
        label for label in labels if label in found.values()
    ]


@pytest.mark.parametrize(("labels", "named"), [(["a", "b"], ("a", "b")), (["a", "1"], ("a", "1"))])
def test_two_labels_with_one_hash_are_refused(monkeypatch, labels, named):
    monkeypatch.setattr(distls.workers.ingestion.records.labels, "_hash", lambda word: 1.0)
    assert raised(BadInputError, value_labels, [*labels, "a"]) == (
        f'the labels "{named[0]}" and "{named[1]}" have the same hash; write one of them differently'
    )


def test_faults():
    assert label_fault("ein Wört") == ""
    assert label_fault("") == "the label is empty"
    assert label_fault("a\ud800") == "the label has a lone surrogate, which is no character"
