"""Arrow reads plain separated text as Python's reader does, and leaves the rest to it."""

import csv
import io
import itertools
import tempfile
from pathlib import Path

import numpy as np
import pytest
from helpers import examples
from hypothesis import example, given
from hypothesis import strategies as st

from distls.ingestion.request.source_start import source_file
from distls.workers.ingestion.formats import plain_csv, table_records
from distls.workers.ingestion.formats.document_records import Refused
from distls.workers.ingestion.formats.table_columns import Dialect, Feature, TableOptions
from distls.workers.ingestion.parsing import row_cuts
from distls.workers.ingestion.parsing.row_cuts import Seen, look_at_bytes, row_items

pytest.importorskip("pyarrow")
COLUMNS = ("a", "b")


def rows_of(text, header, plain, n_bytes=2**20):
    """Return (line, fields, fault) of the rows of a file, read by Arrow as far as it is plain, or by Python.

    The file is read in ranges of about `n_bytes`.
    """
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        path = Path(folder) / "a.csv"
        path.write_bytes(text)
        if not plain:
            patch.setattr(table_records, "plain_batches", lambda *_: ())
        # large text is looked at by a kernel
        patch.setattr(row_cuts, "_LARGE", 0 if plain else 2**20)
        patch.setattr(plain_csv, "PIECE_BYTES", 23)
        options = TableOptions(
            columns=COLUMNS, dialect=Dialect(header=header), source="csv", features=(Feature("b", kind="text"),),
        )  # fmt: skip
        found = []
        for item in row_items([source_file(path)], ",", n_bytes):
            # a line break within a field is no row
            assert item.before[1] <= item.before[0]
            for batch, lines, faults in table_records.table_batches(item, options, list(COLUMNS), 3):
                for row, fields in enumerate(batch.to_pylist()):
                    line = item.before[0] + int(lines[row])
                    found.append((line, None if row in faults else fields, faults.get(row)))
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


@examples(150)
@given(files.filter(str.strip), st.booleans(), st.sampled_from(["", "\ufeff"]))
@example('a,b\n1,"x, ""y"""\n2, z \n', True, "")
@example('sep=,\na,b\n1,2\n"",3', True, "")
@example("1,2\n" * 9 + '3,4"5\n6,7\n', False, "\ufeff")
@example("1,2\r\n3,4\r\n\r\n5,6\r\n", False, "")
def test_both_read_the_same(text, header, mark):
    content = (mark + text).encode()
    assert rows_of(content, header, True) == rows_of(content, header, False)


@examples(200)
@given(files.filter(str.strip), st.booleans(), st.sampled_from(["", "\ufeff"]), st.booleans())
@example('a,b\n1,"x\n, ""y\n"""\n2, z \n' * 3, True, "", True)
@example('1,"2\n' * 9 + '3,4"5\n6,7\n', False, "\ufeff", False)
@example("1,2\r\n3,4\r\n\r\n5,6\r\n", False, "", True)
@example("\r\n \n\na,b\n1,2", True, "\ufeff", False)
@example("1\r\xa0\n,", True, "", False)
def test_ranges_of_a_file_are_read_as_the_file_is(text, header, mark, plain):
    content = (mark + text).encode()
    assert rows_of(content, header, plain, n_bytes=5) == rows_of(content, header, plain)


@examples(100)
@given(st.binary(max_size=20), st.integers(0, 5000), st.sampled_from([b"a", b"\n", b"\t"]))
def test_bytes_are_seen_wherever_they_are(odd, place, common):
    text = common * place + odd + common * (5000 - place)
    controls = set(odd) & {*range(32)} - set(b"\t\n\r")
    bits = {
        Seen.QUOTE: b'"' in odd,
        Seen.RETURN: b"\r" in odd,
        Seen.CONTROL: bool(controls),
        Seen.HIGH: not odd.isascii(),
    }
    buffer = np.frombuffer(text + b"\n" * 8, np.uint8).copy()
    found = look_at_bytes(buffer, len(text))
    assert found == (text.count(b"\n"), sum(bit for bit, is_there in bits.items() if is_there))


def test_rows_in_front_of_ranges_are_those_that_csv_reads(tmp_path):
    text = "".join(f'{k},"x\n{"y" * (k % 3)}"\n' for k in range(50))
    (tmp_path / "a.csv").write_text(text)
    items = row_items([source_file(tmp_path / "a.csv")], ",", 5)
    assert len(items) > 20
    for item in items:
        before = text[: item.start]
        assert item.before == (before.count("\n"), len(list(csv.reader(io.StringIO(before)))))
    assert (items[0].start, items[-1].stop) == (0, len(text))
    assert all(a.stop == b.start for a, b in itertools.pairwise(items))


@pytest.mark.parametrize("field", ['5" pipe', '"a" b'])
def test_a_file_with_a_doubtful_quote_is_not_cut(tmp_path, field):
    (tmp_path / "a.csv").write_text("1,2\n" * 50 + f"3,{field}\n" + "1,2\n" * 50)
    assert len(row_items([source_file(tmp_path / "a.csv")], ",", 20)) == 1
    # records of JSON are lines, whatever is in them
    assert len(row_items([source_file(tmp_path / "a.csv")], None, 20)) > 10


def test_nothing_is_cut_behind_a_quote_that_is_never_closed(tmp_path):
    (tmp_path / "a.csv").write_text("1,2\n" * 50 + '3,"\n' + "1,2\n" * 50)
    assert 5 < len(items := row_items([source_file(tmp_path / "a.csv")], ",", 20)) < 12
    assert items[-1].start <= 200


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
