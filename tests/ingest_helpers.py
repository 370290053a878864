"""Sources, readers and executors that the tests of ingest share."""

import csv
import json

import numpy as np
import pytest
from helpers import raised

import distls.ingestion.request.source_plan
from distls.ingestion.ingest import ingest


@pytest.fixture
def small_ranges(monkeypatch):
    """Many items from little text."""
    monkeypatch.setattr(distls.ingestion.request.source_plan, "RANGE_BYTES", 2000)


def refusal(error, source, path, **options) -> str:
    """Return the one line by which an ingest is refused with an error of this type; it must leave nothing."""
    said = raised(error, ingest, source, path, **options)
    assert not path.exists()
    return said


def make_text(n_rows=400, n_features=50, n_classes=3, seed=0, base=1) -> str:
    random = np.random.default_rng(seed)
    lines = []
    for _ in range(n_rows):
        columns = np.flatnonzero(random.random(n_features) < 0.2) + base
        values = random.integers(1, 1000, len(columns)) / 100
        pairs = " ".join(f"{c}:{v}" for c, v in zip(columns.tolist(), values.tolist(), strict=True))
        lines.append(f"{random.integers(n_classes)} {pairs}\n")
    return "".join(lines)


def rare_text(n_rows=300, n_features=60, seed=0) -> str:
    """Feature k occurs in about n_rows / k rows."""
    random = np.random.default_rng(seed)
    lines = []
    for _ in range(n_rows):
        columns = np.flatnonzero(random.random(n_features) < 1 / np.arange(1, n_features + 1)) + 1
        lines.append(f"{random.integers(2)} " + " ".join(f"{c}:{random.integers(1, 9)}" for c in columns) + "\n")
    return "".join(lines)


def make_vw(n_rows=300, seed=0) -> str:
    random = np.random.default_rng(seed)
    lines = []
    for _ in range(n_rows):
        words = " ".join(f"w{w}:{v}" for w, v in zip(random.integers(0, 99, 9), random.integers(1, 9, 9), strict=True))
        lines.append(f"{random.integers(3)} {random.integers(1, 4)} 'row|words {words}|n:0.5 a:{random.random():.3f}\n")
    return "".join(lines)


WORD_LABELS = np.array(["zebra", "ant, red", "Ölkäfer", 'say "moo"'])


def make_words(n_rows=200, seed=0):
    """Return dense rows, and labels that are words."""
    random = np.random.default_rng(seed)
    codes = random.integers(0, 4, n_rows)
    return random.random((n_rows, 10)) + 2 * np.eye(4, 10)[codes], WORD_LABELS[codes]


WORDS = ["sun", "rain", "Wind", "über", "snow", "fog", "hail", "ice"]
DOCUMENT_LABELS = ["greeting", "order, big", "Ärger"]


def make_documents(n_rows=150, seed=0):
    """Return texts and their labels."""
    random = np.random.default_rng(seed)
    codes = random.integers(0, len(DOCUMENT_LABELS), n_rows)
    counts = random.integers(0, 9, n_rows)
    texts = [
        " ".join(random.choice(WORDS, count, p=np.roll([0.3, 0.3, 0.2, *[0.04] * 5], 2 * code)))
        for code, count in zip(codes, counts, strict=True)
    ]
    return texts, [DOCUMENT_LABELS[code] for code in codes]


def write_json(path, texts, labels, field="label", pack=bytes):
    lines = [
        json.dumps({"id": number, field: label, "text": text}) + "\n"
        for number, (text, label) in enumerate(zip(texts, labels, strict=True))
    ]
    path.write_bytes(pack("".join(lines).encode()))


def csv_documents(path, texts, labels, header=("id", "label", "text"), pack=bytes, **dialect):
    path.parent.mkdir(exist_ok=True)
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, **dialect)
        if header:
            writer.writerow(header)
        writer.writerows(zip(range(len(texts)), labels, texts, strict=True))
    path.write_bytes(pack(path.read_bytes()))


def write_plain(path, texts, labels):
    lines = [f"{label}\t{text}\n" for text, label in zip(texts, labels, strict=True)]
    path.write_text("".join(lines), encoding="utf-8")


def sorted_rows(x, y=None):
    table = x if y is None else np.column_stack([y, x])
    return table[np.lexsort(table.T)]


def file_bytes(root):
    return {str(p.relative_to(root)): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}
