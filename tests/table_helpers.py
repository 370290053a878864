"""Rows of a small table, and files of them."""

import csv
import io

import numpy as np
from sklearn.preprocessing import OneHotEncoder

JOBS = ["baker", "smith, black", 'said "no"', "Köhler", "12"]
HEADER = ["id", "age", "job", "size", "weight", "group"]


def make_rows(n_rows=300, seed=0):
    """Return rows of an id, a number, a word, a number with a point, a weight and a label that is a word."""
    random = np.random.default_rng(seed)
    ages, jobs, groups = (random.integers(0, n, n_rows).tolist() for n in (90, len(JOBS), 3))
    sizes = random.normal(size=n_rows).round(4).tolist()
    columns = zip(ages, jobs, sizes, groups, strict=True)
    return [[f"p{k}", age, JOBS[job], size, 0.5, f"g{group}"] for k, (age, job, size, group) in enumerate(columns)]


def csv_text(rows, header=None, **options) -> str:
    file = io.StringIO()
    csv.writer(file, **options).writerows([header, *rows] if header else rows)
    return file.getvalue()


def write_rows(path, rows, header=None, pack=bytes, **options):
    path.write_bytes(pack(csv_text(rows, header, **options).encode()))


def expected(rows):
    """Return X as scikit-learn makes it: age, one-hot job, size."""
    jobs = OneHotEncoder(sparse_output=False).fit_transform([[row[2]] for row in rows])
    columns = [[row[1] for row in rows], *jobs.T, [row[3] for row in rows]]
    return np.array(columns, dtype=np.float32).T


OPTIONS = {"label_column": "group", "weight_column": "weight", "ignore_columns": "id"}
