"""Arrow reads plain separated text as Python's reader does, and leaves the rest to it."""

import csv
import io
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from distls.ingestion.request.source_start import source_file
from distls.workers.ingestion.formats import plain_csv, table_records
from distls.workers.ingestion.formats.document_records import Refused
from distls.workers.ingestion.formats.table_columns import Dialect, Feature, TableOptions
from distls.workers.ingestion.parsing.text_blocks import TextItem

pytest.importorskip("pyarrow")
COLUMNS = ("a", "b")


def rows_of(text, header, plain):
    """Return (line, fields, fault) of the rows of a file, read by Arrow as far as it is plain, or by Python."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        path = Path(folder) / "a.csv"
        path.write_bytes(text)
        if not plain:
            patch.setattr(table_records, "plain_batches", lambda *_: ())
        patch.setattr(plain_csv, "_PIECE_BYTES", 23)
        options = TableOptions(
            columns=COLUMNS,
            dialect=Dialect(header=header),
            source="csv",
            features=(Feature("b", kind="text"),),
        )
        item = TextItem(0, source_file(path), 0, len(text))
        found = []
        for batch, lines, faults in table_records.table_batches(item, options, list(COLUMNS), 3):
            for row, fields in enumerate(batch.to_pylist()):
                found.append((int(lines[row]), None if row in faults else fields, faults.get(row)))
        return found


fields = st.text(alphabet='ab1", \t;\n\ré\xa0', max_size=4)
files = st.one_of(
    st.lists(st.lists(fields, min_size=2, max_size=2), min_size=1, max_size=12).map(
        lambda rows: _written(rows, csv.QUOTE_MINIMAL)
    ),
    st.lists(st.lists(fields, min_size=1, max_size=3), min_size=1, max_size=8).map(
        lambda rows: "\n".join(",".join(row) for row in rows)
    ),
)


def _written(rows, quoting, end="\n"):
    file = io.StringIO()
    csv.writer(file, quoting=quoting, lineterminator=end).writerows(rows)
    return file.getvalue()


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(files.filter(str.strip), st.booleans(), st.sampled_from(["", "\ufeff"]))
@example('a,b\n1,"x, ""y"""\n2, z \n', True, "")
@example('sep=,\na,b\n1,2\n"",3', True, "")
@example("1,2\n" * 9 + '3,4"5\n6,7\n', False, "\ufeff")
@example("1,2\r\n3,4\r\n\r\n5,6\r\n", False, "")
def test_both_read_the_same(text, header, mark):
    content = (mark + text).encode()
    assert rows_of(content, header, True) == rows_of(content, header, False)


def test_wrong_bytes_and_widths_are_refused_at_their_lines():
    content = b"a,b\n" + b"1,2\n" * 20 + b"1,\xff\n1,2,3\n4,5\n"
    found = rows_of(content, True, True)
    assert found == rows_of(content, True, False)
    assert [line for line, _, fault in found if fault] == [21, 22]
    assert all(isinstance(fault, (str, Refused)) for _, _, fault in found if fault)


def test_plain_text_is_read_by_arrow(monkeypatch):
    monkeypatch.setattr(table_records, "_csv_records", None)
    content = ("a,b\n" + "".join(f'{k},"x, {k}"\n' for k in range(40))).encode()
    assert [line for line, *_ in rows_of(content, True, True)] == [*range(1, 41)]
