"""Raw text to records: the rows of scikit-learn's HashingVectorizer, lines, refusals."""

import itertools
import json
from unittest import mock

import numpy as np
import pytest
import scipy.sparse
from helpers import raised
from hypothesis import given
from hypothesis import strategies as st
from parser_helpers import block_of, located, run_of, sparse_records
from sklearn.feature_extraction.text import HashingVectorizer

from distls.storage.errors import BadInputError
from distls.workers.ingestion.formats import documents
from distls.workers.ingestion.formats.document_records import DocumentReadOptions, Hashing
from distls.workers.ingestion.formats.documents import DocumentParser
from distls.workers.ingestion.records.labels import label_value
from distls.workers.ingestion.records.messages import ENCODED

SMALL = Hashing(n_features=64)
JSON = {"text_column": "text", "label_column": "label"}


def parse(text, **options):
    """Return (rows as a scipy matrix, labels of each row, lines, progress, batches)."""
    run = run_of(DocumentReadOptions(**{"hashing": SMALL, **options}))
    batches, labels, lines, rows = [], [], [], []
    with located("a.txt"):
        for batch in DocumentParser(run).parse(block_of(text)):
            batches.append(batch)
            (indptr, indices, data), values, offsets = sparse_records(batch, run.options.float64)
            names = [batch.label_words.get(value, value) for value in values.tolist()]
            labels += [names[a:b] for a, b in itertools.pairwise(offsets)]
            lines += batch.row_line.tolist()
            shape = len(batch.row_line), run.options.hashing.n_features
            rows.append(scipy.sparse.csr_array((data, indices, indptr), shape))
    return (scipy.sparse.vstack(rows) if rows else None), labels, lines, run.progress, batches


def vectorized(lines, **options):
    return HashingVectorizer(n_features=64, alternate_sign=False, norm=None, **options).transform(lines)


def equal(found, expected):
    return found.shape == expected.shape and np.array_equal(found.toarray(), expected.toarray())


# printable, without what ends a line or a label
characters = st.characters(exclude_categories=["Cs"])
texts = st.text(st.characters(exclude_characters="\n\r", exclude_categories=["Cs"]))
names = st.text(st.characters(exclude_characters="\n\r\t,", exclude_categories=["Cs", "Z", "Cc", "Cf"]), min_size=1)


@given(st.lists(st.tuples(names, texts), min_size=1), st.sampled_from([b"\n", b"\r\n"]), st.integers(1, 60))
def test_plain_lines(records, ending, piece):
    text = ending.join(f"{label}\t{document}".encode() for label, document in records)
    with mock.patch.object(documents, "_CHUNK_BYTES", piece):
        rows, labels, lines, progress, _ = parse(text)
    assert equal(rows, vectorized([document for _, document in records]))
    assert [label_value(found) for (found,) in labels] == [label_value(label) for label, _ in records]
    assert lines == list(range(len(records)))
    assert (progress.offset, progress.lines) == (len(text), len(records))


@given(
    st.lists(st.tuples(st.one_of(names, st.integers(-10, 10), st.booleans()), st.text(characters))),
    st.booleans(),
    st.integers(1, 60),
)
def test_json_lines(records, ascii, piece):
    lines = [
        json.dumps({"label": label, "other": [1, None], "text": text}, ensure_ascii=ascii) for label, text in records
    ]
    with mock.patch.object(documents, "_CHUNK_BYTES", piece):
        rows, labels, _, progress, _ = parse("\n".join([*lines, "", "  "]).encode(), **JSON)
    assert rows is None if not records else equal(rows, vectorized([text for _, text in records]))
    expected = [json.dumps(label) if isinstance(label, bool) else label for label, _ in records]
    assert [label_value(found) for (found,) in labels] == [label_value(label) for label in expected]
    assert progress.skipped == 0


@pytest.mark.fast_cases("False-hashing0", "False-hashing3", "True-hashing1", "True-hashing4")
@pytest.mark.parametrize(
    ("hashing", "options"),
    [
        ({"ngrams": (1, 3)}, {"ngram_range": (1, 3)}),
        ({"analyzer": "char", "ngrams": (2, 3)}, {"analyzer": "char", "ngram_range": (2, 3)}),
        ({"analyzer": "char_wb", "ngrams": (3, 3)}, {"analyzer": "char_wb", "ngram_range": (3, 3)}),
        ({"lowercase": False}, {"lowercase": False}),
        ({"binary": True}, {"binary": True}),
    ],
)
@pytest.mark.parametrize("float64", [False, True])
def test_hashing_options_are_those_of_the_vectorizer(hashing, options, float64):
    lines = ["The cat sat; the CAT ran", "", "Ünïcode words wörds words", "a b c dd"]
    text = "".join(f"{document}\n" for document in lines).encode()
    found = parse(text, labelled=False, hashing=Hashing(n_features=64, **hashing), float64=float64)[0]
    assert equal(found, vectorized(lines, **options))
    assert found.dtype == (np.float64 if float64 else np.float32)


def test_counts_that_cancel_out_are_not_stored():
    line = " ".join(f"w{i}" for i in range(20))
    expected = HashingVectorizer(n_features=8, norm=None, alternate_sign=True).transform([line])
    text = f"{line}\n".encode()
    found = parse(text, labelled=False, hashing=Hashing(n_features=8, alternate_sign=True))[0]
    assert np.array_equal(found.toarray(), expected.toarray())
    assert (expected.data == 0).any()
    assert not (found.data == 0).any()


def test_every_line_is_a_document_when_there_are_no_labels():
    rows, labels, lines, _, _ = parse(b"\xef\xbb\xbfone\tone\r\n\ntwo", labelled=False)
    assert equal(rows, vectorized(["one one", "", "two"]))
    assert (labels, lines) == ([[], [], []], [0, 1, 2])


def test_blank_lines_between_labelled_documents_are_passed_over():
    _, labels, lines, progress, _ = parse(b"a\tx\n\n \t\r\nb\ty\n")
    assert (labels, lines, progress.lines, progress.skipped) == ([["a"], ["b"]], [0, 3], 4, 0)


def test_several_labels():
    plain = parse(b"a,7,b\tx\n\ty\nb\tz\n", multilabel=True)
    lists = parse(
        b'{"text": "x", "label": ["a", 7, "b"]}\n{"text": "y", "label": []}\n{"text": "z", "label": ["b"]}',
        multilabel=True,
        **JSON,
    )
    assert plain[1] == lists[1] == [["a", 7.0, "b"], [], ["b"]]


def test_weights():
    options = {**JSON, "weight_column": "w"}
    batches = parse(b'{"text": "x", "label": 1, "w": 2}\n{"text": "y", "label": 1, "w": 0.5}\n', **options)[4]
    assert batches[0].weights.tolist() == [2.0, 0.5]
    assert batches[0].weights.dtype == np.float32


PLAIN = [
    (
        b"a document",
        {},
        '"a document": expected LABEL<TAB>DOCUMENT; documents alone are for ingest --unlabelled, and predict',
    ),
    (b"\tdocument", {}, '"\\tdocument": the label is empty'),
    (b"a\tx\xffy", {}, '"a\\tx\\xffy": byte 4 of the line is not UTF-8; ' + ENCODED),
    (b"a,,b\tx", {"multilabel": True}, '"a,,b\\tx": the label is empty'),
    (b"1,b,1.0\tx", {"multilabel": True}, '"1,b,1.0\\tx": a label is given twice'),
]
OBJECTS = [
    (b"{", {}, "not JSON (Expecting property name enclosed in double quotes: line 1 column 2 (char 1))"),
    (b"[1]", {}, "expected a JSON object with named fields"),
    (b'{"label": 1}', {}, 'field "text" is missing'),
    (b'{"label": 1, "text": "a", "text": "b"}', {}, 'the field "text" occurs twice'),
    (b'{"label": 1, "text": null}', {}, 'field "text" is null'),
    (b'{"label": 1, "text": 5}', {}, 'field "text" must be a string'),
    (b'{"label": 1, "text": "\\ud800"}', {}, 'field "text" has a lone surrogate, which is no character'),
    (b'{"text": "x"}', {},
     'field "label" is missing; documents without labels are for ingest --unlabelled, and predict'),
    (b'{"text": "x", "label": ""}', {}, "the label is empty"),
    (b'{"text": "x", "label": {}}', {}, 'field "label" must hold a word or a number'),
    (b'{"text": "x", "label": NaN}', {},
     'field "label" is NaN; documents without labels are for ingest --unlabelled, and predict'),
    (b'{"text": "x", "label": 1e999}', {}, 'field "label" must hold a word or a number'),
    (b'{"text": "x", "label": "\\udc00"}', {}, "the label has a lone surrogate, which is no character"),
    (b'{"text": "x", "label": [1]}', {},
     'field "label" is a list; several labels in a row are read with --multilabel of ingest and train only'),
    (b'{"text": "x", "label": 1}', {"multilabel": True}, 'field "label" must be a list of labels'),
    (b'{"text": "x", "label": [1, "1"]}', {"multilabel": True}, "a label is given twice"),
    (b'{"text": "x", "label": 1}', {"weight_column": "w"}, 'field "w" is missing'),
    *[
        (b'{"text": "x", "label": 1, "w": %b}' % weight, {"weight_column": "w"},
         'field "w" must be a number that is finite and not negative')
        for weight in (b"-1", b"1e39", b"NaN", b"true", b'"1"')
    ],
]  # fmt: skip


@pytest.mark.parametrize(("line", "options", "message"), PLAIN)
def test_refused_plain_lines(line, options, message):
    check_refusal(line, options, message)


@pytest.mark.fast_cases(
    r"\{-options0", '\\{"label": 1, "text": "a"', '\\{"label": 1, "text": "\\\\ud800"\\}',
    '\\{"text": "x", "label": \\{\\}\\}', '\\{"text": "x", "label": "\\\\udc00"\\}', '\\{"text": "x", "label": \\[1,',
    '\\{"text": "x", "label": 1, "w": 1e39\\}', '\\{"text": "x", "label": 1, "w": "1"\\}',
)  # fmt: skip
@pytest.mark.parametrize(("line", "options", "message"), OBJECTS)
def test_refused_json_lines(line, options, message):
    shown = line.decode()
    quoted = shown if len(shown) <= 60 else f"{shown[:60]}..."
    check_refusal(line, {**JSON, **options}, f'"{quoted}": {message}')


def check_refusal(line, options, message):
    good = b'{"text": "x", "label": 1, "w": 1}' if "text_column" in options else b"1\tx"
    if options.get("multilabel"):
        good = good.replace(b'"label": 1', b'"label": [1]')
    text = b"\n".join([good, line, good])
    assert raised(BadInputError, parse, text, **options) == f"a.txt:2: {message}"
    rows, _, lines, progress, _ = parse(text, skip_errors=True, **options)
    assert (rows.shape[0], lines) == (2, [0, 2])
    assert (progress.skipped, progress.skipped_first) == (1, [(1, message)])
