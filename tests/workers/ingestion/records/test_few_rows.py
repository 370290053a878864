"""A few rows of separated text read without the kernel: the kernel's states, words and records, bit for bit."""

import hashlib

import numpy as np
import pytest
from helpers import examples, raised
from hypothesis import given
from hypothesis import strategies as st
from parser_helpers import block_of, run_of
from sklearn.utils import murmurhash3_32

import distls.workers.ingestion.records.labels
from distls.storage.errors import BadInputError
from distls.workers.ingestion.formats import csv as csv_reader
from distls.workers.ingestion.formats.document_records import Hashing, hashed_texts, hashed_values
from distls.workers.ingestion.formats.table_columns import Dialect, Feature, TableOptions
from distls.workers.ingestion.parsing.csv_field_kernels import Kind, State
from distls.workers.ingestion.records import few_rows
from distls.workers.ingestion.records.hashed_words import hash_columns, word_hashes
from distls.workers.ingestion.records.labels import label_fault, label_value, number_label, value_labels
from distls.workers.ingestion.survey_task import SurveySpec, _ColumnReader

NUMBER = st.one_of(
    st.floats(-1e30, 1e30).map(repr),
    st.integers(-(10**17), 10**17).map(str),
    st.from_regex(r"[+-]?[0-9]{1,25}\.[0-9]{0,22}", fullmatch=True),
    st.sampled_from(["0", "-0", "007", "1e400", "1e-400", ".5", "5.", "+1E3", "16777217", "0.1", "."]),
)
ODD = st.sampled_from(["", "NA", "true", "False", "inf", "nan", "x", "a b", " 1", "1 ", '"1"', "-", "é", "0x1"])
WORD = st.sampled_from(["x", "y", "a b", "é", "1", "1.0", "", "NA", "new", "0123", '"x"'])
FIELD = {"n": NUMBER | ODD, "g": NUMBER | ODD, "c": WORD, "y": WORD | NUMBER, "w": NUMBER}


def plain(field):
    return field.strip(' "') == field and field not in ("", "NA", "inf", "nan", "true", "False")


@st.composite
def tables(draw):
    """Draw columns, a separator and text; some tables without anything odd."""
    columns = draw(st.lists(st.sampled_from("ngc"), min_size=1, max_size=4))
    names = [f"{kind}{k}" for k, kind in enumerate(columns)] + draw(st.sampled_from([["y"], ["y", "w"], []]))
    usual = draw(st.booleans())
    separator, end = draw(st.sampled_from([",", ";", "\t", "|"])), draw(st.sampled_from(["\n", "\r\n"]))
    n_rows = draw(st.integers(1, 8))
    rows = [[draw(FIELD[name[0]].filter(plain) if usual else FIELD[name[0]]) for name in names] for _ in range(n_rows)]
    text = "".join(separator.join(row) + end for row in rows)
    return names, separator, text if draw(st.booleans()) else text.removesuffix(end)


def options_of(names, separator, *, na="", float64=False, words=True):
    features = tuple(
        Feature(name, ("1", "a b", "x", "y") if name[0] == "c" else None, impute="mean" * (name[0] == "g"))
        for name in names
        if name[0] in "ngc"
    )
    return TableOptions(
        columns=tuple(names), label="y" if "y" in names else "", weight="w" if "w" in names else "",
        features=features, label_words=words, na=na, float64=float64, dialect=Dialect(separator), skip_errors=True,
    )  # fmt: skip


def facts_of(reader, *arrays):
    words = reader.table.words
    n = len(reader.table)
    known = [words.keys[:n], words.lines[:n], words.starts[: n + 1], words.hashes[:n], reader.columns]
    return [np.asarray(array).tobytes() for array in (*known, *arrays)]


def staged(text, options):
    """Return all that a parser leaves, bit for bit."""
    found, run = [], run_of(options, 1)
    parser = csv_reader.DelimitedParser(run)
    for batch in parser.parse(block_of(text.encode())):
        words = batch.words.copy()
        words[batch.row_at[:-1] + 2] = 0  # reserved
        weights = [] if batch.weights is None else batch.weights
        found.append(
            (
                [a.tobytes() for a in (words, batch.row_at, batch.row_line, np.asarray(weights))],
                batch.label_words,
                batch.rounded,
            )
        )
    return found, vars(run.progress), parser.state[State.LINE], parser.state[State.POSITION]


def surveyed(text, options):
    limits = {c: 3 for c, name in enumerate(options.columns) if name[0] == "c"}
    checked = tuple(c for c, name in enumerate(options.columns) if name[0] in "ng")
    reader = _ColumnReader(SurveySpec(None, "", options, limits, checked, 0))
    reader.run(block_of(text.encode()))
    return reader.result(), facts_of(reader), reader.state[: State.ROWS + 1].tolist()


@pytest.fixture(scope="module")
def both():
    """Both ways by a function, and how many texts were read without the kernel."""
    few_rows.FewRows.n_bytes = 0
    counts, kept = [0], csv_reader.kernel_is_ready

    class Counted(few_rows.FewRows):
        def _finish(self, n, position):
            super()._finish(n, position)
            counts[0] += 1

    def compare(read, text, options):
        csv_reader.kernel_is_ready = lambda: True
        expected = read(text, options)
        csv_reader.kernel_is_ready = lambda: False
        assert read(text, options) == expected

    csv_reader.FewRows = Counted
    yield compare, counts
    csv_reader.FewRows, csv_reader.kernel_is_ready = few_rows.FewRows, kept


@examples(400)
@given(tables(), st.sampled_from(["", "0", "-1.5"]), st.booleans(), st.booleans())
def test_rows_are_those_of_the_kernel(both, table, na, float64, words):
    names, separator, text = table
    both[0](staged, text, options_of(names, separator, na=na, float64=float64, words=words))


@examples(400)
@given(tables(), st.sampled_from(["", "0"]))
def test_surveys_are_those_of_the_kernel(both, table, na):
    names, separator, text = table
    both[0](surveyed, text, options_of(names, separator, na=na))


@pytest.mark.parametrize("read", [staged, surveyed])
def test_plain_rows_need_no_kernel(both, read, monkeypatch):
    compare, counts = both
    text = "".join(f"{k / 7},{k % 5 or ''},{'xy'[k % 2]},{'abc'[k % 3]},{k}\r\n" for k in range(700))
    options = options_of(["n0", "g1", "c2", "y", "w"], ",", na="0" if read is surveyed else "")
    before = counts[0]
    compare(read, text, options)
    assert counts[0] > before
    monkeypatch.setattr(csv_reader, "parse_rows", None)
    read(text, options)


def test_beyond_a_limit_of_a_process_rows_are_the_kernels(both, monkeypatch):
    monkeypatch.setattr(few_rows.FewRows, "n_bytes", 0)
    monkeypatch.setattr(few_rows, "_MOST_BYTES", 8 * len("1,x\n"))
    compare, counts = both
    before = counts[0]
    for _ in range(12):
        compare(staged, "1,x\n", options_of(["n0", "y"], ","))
    assert 0 < counts[0] - before <= 8


def test_kinds_that_are_only_the_kernels(both):
    reader = csv_reader.DelimitedParser(run_of(options_of(["n0", "y"], ",")))
    reader.columns[0, 0] = Kind.DATE
    block = block_of(b"1,x\n")
    read = block.text, block.size, reader.rules, reader.columns, reader.table.words, reader.answers
    few = few_rows.FewRows(read, reader.state, reader.dialect.missing)
    raised(few_rows.NotPlainError, few.store, reader.slots, reader.records, {})


# -- labels as text --------------------------------------------------------------------------------------


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
    "text", ["cat", "007", "9007199254740993", "nan", "inf", "1e999", "0x10", "1_000", " 7", "7 ", "-", "٧", "1,5"]
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


# -- hashes of words and counts of documents have the bits of scikit-learn's -----------------------------


TEXT = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("aAbB ß_1\n"), max_size=40)


@examples(200)
@given(st.lists(TEXT, max_size=9))
def test_hashes_are_those_of_scikit_learn(words):
    assert word_hashes(words).tolist() == [murmurhash3_32(word, 0) for word in words]
    assert hashed_values(words, 97).tolist() == [murmurhash3_32(word, 0, positive=True) % 97 for word in words]


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
