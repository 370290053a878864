"""Vowpal Wabbit text to row records: against a reader in plain Python, and Vowpal Wabbit where it is installed."""

import functools
import math
import re

import numpy as np
import parser_helpers
import pytest
from helpers import examples
from hypothesis import example, given
from hypothesis import strategies as st
from parser_helpers import block_of, listed, located, run_of
from sklearn.utils.murmurhash import murmurhash3_32 as sklearn_murmur

from distls.workers.ingestion.formats.vw import VwParser, VwReadOptions, name_hash, only_namespace
from distls.workers.ingestion.parsing.vw_token_kernels import murmur3_32


def parse(text, **options):
    """Return (rows as lists of (column, value), labels a row, importances, progress)."""
    run = run_of(VwReadOptions(**options))
    rows, labels, weights = [], [], []
    with located("f.vw"):
        for batch in VwParser(run).parse(block_of(text)):
            for total, own in zip((rows, labels), listed(batch, run.options.float64), strict=True):
                total += own
            weights += batch.weights.tolist()
    return rows, labels, weights, run.progress


refusal = functools.partial(parser_helpers.refusal, parse)


# -- names -----------------------------------------------------------------------------------------------


@given(st.binary(max_size=40), st.integers(0, 2**32 - 1))
def test_murmur_is_scikit_learns(text, seed):
    padded = np.frombuffer(text + bytes(8), dtype=np.uint8)
    assert murmur3_32(padded, 0, len(text), seed) == sklearn_murmur(text, seed, positive=True)


def test_names_have_vowpal_wabbits_hashes():
    # `hash_space` and `hash_feature` of vowpalwabbit 9.11; the latter modulo 2**18
    assert [name_hash(name.encode()) for name in ("", "f", "12", "a b", "é")] == [
        0, 728008763, 12, 1033158525, 269551495,
    ]  # fmt: skip
    f = name_hash(b"f")
    names = ["9", "a", "", "007", "99999999999999999999999"]
    assert [name_hash(name.encode(), f) % 2**18 for name in names] == [34884, 14355, 34875, 34882, 34874]
    assert [name_hash(name.encode()) % 2**18 for name in names] == [9, 92594, 0, 7, 262143]


# -- a reader in plain Python ----------------------------------------------------------------------------


class Refused(Exception):
    pass


_NUMBER = re.compile(rb"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def number(text, least=-math.inf, largest=1.8e308):
    if not _NUMBER.fullmatch(text) or not least <= float(text) or not abs(float(text)) < largest:
        raise Refused
    return float(text)


def plain_hash(name, seed):
    while name and name[0] <= 32:
        name = name[1:]
    while name and name[-1] <= 32:
        name = name[:-1]
    if re.fullmatch(rb"[0-9]*", name):
        return (int(name or b"0") + seed) % 2**32
    return sklearn_murmur(name, seed, positive=True)


def read_head(head, options):
    """Return (labels, importance, has a tag, has a base)."""
    words, tags = [word for word in head.split(b" ") if word], 0
    if words and (not head.endswith(b" ") or words[-1].startswith(b"'")):
        words.pop()
        tags = 1
    if len(words) > 3 or (words and not options.labelled):
        raise Refused
    if options.labelled and not options.multilabel and not words:
        raise Refused
    labels = [number(label) + 0.0 for label in words[0].split(b",")] if words else []
    if len(set(labels)) < len(labels) or (len(labels) > 1 and not options.multilabel):
        raise Refused
    weight = number(words[1], 0.0, 3.4028235677973366e38) if len(words) > 1 else 1.0
    base = number(words[2]) if len(words) > 2 else 0.0
    return labels, weight, tags, int(base != 0)


def read_index(name, seed, nameless, options):
    if options.hash_bits is not None:
        return (plain_hash(name, seed) if name else nameless + seed) % 2**options.hash_bits
    if name and not (re.fullmatch(rb"[0-9]+", name) and int(name) < 2**31):
        raise Refused
    return int(name) if name else nameless


def read_namespace(head, options):
    """Return (hash, scale) of what stands between a bar and the first blank."""
    name, colon, scale = head.partition(b":")
    if colon and not name:
        raise Refused
    seed = plain_hash(name, 0)
    if options.hash_bits is None and seed != plain_hash(options.namespace, 0):
        raise Refused
    return seed, number(scale) if colon else 1.0


def read_features(text, options):
    found = {}
    for part in text.split(b"|")[1:]:
        head, *features = re.split(rb"[ \t]", part)
        seed, scale = read_namespace(head, options)
        nameless = 0
        for feature in filter(None, features):
            name, colon, value = feature.partition(b":")
            index = read_index(name, seed, nameless, options)
            nameless += not name
            amount = (number(value) if colon else 1.0) * scale
            if not abs(amount) < math.inf or not abs(found.get(index, 0.0) + amount) < math.inf:
                raise Refused
            found[index] = found[index] + amount if index in found else amount
    return [(index, value) for index, value in sorted(found.items()) if value]


def read_line(line, options):
    line = line.removesuffix(b"\r")
    line = line.removeprefix(b"\xef\xbb\xbf").lstrip(b" \t")
    if not line:
        return None
    if b"|" not in line or b"\r" in line or b"\t" in line[: line.find(b"|")]:
        raise Refused
    bar = line.find(b"|")
    return *read_head(line[:bar], options), read_features(line[bar:], options)


def agrees(text, **options):
    """Tell whether the text is read, then as by the reader above; else both refuse it, in the same line."""
    expected = []
    for n, line in enumerate(text.split(b"\n")):
        try:
            expected.append(read_line(line, VwReadOptions(**options)))
        except Refused:
            assert refusal(text, **options).startswith(f"f.vw:{n + 1}: ")
            return False
    expected = [row for row in expected if row]
    rows, labels, weights, progress = parse(text, **options)
    assert labels == [row[0] for row in expected]
    assert weights == [float(np.float32(row[1])) for row in expected]
    assert (progress.tags, progress.bases) == (sum(r[2] for r in expected), sum(r[3] for r in expected))
    assert rows == [row[4] for row in expected]
    return True


OPTIONS = st.fixed_dictionaries(
    {
        "hash_bits": st.sampled_from([None, 1, 4, 18, 31]),
        "multilabel": st.booleans(),
        "labelled": st.sampled_from([True, True, False]),
        "namespace": st.sampled_from([b"", b"f"]),
    }
).map(lambda options: {**options, "float64": True})
ALPHABET = st.sampled_from(list(b"0123456789:.,-+eE|'# \t\r\nabf\x01\x0b\x00\xc3\xa9\xef\xbb\xbf"))


@pytest.mark.slow
@examples(200)
@given(st.lists(ALPHABET, max_size=60).map(bytes), OPTIONS)
@example(b"1 2 0.5 'tag|f x:2 7\r\n\n-1 |f:2 a :3 :1|g\x01 x", {"hash_bits": 18, "float64": True})
@example(b"\xef\xbb\xbf1 | 3:1 1\n\xef\xbb\xbf\n -1 'a b| 4", {"float64": True})
@example(b"1 | \x01:2 \x01", {"hash_bits": 4, "float64": True})
def test_any_text_is_read_as_by_plain_python_or_refused(text, options):
    agrees(text, **options)


NUMBER = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.integers(-1000, 1000).map(str),
    st.decimals(-100, 100, places=4).map(str),
    st.sampled_from(["1e400", "1e200", "", "1.2.3", "--1", "nan", "1e", "-0", "00.5", "0." + "1" * 40]),
)
NAME = st.one_of(st.integers(0, 40).map(str), st.sampled_from(["a", "b", "price", "é", "", "4294967297"]))
FEATURE = st.one_of(NAME, st.tuples(NAME, NUMBER).map(":".join))
BLANK = st.sampled_from([" ", "  ", "\t"])
SPACE = st.sampled_from(["|", "|f", "|f", "|words", "|f:2", "|f:0.5", "|w:1e-3", "|f:-1e308"])
GROUP = st.builds(
    lambda space, blank, features: space + "".join(blank + f for f in features),
    SPACE,
    BLANK,
    st.lists(FEATURE, max_size=6),
)
HEAD = st.sampled_from(["1 ", "-1 2 ", "1 0.25 0.5 ", "2 'tag ", "3 1 0 tag", "", "1", "1,2 ", "-0.0 ", "1 -1 "])
LINE = st.builds(
    lambda head, groups, tail: head + "".join(groups) + tail,
    HEAD,
    st.lists(GROUP, max_size=3),
    st.sampled_from(["\n", "\r\n", " \n\n", " \r\n"]),
)


@examples(300)
@given(st.lists(LINE, max_size=4).map("".join), OPTIONS)
def test_near_vw_text_is_read_as_by_plain_python_or_refused(text, options):
    agrees(text.encode(), **options)


@given(
    st.lists(st.lists(st.tuples(st.integers(0, 50), st.floats(-1e30, 1e30)), max_size=40), min_size=1),
    st.sampled_from([None, 3, 18]),
)
def test_every_well_formed_text_is_read(rows, hash_bits):
    lines = [f"{n} |f " + " ".join(f"{k}:{v!r}" for k, v in row) for n, row in enumerate(rows)]
    assert agrees("\n".join(lines).encode(), hash_bits=hash_bits, namespace=b"f", float64=True)


# -- agreement with Vowpal Wabbit ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def vowpal_wabbit():
    """Return a function from a line to (features, label, importance) as Vowpal Wabbit reads it."""
    pytest.importorskip("vowpalwabbit", reason="compares with Vowpal Wabbit where it is installed")
    from vowpalwabbit import Workspace

    workspace = Workspace("--quiet --noconstant --no_stdin -b 18")

    def read(line):
        seen = workspace.example(line)
        found = list(seen.iter_features()), seen.get_simplelabel_label(), seen.get_simplelabel_weight()
        workspace.finish_example(seen)
        return found

    yield read
    workspace.finish()


VW_WORD = st.text(st.characters(codec="utf-8", exclude_characters=":|", exclude_categories=["C", "Z"]), min_size=1)


@examples(200)
@given(
    spaces=st.dictionaries(
        VW_WORD, st.lists(st.tuples(st.one_of(VW_WORD, NAME), st.integers(1, 64)), max_size=8), max_size=3
    ),
    scale=st.sampled_from([1, 2, 0.25]),
)
def test_rows_are_vowpal_wabbits(spaces, scale, vowpal_wabbit):
    text = "1 3 'a" + "".join(
        f"|{space}:{scale} " + " ".join(f"{name}:{value}" for name, value in features)
        for space, features in spaces.items()
    )
    features, label, weight = vowpal_wabbit(text + "|")
    expected = {}
    for index, value in features:
        index %= 2**18  # vw leaves that of nameless features for later
        expected[index] = expected.get(index, 0.0) + value
    rows, labels, weights, _ = parse((text + "|").encode(), hash_bits=18)
    assert (labels, weights) == ([[label]], [weight])
    assert rows == [sorted(expected.items())]


# -- what is accepted ------------------------------------------------------------------------------------


def test_labels_importance_base_tag_namespaces_and_values():
    text = b"\n1 2 0.5 'first|words cat cat:0.5|size:10 width:0.25 0\r\n\r\n-1 |words dog:1e-2\n0 tag|"
    rows, labels, weights, progress = parse(text, hash_bits=18)
    words, size = name_hash(b"words"), name_hash(b"size")
    cat, width, dog = ((name_hash(n, s) % 2**18) for n, s in ((b"cat", words), (b"width", size), (b"dog", words)))
    assert rows[0] == sorted([(cat, 1.5), (width, 2.5), (size % 2**18, 10.0)])
    assert rows[1:] == [[(dog, float(np.float32(0.01)))], []]
    assert (labels, weights) == ([[1.0], [-1.0], [0.0]], [2.0, 1.0, 1.0])
    assert (progress.tags, progress.bases, progress.lines) == (2, 1, 5)


def test_numbers_of_columns_are_sorted_and_summed():
    rows, _, _, progress = parse(b"1 | 5:1 3:2 5:0.5 9:0 3:-2 1\n2 |\n", hash_bits=None)
    assert rows == [[(1, 1.0), (5, 1.5)], []]
    assert (progress.min_index, progress.min_line, progress.max_index, progress.max_line) == (1, 0, 9, 0)


def test_rows_without_labels_and_with_several():
    assert parse(b"|f 1\n'a |f 2\n", namespace=b"f", labelled=False)[:2] == ([[(1, 1.0)], [(2, 1.0)]], [[], []])
    assert parse(b"3,1 | 1:2\n| 1:5\n7 |\n", multilabel=True)[1] == [[3.0, 1.0], [], [7.0]]


def test_a_row_larger_than_the_record_buffer(monkeypatch):
    monkeypatch.setattr("distls.workers.ingestion.records.reader._BATCH_WORDS", 16)
    text = "".join(f"{i} | " + " ".join(f"{k}:1" for k in range(i)) + "\n" for i in range(40))
    rows, labels, weights, progress = parse(text.encode())
    assert rows == [[(k, 1.0) for k in range(i)] for i in range(40)]
    assert (labels, weights) == ([[float(i)] for i in range(40)], [1.0] * 40)
    assert progress.offset == len(text)


def test_numbers_that_python_must_convert_stay_with_their_columns(monkeypatch):
    monkeypatch.setattr("distls.workers.ingestion.records.reader._BATCH_WORDS", 64)
    token = "0.12345678901234567890123"  # its first 19 digits do not decide the double on their own
    line = "3 |f:0.5 " + " ".join(f"{i % 700}:{token}" for i in range(5000, 0, -1)) + f" 9:x{token}\n"
    good = line.replace(" 9:x", " 9:")
    text = (good + line + good).encode()
    rows, _, _, progress = parse(text, namespace=b"f", float64=True, skip_errors=True)
    assert agrees(good.encode(), namespace=b"f", float64=True)
    assert rows == parse(good.encode(), namespace=b"f", float64=True)[0] * 2
    assert progress.skipped_first == [(1, f'"9:x{token}": a value must be a decimal number')]


@pytest.mark.fast_cases("1 \\|f 1:2 7\\\\n2", r"1 \|f 1:2\|g", r"1 \|f -1")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"1 |f 1:2 7\n2 |f 3\n", b"f"),
        (b"1 | 1:2 :7\n\n2 'a| 3\n", b""),
        (b"1 'x:y |f:2 1:2\n", b"f"),
        (b"1 |f\n", b"f"),
        (b"1 |f 1:2|g 3\n", None),
        (b"1 |f 1:2\n2 | 3\n", None),
        (b"1 |f 1:2 a:7\n", None),
        (b"1 |f 2147483648\n", None),
        (b"1 |f -1:2\n", None),
    ],
)
def test_the_only_namespace_of_numbered_columns(text, expected):
    assert only_namespace(text) == expected


# -- what is refused -------------------------------------------------------------------------------------


@pytest.mark.fast_cases("1 f", "x", r"\|f", "1 1e39", r"1 \|f 3:x", r"1 \|f 3:nan", "1 \\|f 3\\\\r4", r"1 \|f 3\|g")
@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1 f 3:4", '"1": the line has no | before its features'),
        ("1\t|f 3", '"1": a tab before the first |, where Vowpal Wabbit drops what is before it; write a space'),
        ("1 2 3 4 |f 3", '"4": only label, importance, base and tag may stand before the first |'),
        ("x |f 3", '"x": a label must be a decimal number'),
        ("inf |f 3", '"inf": a label must be finite'),
        ("1,2 |f 3", '"1,2": several labels in a row are read with --multilabel of ingest and train only'),
        (
            "1|f 3",
            '"1": the row has no label (what touches the | is a tag); files without labels are for '
            "ingest --unlabelled, and predict",
        ),
        (
            "|f 3",
            '"|f": the row has no label (what touches the | is a tag); files without labels are for '
            "ingest --unlabelled, and predict",
        ),
        ("1 -2 |f 3", '"-2": an importance must be a number from 0 on that fits into float32'),
        ("1 x |f 3", '"x": an importance must be a number from 0 on that fits into float32'),
        ("1 1e39 |f 3", '"1e39": an importance must be a number from 0 on that fits into float32'),
        ("1 1 x |f 3", '"x": a base must be a decimal number'),
        ("1 |:2 3", '"|:2": a scale needs a namespace before it'),
        ("1 |f:x 3", '"|f:x": the scale of a namespace must be a decimal number'),
        ("1 |f 3:x", '"3:x": a value must be a decimal number'),
        ("1 |f 3:", '"3:": a value must be a decimal number'),
        ("1 |f 3:1:2", '"3:1:2": a value must be a decimal number'),
        ("1 |f 3:nan", '"3:nan": a value must be finite'),
        ("1 |f 3:1e39", '"3:1e39": the value does not fit into float32'),
        ("1 |f:1e20 3:1e20", '"3:1e20": the value does not fit into float32'),
        ("1 |f 3:3e38 4 3:3e38", "column 3: the sum of its values does not fit into float32"),
        ("1 |f 3\r4", "a carriage return inside the line"),
        (
            "1 |f 3 a:2",
            '"a:2": names are column numbers here; '
            "to hash names instead, ingest all data with --hash-bits 18, or another number",
        ),
        (
            "1 |f 2147483648",
            '"2147483648": a column number must not exceed 2147483647; '
            "to hash names instead, ingest all data with --hash-bits 18, or another number",
        ),
        (
            "1 |f 3|g 4",
            '"|g": names are column numbers, of the namespace "|f" only; '
            "to hash names instead, ingest all data with --hash-bits 18, or another number",
        ),
    ],
)  # fmt: skip
def test_refusals_name_line_text_and_rule(line, message):
    text = f"1 |f 1:1\n\n{line}\n1 |f 1:1\n".encode()
    assert refusal(text, namespace=b"f") == f"f.vw:3: {message}"
    rows, _, _, progress = parse(text, namespace=b"f", skip_errors=True)
    assert rows == [[(1, 1.0)]] * 2
    assert (progress.skipped_first, progress.lines) == ([(2, message)], 4)


def test_refusals_that_depend_on_options():
    assert refusal(b"1 | 1\n", labelled=False) == ('f.vw:1: "1": a label, in a file that was declared to have none')
    assert refusal(b"1,1 | 1\n", multilabel=True) == 'f.vw:1: "1,1": a label is given twice'
    assert refusal(b"1 | 1:1e309\n", float64=True) == 'f.vw:1: "1:1e309": the value does not fit into float64'
