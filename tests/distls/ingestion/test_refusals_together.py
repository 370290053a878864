"""What is wrong with a file comes together: columns, lines and counts; and nothing is left out unsaid."""

import bz2
import gzip
import json
import lzma

import pandas as pd
import pytest
from helpers import refuses

import distls
from distls import ingest, open_dataset
from distls.ingestion.formats.column_kinds import Samples
from distls.ingestion.request.source_start import source_file
from distls.storage.errors import BadInputError, DistlsError, MismatchError
from distls.testing.formats import read_all
from distls.workers.ingestion.formats import documents, plain_csv, table_records
from distls.workers.ingestion.formats.table_columns import TableOptions
from distls.workers.ingestion.parsing.text_blocks import TextItem
from distls.workers.ingestion.records import reader

pyarrow = pytest.importorskip("pyarrow")


def zstd(data):
    return pyarrow.compress(data, "zstd", asbytes=True)


def gapped(suffix=""):
    """Return rows of which 2, 4 and 6 lack ``a``, 4 and 5 ``b``, and 8 the label."""
    lacks = {"a": (2, 4, 6), "b": (4, 5), "y": (8,)}
    return [
        {name: None if row in lacks.get(name, ()) else value for name, value in values.items()}
        for row in range(12)
        for values in [{"a": row + 0.5, "b": row * 2.5, "text": f"w{row} is a long text{suffix}", "y": row % 2}]
    ]


@pytest.mark.parametrize("name", ["kernel.csv", "mixed.csv", "a.jsonl", "a.parquet", "frame"])
def test_missing_values_of_all_columns_are_told_at_once(tmp_path, name):
    frame = pd.DataFrame(gapped())
    frame = frame.drop(columns="text") if name == "kernel.csv" else frame
    frame["y"] = frame["y"].astype("Int64")
    path, options = tmp_path / name, {"na_values": ()}
    if name.endswith(".csv"):
        frame.to_csv(path, index=False)
    elif name == "a.parquet":
        frame.to_parquet(path, index=False)
    elif name == "a.jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in gapped()))
        options = {"kind": "text=text"}
    with pytest.raises(BadInputError) as caught:
        ingest(frame if name == "frame" else path, tmp_path / "d", label_column="y", **options)
    message, lines = str(caught.value), {"csv": ":4", "jsonl": ":3"}.get(name.rpartition(".")[2], ", row 2")
    assert f'{lines}: column "a": ' in message
    assert "--na VALUE" in message
    assert "--impute" in message
    assert "5 of 1" in message
    for count, column in ((3, "a"), (1, "b"), (1, "y")):
        assert f'column "{column}": the ' in message
        assert f"({count}, from " in message.partition('refused: column "a"')[2]
    assert "\n" not in message
    report = ingest(frame if name == "frame" else path, tmp_path / "d", label_column="y", on_error="skip", **options)
    assert (report.rows, report.skipped) == (7, 5)


@pytest.mark.parametrize("name", ["kernel.csv", "mixed.csv", "a.jsonl", "a.parquet", "frame"])
def test_reading_stops_after_many_refused_rows(tmp_path, monkeypatch, name):
    """What was read is counted exactly; rows that lack a label, which may be left out, stop nothing."""
    monkeypatch.setattr(reader, "_MOST_REFUSED", 5)
    rows = [{"a": None if k % 3 == 0 else k + 0.5, "t": f"a text of {k} words", "y": k % 2} for k in range(60)]
    frame = pd.DataFrame(rows).drop(columns="t" if name == "kernel.csv" else [])
    path = tmp_path / name

    def source(frame):
        if name.endswith(".csv"):
            frame.to_csv(path, index=False)
        elif name == "a.parquet":
            frame.to_parquet(path, index=False)
        elif name == "a.jsonl":
            path.write_text("".join(json.dumps(row) + "\n" for row in frame.astype(object).to_dict("records")))
        return frame if name == "frame" else path

    options = {"label_column": "y"} | ({} if name == "kernel.csv" else {"kind": "t=text"})
    lines = 14 if name == "kernel.csv" else 13  # with the header
    with pytest.raises(
        BadInputError, match=r'column "a": .*; 5 of \d+ (lines|rows) read .*, and no more are read'
    ) as caught:
        ingest(source(frame.where(frame.notna(), None)), tmp_path / "d", **options)
    assert f" 5 of {lines} " in str(caught.value) or name == "mixed.csv"
    frame["a"], frame["y"] = 1.5, [None if k % 4 else "ab"[k % 8 == 0] for k in range(60)]
    report = ingest(source(frame), tmp_path / "e", drop="unknown", **options)
    assert (report.rows, report.skipped) == (15, 0)


def test_columns_of_another_table_are_told_at_once(tmp_path):
    frame = pd.DataFrame({name: range(8) for name in "abcd"}).assign(y=[0, 1] * 4)
    ingest(frame, tmp_path / "d", label_column="y")
    with pytest.raises(MismatchError, match='no column "a", "c", which are features'):
        ingest(frame.drop(columns=["a", "c"]), tmp_path / "e", like=tmp_path / "d")
    with pytest.raises(MismatchError, match='columns "e", "f" are none'):
        ingest(frame.assign(e=1, f=2), tmp_path / "e", like=tmp_path / "d")
    with pytest.raises(BadInputError, match=r'"a" is of type .*"c" is of type .*--ignore-columns "a,c"'):
        ingest(frame.assign(a=[b"x"] * 8, c=[b"x"] * 8), tmp_path / "e", label_column="y")
    (tmp_path / "a.csv").write_text("a,a,b,b,y\n1,2,3,4,0\n1,2,3,4,1\n")
    refuses(DistlsError, 'two columns are named "a", "b"', ingest, tmp_path / "a.csv", tmp_path / "e", label_column="y")


def write_json(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.parametrize("several", [False, True])
def test_fields_of_late_records_are_columns(tmp_path, several):
    rows = [{"y": k % 2, "a": k} | ({"late": k / 2, "word": "uv"[k % 2]} if k > 600 else {}) for k in range(620)]
    files = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"][: 1 + several]
    write_json(files[0], rows[: 510 if several else None])
    if several:
        write_json(files[1], rows[510:])
    ingest(files, tmp_path / "d", label_column="y", impute="constant:0", shuffle=False)
    data = open_dataset(tmp_path / "d")
    assert data.feature_names() == ["a", "late", "word=0", "word=u", "word=v"]
    assert read_all(data)[0][-1].tolist() == [619, 309.5, 0, 0, 1]
    with pytest.raises(BadInputError, match=r'jsonl:1: column "late": the value is missing'):
        ingest(files, tmp_path / "e", label_column="y", kind="a=number")
    write_json(tmp_path / "c.jsonl", [*rows, {**rows[-1], "more": 1}])
    refuses(MismatchError, '"more"', ingest, tmp_path / "c.jsonl", tmp_path / "e", like=tmp_path / "d")


def test_batches_of_text_have_bounded_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(table_records, "_CHUNK_BYTES", 4000)
    monkeypatch.setattr(plain_csv, "PIECE_BYTES", 3000)
    rows = [{"a": k, "text": "long " * (200 if k % 7 == 0 else 3)} for k in range(300)]
    write_json(tmp_path / "a.jsonl", rows)
    pd.DataFrame(rows).to_csv(tmp_path / "a.csv", index=False)
    for name, options in (("a.jsonl", {"source": "json"}), ("a.csv", {"source": "csv"})):
        file = source_file(tmp_path / name)
        dialect = TableOptions().dialect
        header = type(dialect)(header=True)
        reading = TableOptions(columns=("a", "text"), dialect=header, **options)
        batches = [each.batch for each in table_records.table_batches(
            TextItem(0, file, 0, file.size), reading, ["a", "text"], 10**6)]  # fmt: skip
        texts = [text for batch in batches for text in batch["text"].to_pylist()]
        assert [text.strip() for text in texts] == [row["text"].strip() for row in rows]
        assert max(sum(map(len, batch["text"].to_pylist())) for batch in batches) <= 4000


def test_the_separator_line_of_excel_is_no_row_of_a_mixed_table(tmp_path):
    (tmp_path / "a.csv").write_text("sep=;\nday;y\n" + "".join(f"2024-01-{k + 1:02};{k % 2}\n" for k in range(20)))
    report = ingest(tmp_path / "a.csv", tmp_path / "d", label_column="y")
    assert report.rows == 20
    assert open_dataset(tmp_path / "d").feature_names()[0] == "day[days]"


def test_kinds_are_found_in_all_files_whatever_their_order(tmp_path):
    days = pd.DataFrame({"day": [f"2024-01-{k + 1:02}" for k in range(20)], "y": [0, 1] * 10})
    words = days.assign(day=[f"{'xy'[k % 2]}" for k in range(20)])
    days.to_csv(tmp_path / "a.csv", index=False)
    words.to_csv(tmp_path / "b.csv", index=False)
    days.to_parquet(tmp_path / "a.parquet", index=False)
    words.to_parquet(tmp_path / "b.parquet", index=False)
    names = set()
    for k, order in enumerate(["ab", "ba"]):
        for suffix in ("csv", "parquet"):
            files = [tmp_path / f"{name}.{suffix}" for name in order]
            ingest(files, tmp_path / f"{k}{suffix}", label_column="y")
            names.add(tuple(open_dataset(tmp_path / f"{k}{suffix}").feature_names()))
    (found,) = names
    assert len(found) == 22


def test_a_label_too_large_for_a_number_is_no_word(tmp_path):
    (tmp_path / "a.csv").write_text("a,y\n" + "".join(f"{k},{k % 3}\n" for k in range(9)) + "1,9007199254740993\n")
    assert not any("--na-values" in notice for notice in ingest(tmp_path / "a.csv", tmp_path / "d",
                                                                label_column="y").notices)  # fmt: skip


def test_values_of_samples_that_are_missing_are_left_out():
    assert Samples({"a": ["", None, "x"]}).present("a") == ["x"]


def test_predictions_say_all_columns_that_lack(tmp_path):
    frame = pd.DataFrame({name: range(12) for name in "abc"}).assign(y=[0, 1] * 6)
    distls.train(frame, tmp_path / "m", label_column="y", method="gls", passes=1, notify=lambda _: None)
    with pytest.raises(MismatchError, match='"a", "b"'):
        distls.load_model(tmp_path / "m").predict(frame[["c"]])


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress, zstd])
def test_packed_records_are_read_by_lines(tmp_path, monkeypatch, pack):
    rows = [{"a": k, "w": "uv"[k % 2], "y": k % 2} for k in range(40)]
    (tmp_path / "a").write_bytes(pack("".join(json.dumps(row) + "\n" for row in rows).encode()))
    ingest(tmp_path / "a", tmp_path / "d", label_column="y", kind="a=number")
    assert open_dataset(tmp_path / "d").feature_names() == ["a", "w=u", "w=v"]
    monkeypatch.setattr(documents, "MAX_LINE", 20)
    with pytest.raises(BadInputError, match="a line of more than"):
        ingest(tmp_path / "a", tmp_path / "e", label_column="y", kind="a=number")
