"""The kernel reads plain tables with dates as batches of Arrow and Python's reader do, and leaves the rest to them."""

import datetime
import tempfile
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from helpers import examples
from hypothesis import example, given
from hypothesis import strategies as st

import distls
from distls.ingestion.request.source_start import source_file
from distls.storage.dataset.chunks import BufferPool
from distls.testing.formats import read_all
from distls.workers.compilation.jit import kernel
from distls.workers.ingestion.formats import plain_csv, plain_rows
from distls.workers.ingestion.formats.mixed_columns import date_parts
from distls.workers.ingestion.formats.plain_rows import TABLE_READER
from distls.workers.ingestion.formats.table_columns import Dialect, Feature, TableOptions
from distls.workers.ingestion.parsing import row_cuts
from distls.workers.ingestion.parsing.csv_kernels import store_date
from distls.workers.ingestion.parsing.row_cuts import row_items
from distls.workers.ingestion.records.record_batch import Progress, ReadRun
from distls.workers.ingestion.survey_task import SurveySpec, survey_table

pytest.importorskip("pyarrow")
COLUMNS = ("id", "a", "c", "when", "time", "w", "y")


def options(impute="", na="", style="dmy", label_words=True, width=7):
    features = (
        Feature("a", impute=impute and "median"),
        Feature("c", categories=("", "é", 'q"', "x", "y"), impute=impute and "category"),
        Feature("when", kind="date", width=width, style=style, impute=impute and "median"),
        Feature("time", kind="date", width=2, style="time", impute=impute and "median"),
    )
    return TableOptions(
        columns=COLUMNS, label="y", weight="w", id_column="id", features=features, na=na, source="csv",
        dialect=Dialect(header=True), skip_errors=True, label_words=label_words,
    )  # fmt: skip


def item_of(folder, content):
    path = Path(folder) / "a.csv"
    path.write_bytes(content)
    return row_items([source_file(path)], ",", 2**20)[0]


def patched(patch, kernel, few_dates):
    patch.setattr(plain_rows, "_SMALL", 0 if kernel else 2**60)
    patch.setattr(plain_rows, "_FEW_DATES", few_dates)
    patch.setattr(row_cuts, "_LARGE", 0)
    patch.setattr(plain_csv, "PIECE_BYTES", 60)


def rows_of(content, read, kernel, offset=0, few_dates=4096):
    """Return the records of a file with their lines, ids and weights, what was counted, and where batches end."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patched(patch, kernel, few_dates)
        progress, rows, ends = Progress(offset=offset, lines=offset), [], []
        n_features = sum(feature.size for feature in read.features)
        run = ReadRun(read, progress, 0, n_features, 2**20, BufferPool())
        for batch in TABLE_READER.batches(item_of(folder, content), run):
            for row, (line, own) in enumerate(zip(batch.row_line.tolist(), batch.ids.texts(), strict=True)):
                words = batch.words[batch.row_at[row] : batch.row_at[row + 1]].tobytes()
                rows.append((line, words, own, float(batch.weights[row])))
            ends.append(progress.offset)
        return rows, asdict(progress) | {"gaps": progress.gaps > 0, "skipped_since": None}, ends


blank = st.sampled_from(["", "", "", " ", "\t", "\xa0", "\x0b"])
numbers = st.sampled_from(["1", "-2.5", "1e-3", "0.1", "", "NA", "true", "007", "16777217", "1e39", "x", "+.5"])
words = st.sampled_from(["x", "y", "z", "é", "", "?", 'q"', "1", "a b"])
written = st.sampled_from(
    ["2024-01-31", "31.1.2024", "2024-01-31 10:05", "2024-01-31T10:05:01.25Z", "Jan 3, 2024", "", "NA", "2024-02-30",
     "x", "1/2/03", "20240131", "2024-01-31 10:05",
     "2024-02-29", "2023-02-29", "2100-02-29", "0000-01-01", "2024-13-01", "2024-1-02", "2024-01-02 24:30",
     "2024-01-02 10:60", "2024-01-02 10:05:60.9", "2024-01-02 10:05:61", "2024-01-02 1:05", "2024/01/02T10:05:01+01:00",
     "2024.01.02 10:05:01-0130", "2024-01-02 10:05:01.+01", "2024-01-02Z", "2024-01-02 10:05Z+", "2024-01-02 10:05+1",
     "2024-01/02", "2024-01-02  10:05", "2024-01-02 10:05:01.12345678901234567", "2024-01-02 10:05:01.1234567890123"]
)  # fmt: skip
forms = st.sampled_from(
    ["%Y-%m-%d", "%Y-%m-%d %H:%M", "%Y/%m/%dT%H:%M:%SZ", "%Y-%m-%d %H:%M:%S.%f", "%Y.%m.%d %H:%M:%S+0200"]
)
moments = st.datetimes(datetime.datetime(1000, 1, 1)), forms
dates = st.one_of(written, *[st.tuples(*moments).map(lambda pair: pair[0].strftime(pair[1]))] * 2)
times = st.one_of(
    st.sampled_from(["13:45", "1:02:03.5 pm", "", "25:00", "24:59:60.99", "10:0", "10:05:1", "10:05Z"]),
    st.times().map(str),
)


def field(values):
    quoted = st.tuples(blank, values, blank).map(lambda v: '"' + "".join(v).replace('"', '""') + '"')
    return st.tuples(blank, st.one_of(values, values, quoted), blank).map("".join)


rows = st.tuples(
    *map(field, (words, numbers, words, dates, times, st.sampled_from(["1", "0.5", "-1", ""]), words))
).map(",".join)
lines = st.lists(
    st.one_of(*[rows] * 12, st.sampled_from(["", " ", "1,2", '1,2,"x\n",2024-01-31,1:00,1,x'])), max_size=12
)


def good(n, when="2024-01-{:02}"):
    return [f"{k},{k}.5,x,{when.format(k % 28 + 1)},1:{k % 60:02},1,{'yz'[k % 2]}" for k in range(n)]


@examples(150)
@given(
    lines,
    st.sampled_from(["", "impute"]),
    st.sampled_from(["", "7"]),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from([0, 3, 4096]),
    st.sampled_from([5, 7]),
)
@example(good(20), "", "", "\n", 4096, 7)
@example(good(20, "2024-01-{0:02} 1{0:02}:{0:02}:01.5"), "", "", "\n", 3, 5)
@example([*good(9), *good(2), " ", *good(2)], "", "", "\n", 4096, 7)
@example([*good(9), '1,2,"x"" ",2024-01-31,1:00,1,x', *good(2)], "impute", "", "\r\n", 0, 7)
def test_both_read_the_same(rows, impute, na, end, few_dates, width):
    content = (end.join([",".join(COLUMNS), *rows]) + end).encode()
    read = options(impute, na, width=width)
    found = rows_of(content, read, True, few_dates=few_dates)
    assert found[:2] == rows_of(content, read, False)[:2]
    # read on from any batch, the others are the same
    for stop in found[2][:2]:
        again = rows_of(content, read, True, stop, few_dates)
        assert again[2] == [end for end in found[2] if end > stop]
        assert again[0] == found[0][len(found[0]) - len(again[0]) :]


def survey_of(content, read, kernel):
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patched(patch, kernel, 4096)
        spec = SurveySpec(None, "survey", read, {2: 3}, (1, 6), 2**20)
        found = survey_table(item_of(folder, content), spec)
        return {name: found[name] for name in ("words", "values")}


@examples(150)
@given(lines)
@example(good(20))
def test_both_find_the_same_columns(rows):
    content = "".join(f"{line}\n" for line in (",".join(COLUMNS), *rows)).encode()
    read = options()
    assert survey_of(content, read, True) == survey_of(content, read, False)


def test_plain_rows_are_read_by_the_kernel(monkeypatch):
    monkeypatch.setattr(plain_rows.TableReader.__mro__[1], "batches", None)
    content = "\n".join([",".join(COLUMNS), *good(50)]).encode()
    assert [line for line, *_ in rows_of(content, options(), True)[0]] == [*range(1, 51)]


def test_dates_that_do_not_recur_are_read_by_the_kernel(monkeypatch):
    monkeypatch.setattr(plain_rows.TableReader.__mro__[1], "batches", None)
    rows = good(40, "2024-01-{0:02} 10:{0:02}")
    content = "\n".join([",".join(COLUMNS), *[row.replace(",1:", ",01:") for row in rows]]).encode()
    assert [line for line, *_ in rows_of(content, options(), True, few_dates=9)[0]] == [*range(1, 41)]


def test_dates_of_other_widths_that_do_not_recur_are_left_to_arrow():
    content = "\n".join([",".join(COLUMNS), *good(40, "2024-01-{0:02} 1:{0:02}")]).encode()
    found = rows_of(content, options(), True, few_dates=9)
    assert 0 < found[2][0] < 12
    assert found[0] == rows_of(content, options(), False)[0]


@examples(150)
@given(st.lists(st.tuples(*moments), min_size=50, max_size=50))
def test_dates_of_fixed_width_have_the_bits_of_others(pairs):
    texts = [moment.strftime(form) for moment, form in pairs]
    buffer = np.array([*"".join(f"{text:\n<40}" for text in texts).encode()], np.uint8)
    values = np.zeros((len(texts), 7))
    assert store_dates(buffer, np.array([len(text) for text in texts]), values)
    assert values.tobytes() == np.array([date_parts(text, "dmy") for text in texts]).tobytes()


@kernel
def store_dates(buffer, sizes, values):
    found = True
    for k in range(len(sizes)):
        found &= store_date(buffer, 40 * k, 40 * k + sizes[k], values[k], 0, True)
    return found


def test_a_large_table_with_dates_is_one_whoever_reads_it(tmp_path, monkeypatch):
    text = "a,c,when,y\n" + "".join(
        f"{k % 91},{'uvw'[k % 3]},{1 + k % 28}.{1 + k % 12}.20{k % 24:02},{k % 2}\n" for k in range(30_000)
    )
    (tmp_path / "a.csv").write_text(text)
    found = []
    for small in (0, 2**60):
        monkeypatch.setattr(plain_rows, "_SMALL", small)
        distls.ingest(tmp_path / "a.csv", tmp_path / f"{small}", label_column="y", shuffle=False)
        data = distls.open_dataset(tmp_path / f"{small}")
        found.append((data.feature_names(), *(part.tobytes() for part in read_all(data)[:2])))
    assert found[0] == found[1]
