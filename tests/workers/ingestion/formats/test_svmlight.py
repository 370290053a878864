import functools
import io
import math
import warnings

import numpy as np
import parser_helpers
import pytest
from helpers import examples
from hypothesis import example, given
from hypothesis import strategies as st
from parser_helpers import block_of, listed, located, run_of
from sklearn.datasets import load_svmlight_file

from distls.storage.errors import BadInputError
from distls.workers.ingestion.formats.svmlight import SvmlightParser
from distls.workers.ingestion.parsing.decimal_kernels import decimal_to_double
from distls.workers.ingestion.records.record_batch import ReadOptions


def parse(text, **options):
    """Return (rows as lists of (index, value), labels a row, progress)."""
    given_options = ReadOptions(**options)
    run = run_of(given_options)
    rows, labels = [], []
    with located("f.svm"):
        for batch in SvmlightParser(run).parse(block_of(text)):
            for total, own in zip((rows, labels), listed(batch, given_options.float64), strict=True):
                total += own
    return rows, labels, run.progress


refusal = functools.partial(parser_helpers.refusal, parse)


def parsed_or_message(text, **options):
    try:
        return parse(text, **options), ""
    except BadInputError as error:
        return None, str(error)


# -- numbers ---------------------------------------------------------------------------------------------


@given(st.integers(0, 10**19 - 1), st.integers(-350, 320))
@example(9007199254740993, 0)  # half way between two doubles
@example(2, -324)
@example(3, -324)
@example(22250738585072011, -324)
@example(17976931348623158, 292)
@example(17976931348623159, 292)
def test_decimals_equal_pythons_float(mantissa, exponent):
    assert decimal_to_double(np.uint64(mantissa), exponent) == float(f"{mantissa}e{exponent}")


@pytest.mark.slow
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_double_round_trips(value):
    rows, _, _ = parse(f"0 1:{value!r}\n".encode(), float64=True)
    assert rows == [[(1, value)] if value else []]


@given(st.from_regex(r"-?[0-9]{0,25}(\.[0-9]{0,25})?([eE][+-]?[0-9]{1,3})?", fullmatch=True))
@example("0." + "1" * 40)
@example("0.07182592153549194")
@example("179769313486231580793728971405303415079934132710037826936173778980444968292764750946649" + "0" * 220)
@example("2.4703282292062327208299439634110864618253e-324")
@example("9007199254740993.00000000000000000000000000001")
@example("0.1234567")
@example("1234567")
@example("12345678")
def test_any_number_is_pythons_or_refused(text):
    try:
        expected = float(text)
    except ValueError:
        expected = math.nan
    parsed, message = parsed_or_message(f"1 5:{text}\n".encode(), float64=True)
    if parsed is None:
        assert message.startswith("f.svm:1: ")
        # numbers are refused only where float() does, at infinity, or where 19 digits cannot tell
        assert not math.isfinite(expected) or abs(expected) in (0.0, 5e-324, 1.7976931348623157e308)
    else:
        assert parsed[0] == [[(5, expected)] if expected else []]


def test_all_short_decimals_are_exact():
    texts = [f"{n}.{d}" for n in (0, 1, 7, 12, 999) for d in ("0", "1", "05", "250", "999", "001")]
    texts += [f".{d}" for d in range(1, 2000, 7)] + [f"{n}." for n in range(1, 99)]
    rows, _, _ = parse(("0 " + " ".join(f"{i + 1}:{t}" for i, t in enumerate(texts))).encode(), float64=True)
    assert rows == [[(i + 1, float(t)) for i, t in enumerate(texts) if float(t)]]


@pytest.mark.slow
def test_every_length_with_the_point_in_every_place_is_exact():
    texts = []
    for digits in ("987654321098765432109876", "000987654321098765432109", "1" + "0" * 23):
        texts += [digits[:n] for n in range(1, 25)]
        texts += [f"{digits[:at]}.{digits[at:n]}" for n in range(1, 25) for at in range(n + 1)]
    texts = [text for text in texts if float(text)]
    texts += [f"-{text}" for text in texts] + [f"{text}e-7" for text in texts]
    # what follows a value must not become part of it
    for ending in ("", " ", "\n", " 9999:123456789012345\n", "\t#12345678\n"):
        line = "0 " + " ".join(f"{i + 1}:{t}" for i, t in enumerate(texts)) + ending
        rows, _, _ = parse(line.encode(), float64=True)
        assert rows[0][: len(texts)] == [(i + 1, float(t)) for i, t in enumerate(texts)]


@pytest.mark.fast_cases("/-1$", "/-13", ":-3", ":-15", "x-5", "x-17", r"\.-7", r"\.-19", "\\\\x80-9", "\\\\x80-21")
@pytest.mark.parametrize("place", range(1, 22))
@pytest.mark.parametrize("bad", ["/", ":", "x", ".", "\x80"])
def test_a_bad_character_anywhere_in_a_value_is_refused(place, bad):
    text = "1." + "1" * max(16, place)
    token = f"5:{text[:place]}{bad}{text[place + 1 :]}"
    if place == 1 and bad == ".":
        assert parse(f"1 {token}\n".encode(), float64=True)[0] == [[(5, float(text))]]
    else:
        assert "a value must be a decimal number" in refusal(f"1 {token}\n".encode("latin-1"))


def test_more_long_numbers_than_the_slow_list_holds():
    token = "0.12345678901234567890123"  # its first 19 digits do not decide the double on their own
    text = "0 " + " ".join(f"{i}:{token}" for i in range(1, 10_000)) + "\n"
    rows, _, _ = parse(text.encode(), float64=True)
    assert rows == [[(i, float(token)) for i in range(1, 10_000)]]


# -- agreement with scikit-learn -------------------------------------------------------------------------


def sklearn_rows(text, multilabel):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x, y = load_svmlight_file(
            io.BytesIO(text), dtype=np.float64, multilabel=multilabel, zero_based=True, n_features=2**31 - 1 + 1,
        )  # fmt: skip
    x.eliminate_zeros()
    rows = [
        list(zip(x.indices[a:b].tolist(), x.data[a:b].tolist(), strict=True))
        for a, b in zip(x.indptr[:-1], x.indptr[1:], strict=True)
    ]
    return rows, [list(labels) for labels in y] if multilabel else [[label] for label in y.tolist()]


def agrees(text, multilabel=False):
    """Tell whether the text is read, then as by scikit-learn; else it is refused with a line number."""
    parsed, message = parsed_or_message(text, float64=True, multilabel=multilabel)
    if parsed is None:
        assert 1 <= int(message.split(":")[1]) <= text.count(b"\n") + 1
        return False
    rows, labels, _ = parsed
    if not rows:
        return True  # scikit-learn refuses an empty input, as ingest does
    expected_rows, expected_labels = sklearn_rows(text, multilabel)
    assert rows == expected_rows
    assert [sorted(row) for row in labels] == expected_labels
    return True


ALPHABET = st.sampled_from(list(b"0123456789:.,-+eE# \t\r\n\x0b\x0cqid_nax\x00\xff"))


@examples(600)
@given(st.lists(ALPHABET, max_size=60).map(bytes), st.booleans())
@example(b"1 1:2\r\n-1 qid:7 2:3#c\n\n# only\n+1", False)
@example(b"1 1:1_0\n", False)
@example(b"1,2 1:1\n 3:4\nqid:1 1:2\n", True)
@example(b"1 1:2\x00#3:4\n", False)
def test_any_text_is_scikit_learns_or_refused(text, multilabel):
    agrees(text, multilabel)


NUMBER = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.integers(-1000, 1000).map(str),
    st.decimals(-100, 100, places=4).map(str),
    st.sampled_from(["nan", "inf", "1e400", "", "1.2.3", "--1", "0x1", "1e", "-0", "00.5"]),
)
PAIR = st.tuples(st.integers(0, 2**31), NUMBER).map(lambda pair: f"{pair[0]}:{pair[1]}")
BLANK = st.sampled_from([" ", "  ", "\t", " \r ", "\x0b"])
LINE = st.builds(
    lambda label, blank, pairs, tail: label + blank + blank.join(pairs) + tail,
    st.one_of(NUMBER, st.just(""), st.just("1,2")),
    BLANK,
    st.lists(PAIR, max_size=4),
    st.sampled_from(["\n", "\r\n", " # note 1:2\n", "#\n", "", " \n\n"]),
)


@examples(400)
@given(st.lists(LINE, max_size=5).map("".join), st.booleans())
def test_near_svmlight_is_scikit_learns_or_refused(text, multilabel):
    agrees(text.encode(), multilabel)


@given(st.lists(st.lists(st.tuples(st.integers(0, 10**6), st.floats(-1e30, 1e30)), max_size=6), min_size=1))
def test_every_well_formed_text_is_read(rows):
    rows = [sorted(dict(row).items()) for row in rows]
    text = "".join(f"{i} " + " ".join(f"{k}:{v!r}" for k, v in row) + "\n" for i, row in enumerate(rows))
    assert agrees(text.encode())


# -- what is accepted ------------------------------------------------------------------------------------


def test_crlf_comments_qid_blank_lines_and_missing_newline():
    text = b"# head\r\n\r\n1 qid:3 1:2 3:0.5 # tail\r\n  -1 2:1e-2#x\n\t\n0"
    rows, labels, progress = parse(text)
    assert rows == [[(1, 2.0), (3, 0.5)], [(2, float(np.float32(0.01)))], []]
    assert labels == [[1.0], [-1.0], [0.0]]
    assert (progress.qids, progress.lines) == (1, 6)
    assert (progress.min_index, progress.min_line, progress.max_index, progress.max_line) == (1, 2, 3, 2)


def test_zeros_count_for_the_width_only():
    rows, _, progress = parse(b"1 2:0 3:1 9:-0.0 10:1e-60\n")
    assert rows == [[(3, 1.0)]]
    assert (progress.min_index, progress.max_index) == (2, 10)


def test_unlabelled_and_multilabel_rows():
    assert parse(b"1:2 2:3\n\n3:4", labelled=False)[:2] == ([[(1, 2.0), (2, 3.0)], [(3, 4.0)]], [[], []])
    assert parse(b"3,1 1:2\n1:5\n7\n", multilabel=True)[1] == [[3.0, 1.0], [], [7.0]]


def test_a_row_larger_than_the_record_buffer(monkeypatch):
    monkeypatch.setattr("distls.workers.ingestion.records.reader._BATCH_WORDS", 16)
    text = "".join(f"{i} " + " ".join(f"{k}:1" for k in range(i)) + "\n" for i in range(40))
    rows, labels, progress = parse(text.encode())
    assert rows == [[(k, 1.0) for k in range(i)] for i in range(40)]
    assert labels == [[float(i)] for i in range(40)]
    assert progress.offset == len(text)


# -- what is refused -------------------------------------------------------------------------------------


@pytest.mark.fast_cases(
    '1 3-"3"',
    "1 3:1_0",
    "1 3:1e39",
    "1 :1",
    "1 5:1 3",
    "nan",
    "1,2",
    "1 999999999999999999999999999999999999999999999999999999999999999999999999999999999999999999",
)
@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1 3", '"3": expected index:value'),
        ("1 3:abc", '"3:abc": a value must be a decimal number'),
        ("1 3:", '"3:": a value must be a decimal number'),
        ("1 3:1_0", '"3:1_0": a value must be written as a plain decimal number'),
        ("1 3:nan", '"3:nan": a value must be finite'),
        ("1 3:-Infinity", '"3:-Infinity": a value must be finite'),
        ("1 3:1e39", '"3:1e39": the value does not fit into float32'),
        ("1 x:1", '"x:1": an index must be a whole number from 0 to 2147483647'),
        ("1 -1:1", '"-1:1": an index must be a whole number from 0 to 2147483647'),
        ("1 :1", '":1": an index must be a whole number from 0 to 2147483647'),
        ("1 2147483648:1", '"2147483648:1": an index must not exceed 2147483647'),
        ("1 5:1 3:1", '"3:1": index 3 comes after index 5; indices must increase within a row'),
        ("1 5:1 5:2", '"5:2": index 5 is given twice; indices must increase within a row'),
        ("abc 1:1", '"abc": a label must be a decimal number'),
        ("nan 1:1", '"nan": the row has no label; --drop unknown leaves such rows out'),
        ("1e999 1:1", '"1e999": a label must be finite'),
        (
            "1:1 2:1",
            '"1:1": --weight-column label reads LABEL:WEIGHT; if it is a feature, the row has no label; files without '
            "labels are for "
            "ingest --unlabelled, "
            "and predict",
        ),
        ("1,2 1:1", '"1,2": several labels in a row are read with --multilabel of ingest and train only'),
        ("1 qid:x 1:1", '"qid:x": expected qid:NUMBER'),
        ("1 \x07:1", '"\\x07:1": an index must be a whole number from 0 to 2147483647'),
        ("1 " + "9" * 90, '"' + "9" * 60 + '...": expected index:value'),
    ],
)
def test_refusals_name_line_text_and_rule(line, message):
    assert refusal(f"1 1:1\n# c\n{line}\n1 1:1\n".encode()) == f"f.svm:3: {message}"


def test_refusals_that_depend_on_options():
    assert refusal(b"1 0:1\n", one_based=True) == (
        'f.svm:1: "0:1": index 0 in a file that was declared to count from 1 (--zero-based no)'
    )
    assert refusal(b"1,1 0:1\n", multilabel=True) == 'f.svm:1: "1,1": a label is given twice'
    assert refusal(b"1, 2 0:1\n", multilabel=True) == 'f.svm:1: "1,": a label must be a decimal number'
    assert refusal(b"1 1:2\n", labelled=False) == (
        'f.svm:1: "1": expected index:value (no label is expected: leave out --unlabelled of ingest, or give '
        "--labelled to predict)"
    )
    assert refusal(b"1 1:1e309\n", float64=True) == 'f.svm:1: "1:1e309": the value does not fit into float64'


def test_skipped_lines_are_counted_and_reported():
    text = b"1 1:1\nbad 1:1\n2 2:2 1:1\n3 3:3\n" + b"x\n" * 20
    rows, labels, progress = parse(text, skip_errors=True)
    assert (rows, labels) == ([[(1, 1.0)], [(3, 3.0)]], [[1.0], [3.0]])
    assert progress.skipped == 22
    assert len(progress.skipped_first) == 10
    assert progress.skipped_first[:2] == [
        (1, '"bad": a label must be a decimal number'),
        (2, '"1:1": index 1 comes after index 2; indices must increase within a row'),
    ]
    assert (progress.lines, progress.max_index) == (24, 3)
