"""A few rows of separated text read without the kernel: the kernel's states, words and records, bit for bit."""

import numpy as np
import pytest
from helpers import examples
from hypothesis import given
from hypothesis import strategies as st
from parser_helpers import block_of, run_of

from distls.workers.ingestion.formats import csv as csv_reader
from distls.workers.ingestion.formats.table_columns import Dialect, Feature, TableOptions
from distls.workers.ingestion.parsing.csv_field_kernels import Kind, State
from distls.workers.ingestion.records import few_rows
from distls.workers.ingestion.survey_task import SurveySpec, _ColumnReader

NUMBER = st.one_of(
    st.floats(-1e30, 1e30).map(repr),
    st.integers(-(10**17), 10**17).map(str),
    st.from_regex(r"[+-]?[0-9]{1,25}\.[0-9]{0,22}", fullmatch=True),
    st.sampled_from(["0", "-0", "007", "1e400", "1e-400", ".5", "5.", "+1E3", "16777217", "0.1", "."]),
)
ODD = st.sampled_from(
    ["", "NA", "true", "False", "inf", "nan", "x", "a b", " 1", "1 ", '"1"', "-", "é", "0x1"]
)
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
    rows = [
        [draw(FIELD[name[0]].filter(plain) if usual else FIELD[name[0]]) for name in names]
        for _ in range(n_rows)
    ]
    text = "".join(separator.join(row) + end for row in rows)
    return names, separator, text if draw(st.booleans()) else text.removesuffix(end)


def options_of(names, separator, *, na="", float64=False, words=True):
    features = tuple(
        Feature(name, ("1", "a b", "x", "y") if name[0] == "c" else None, impute="mean" * (name[0] == "g"))
        for name in names
        if name[0] in "ngc"
    )
    return TableOptions(
        columns=tuple(names),
        label="y" if "y" in names else "",
        weight="w" if "w" in names else "",
        features=features,
        label_words=words,
        na=na,
        float64=float64,
        dialect=Dialect(separator),
        skip_errors=True,
    )


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
    with pytest.raises(few_rows.NotPlainError):
        few.store(reader.slots, reader.records, {})
