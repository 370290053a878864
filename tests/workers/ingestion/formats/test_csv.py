"""Separated text to records: the kernel against Python's csv and float, refusals with exact messages."""

import csv
import functools
import io
import math
from dataclasses import replace

import numpy as np
import parser_helpers
import pytest
from helpers import examples
from hypothesis import example, given
from hypothesis import strategies as st
from parser_helpers import block_of, labels_of, located, run_of, sparse_records

from distls.storage.errors import BadInputError
from distls.workers.ingestion.formats import csv as csv_reader
from distls.workers.ingestion.formats.csv import DelimitedParser
from distls.workers.ingestion.formats.table_columns import Dialect, Feature, TableOptions
from distls.workers.ingestion.parsing.record_kernels import gather_dense
from distls.workers.ingestion.records.labels import label_value
from distls.workers.ingestion.records.messages import ENCODED, MISSING_VALUE, NO_LABEL, NO_NUMBER, too_large


@pytest.fixture(autouse=True)
def _kernel(monkeypatch):
    # also where it is not compiled yet: few rows are then read without
    monkeypatch.setattr(csv_reader, "kernel_is_ready", lambda: True)


def table(columns, label="y", **options):
    """Options for columns named by letters; those of `categories` are no numbers."""
    categories = options.pop("categories", {})
    weight = options.get("weight", "")
    features = tuple(
        Feature(name, tuple(categories[name]) if name in categories else None)
        for name in columns
        if name not in (label, weight)
    )
    return TableOptions(columns=tuple(columns), label=label, features=features, **options)


def parse(text, options):
    """Return (rows, labels, weights, lines, progress)."""
    run = run_of(options)
    rows, labels, weights, lines = [], [], [], []
    with located("f.csv"):
        for batch in DelimitedParser(run).parse(block_of(text, starts_file=True)):
            values, _ = labels_of(batch, int(batch.words[batch.row_at[:-1] + 1].sum()))
            labels += [batch.label_words.get(value, value) for value in values.tolist()]
            weights += [] if batch.weights is None else batch.weights.tolist()
            lines += batch.row_line.tolist()
            rows += _rows(batch, options)
    return rows, labels, weights, lines, run.progress


def _rows(batch, options):
    n, width = len(batch.row_line), sum(feature.size for feature in options.features)
    dtype = np.float64 if options.float64 else np.float32
    rows = np.zeros((n, width), dtype)
    if options.dense:
        gather_dense(batch.words, batch.row_at[:-1], 0, rows)
        return rows.tolist()
    (indptr, indices, data), *_ = sparse_records(batch, options.float64)
    assert np.all(data != 0)
    rows[np.repeat(np.arange(n), np.diff(indptr)), indices] = data
    return rows.tolist()


refusal = functools.partial(parser_helpers.refusal, parse)


# -- numbers ---------------------------------------------------------------------------------------------

NUMBER = st.one_of(
    st.floats(-1e30, 1e30).map(repr),
    st.integers(-(10**12), 10**25).map(str),
    st.from_regex(r"-?[0-9]{1,22}\.[0-9]{0,22}", fullmatch=True),
    st.from_regex(r"[+-]?[0-9]{1,3}[eE][+-]?[0-9]", fullmatch=True),
)


@examples(300)
@given(
    st.lists(st.lists(NUMBER, min_size=3, max_size=3), min_size=1, max_size=5),
    st.sampled_from([",.", ";.", "\t.", "|.", " .", ";,", "\t,"]),
)
@example([["9007199254740993.00000000000000000000001", "1", "2"]], ",.")
@example([["0.500000014901161193847656250000000001", "-0", "+7."]], ";,")
def test_every_number_is_pythons_float(rows, marks):
    separator, decimal = marks
    text = "".join(separator.join(row).replace(".", decimal) + "\r\n" for row in rows).encode()
    dialect = Dialect(separator, decimal=decimal)
    found, labels, *_ = parse(text, table("aby", dialect=dialect, float64=True))
    assert found == [[float(field) for field in row[:2]] for row in rows]
    assert labels == [float(row[2]) for row in rows]


@pytest.mark.parametrize(
    ("text", "value"),
    [("1.234,5", 1234.5), ("-1.234.567", -1234567), *((t, None) for t in ("1.5", "1234.567", "1.23,4", "1,2,3"))],
)
def test_points_with_a_decimal_comma_are_between_thousands(text, value):
    options = table("ay", dialect=Dialect(";", decimal=","))
    if value is None:
        assert refusal(f"{text};0\n".encode(), options).endswith(f"a value must be a decimal number{NO_NUMBER}")
    else:
        assert parse(f"{text};0\n".encode(), options)[0] == [[value]]


@examples(100)
@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1))
def test_float32_values_round_trip(values):
    text = "".join(f"{value!r},0\n" for value in values).encode()
    assert parse(text, table("ay"))[0] == [[value] for value in values]


# -- fields ----------------------------------------------------------------------------------------------

WORDS = st.text(st.sampled_from("ab,\"é; 'x1"), min_size=1, max_size=12).filter(lambda w: w.strip() == w)


@examples(300)
@given(
    st.lists(st.tuples(WORDS, st.integers(0, 99), WORDS), min_size=1, max_size=8),
    st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC]),
)
def test_what_pythons_csv_writes_is_read_back(rows, quoting):
    file = io.StringIO()
    csv.writer(file, quoting=quoting).writerows(rows)
    kinds = sorted({word for word, _, _ in rows})
    options = table("wny", categories={"w": kinds}, label_words=True)
    found, labels, *_ = parse(file.getvalue().encode(), options)
    assert found == [[*(float(word == kind) for kind in kinds), float(n)] for word, n, _ in rows]
    assert [label_value(label) for label in labels] == [label_value(word) for _, _, word in rows]


def test_quotes_blanks_and_line_ends():
    text = b'\xef\xbb\xbf "1" , x y,"a""b" \r\n\n  \t\n2,"x y",5" pipe\r\n"3", x y ,"a,b"'
    options = table("nwy", categories={"w": ["x y"]}, label_words=True)
    rows, labels, _, lines, progress = parse(text, options)
    assert rows == [[1, 1], [2, 1], [3, 1]]
    assert labels == ['a"b', '5" pipe', "a,b"]
    assert lines == [0, 3, 4]
    assert (progress.lines, progress.offset) == (5, len(text))


def test_a_header_is_passed_over_once():
    text = b"\nn,y\n1,0\n2,1\n"
    assert parse(text, table("ny", dialect=Dialect(header=True)))[3] == [2, 3]
    parser = DelimitedParser(run_of(table("ny", dialect=Dialect(header=True))))
    assert sum(len(b.row_line) for b in parser.parse(block_of(b"1,0\n2,1\n"))) == 2


def test_missing_values_are_replaced():
    options = table("nwy", categories={"w": ["-1", "b"]}, na="-1")
    rows, *_ = parse(b',b,0\nNA,?,1\nNaN,"",2\n nan ,b,3\n?,-1,3\n', options)
    assert rows == [[-1, 0, 1], [-1, 1, 0], [-1, 1, 0], [-1, 0, 1], [-1, 1, 0]]
    assert parse(b'"",0\n', table("ny", na="7.5"))[0] == [[7.5]]


def test_unseen_categories_are_zeros_and_counted():
    options = table("nwy", categories={"w": ["a", "b"]}, na="9")
    rows, _, _, _, progress = parse(b"1,b,0\n2,c,0\n3,,1\n4,\xff,1\n", options)
    assert rows == [[1, 0, 1], [2, 0, 0], [3, 0, 0], [4, 0, 0]]
    assert (progress.unseen, progress.unseen_first) == (3, (1, 'column "w": "c"'))


def test_weights_labels_and_skipped_columns():
    options = TableOptions(
        columns=("id", "y", "a", "w", "b"), label="y", weight="w", features=(Feature("b"), Feature("a"))
    )
    rows, labels, weights, *_ = parse(b'x"1,3,10,0.5,20\nNA,-0,11,0,21\n', options)
    # the features have their own order
    assert (rows, labels, weights) == ([[20, 10], [21, 11]], [3, 0], [0.5, 0])
    unlabelled = table("ab", label="")
    assert parse(b"1,2\n", unlabelled)[:2] == ([[1, 2]], [])


def test_many_words_and_long_rows(monkeypatch):
    monkeypatch.setattr("distls.workers.ingestion.records.reader._BATCH_WORDS", 64)
    kinds = sorted({f"kind {k}" for k in range(20_000)})
    options = table("wny", categories={"w": kinds}, label_words=True)
    text = "".join(f"kind {k},{k},label {k % 7000}\n" for k in range(0, 20_000, 3))
    parser = DelimitedParser(run_of(options))
    place = {kind: k for k, kind in enumerate(kinds)}
    found, names = [], []
    for batch in parser.parse(block_of(text.encode())):
        found += [(int(batch.words[at + 4]), int(batch.words[at])) for at in batch.row_at[:-1].tolist()]
        names += [batch.label_words[value] for value in labels_of(batch, len(batch.row_line))[0].tolist()]
    wanted = range(0, 20_000, 3)
    assert found == [(place[f"kind {k}"], 2 if k else 1) for k in wanted]
    assert names == [f"label {k % 7000}" for k in wanted]
    wide = ",".join(["1"] * 500)
    columns = tuple(map(str, range(500)))
    wide_options = TableOptions(columns=columns, features=tuple(map(Feature, columns)))
    assert parse(f"{wide}\n{wide}\n".encode(), wide_options)[0] == [[1.0] * 500] * 2


# -- what is refused -------------------------------------------------------------------------------------


@pytest.mark.fast_cases('1,a-"1', '1,a,0,-"1', "1_0", "-Inf", ",a", "1,a,x", "1,a,-column", '1,a,"0""')
@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1,a", '"1,a": 2 fields where there should be 3'),
        ("1", '"1": 1 field where there should be 3'),
        ('1,a,0,"x,y"', '"1,a,0,"x,y"": 4 fields where there should be 3'),
        ("1,a,0,", '"1,a,0,": 4 fields where there should be 3'),
        ("12x3,a,0", f'column "n": "12x3": a value must be a decimal number{NO_NUMBER}'),
        ("1_0,a,0", 'column "n": "1_0": a value must be written as a plain decimal number'),
        ("0x10,a,0", f'column "n": "0x10": a value must be a decimal number{NO_NUMBER}'),
        ("1 2,a,0", f'column "n": "1 2": a value must be a decimal number{NO_NUMBER}'),
        ("-Inf,a,0", 'column "n": "-Inf": a value must be finite'),
        ('"1e39",a,0', 'column "n": "1e39": the value does not fit into float32' + too_large(1e39)),
        ("-340282356779733661637539395458142568448,a,0",
         f'column "n": "-340282356779733661637539395458142568448": the value does not fit into float32{too_large(1)}'),
        (",a,0", 'column "n": "": ' + MISSING_VALUE),
        ("NA,a,0", 'column "n": "NA": ' + MISSING_VALUE),
        ("1, ? ,0", 'column "w": "?": ' + MISSING_VALUE),
        ("1,a,x", 'column "y": "x": a label must be a decimal number'),
        ("1,a,1e999", 'column "y": "1e999": a label must be finite'),
        ("1,a,", 'column "y": "": the row has no label; --drop unknown leaves such rows out'),
        ('1,"a"b,0', 'column "w": ""a"b": text after a closing quote; a quote between quotes is doubled'),
        ('1,"a,0', 'column "w": ""a,0": no closing quote on the line'),
        ('1,a,"0""', 'column "y": ""0""": no closing quote on the line'),
    ],
)  # fmt: skip
def test_refusals_name_line_column_text_and_rule(line, message):
    options = table("nwy", categories={"w": ["a"]})
    assert refusal(f"n,w,y\n1,a,0\n\n{line}\n1,a,0\n".encode(), _headed(options)) == f"f.csv:4: {message}"


def _headed(options):
    return replace(options, dialect=Dialect(header=True))


def test_refusals_that_depend_on_options():
    weighted = table("nwy", weight="w")
    rule = "a sample weight must be a number that is finite and not negative"
    for weight in ("-1", "x", "", "1e40", "inf"):
        assert refusal(f"1,{weight},0\n".encode(), weighted) == f'f.csv:1: column "w": "{weight}": {rule}'
    words = table("ny", label_words=True, na="0")
    assert refusal(b"1,NA\n", words) == f'f.csv:1: column "y": "NA": {NO_LABEL}'
    assert refusal(b"1,b\n1,\xff\n", words) == 'f.csv:2: column "y": "\\xff": a label must be UTF-8 text; ' + ENCODED
    wide = table("ny", float64=True)
    reason = 'f.csv:1: column "n": "1e309": the value does not fit into float64'
    assert refusal(b"1e309,0\n", wide) == reason + too_large(math.inf)


def test_skipped_rows_are_counted_and_reported():
    options = table("nwy", categories={"w": ["a"]}, skip_errors=True)
    text = b"1,a,0\nx,a,0\n2,a,1\n3,b\n" + b"4,a,\n" * 20 + b"5,zz,1,1\n6,zz,1\n"
    rows, labels, _, lines, progress = parse(text, options)
    assert (rows, labels, lines) == ([[1, 1], [2, 1], [6, 0]], [0, 1, 1], [0, 2, 25])
    assert progress.skipped == 23
    assert len(progress.skipped_first) == 10
    assert progress.skipped_first[:2] == [
        (1, f'column "n": "x": a value must be a decimal number{NO_NUMBER}'),
        (3, '"3,b": 2 fields where there should be 3'),
    ]
    # of rows that are read only
    assert (progress.unseen, progress.unseen_first) == (1, (25, 'column "w": "zz"'))


def test_an_open_quote_is_never_skipped():
    # its other lines could look like rows
    options = table("nwy", categories={"w": ["a"]}, skip_errors=True)
    assert refusal(b'1,"a\n2,a,0\nb",1\n', options) == ('f.csv:1: column "w": ""a": no closing quote on the line')


@examples(300)
@given(st.text(st.sampled_from('a1,". \n\r\t-NA'), max_size=40))
def test_any_text_is_read_as_python_reads_it_or_refused(text):
    options = table("aby", categories={"b": ["a"]}, label_words=True, na="0")
    try:
        rows, labels, _, lines, _ = parse(text.encode(), options)
    except BadInputError:
        return
    kept = [line for line in text.split("\n") if line.strip(" \t\r")]
    assert len(rows) == len(labels) == len(lines) == len(kept)
    for row, label, line in zip(rows, labels, kept, strict=True):
        a, b, y = (field.strip(" \t\r") for field in _fields(line))
        assert row == [float(a) if a not in ("", "NA") else 0.0, float(b == "a")]
        assert label_value(label) == label_value(y)


def _fields(line):
    """Split by hand: csv.reader takes text after a closing quote and no blank before an opening one."""
    fields, rest = [], line.rstrip("\r")
    while True:
        rest = rest.lstrip(" \t\r")
        if rest.startswith('"'):
            end = 1
            while rest[end] != '"' or rest[end + 1 : end + 2] == '"':
                end += 2 if rest[end] == '"' else 1
            fields.append(rest[1:end].replace('""', '"'))
            _, comma, rest = rest[end + 1 :].partition(",")
        else:
            field, comma, rest = rest.partition(",")
            fields.append(field)
        if not comma:
            return fields
