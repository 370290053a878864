"""Tables drawn by Hypothesis, and their files in every format."""

import csv
import io
import json

import numpy as np
import pandas as pd
from hypothesis import strategies as st

WORDS = ("red", "green", "dark blue", "ja, nein", 'a "b"', "ä", "ß;t")
TEXTS = (
    "a long and lovely day", "rain fell all the day", "the night was long and dark", "nothing more to say here",
)  # fmt: skip
N_ROWS = 40
GAPS = {"words": "category", "days": "date", "sets": "set"}  # kinds with missing values -> those without
TIMES = {"time": "%H:%M", "stamp": "%Y-%m-%d %H:%M:%S", "date": "%Y-%m-%d", "month": "%d-%b-%Y"}
WRITTEN = {"marked": "{0},{0}50 $", "hex": "{0:#x}", "length": "{0}h {0}m"}  # numbers as texts
KINDS = ("number", "gaps", "category", "text", "set", "truth", "codes", "lines", *WRITTEN, *TIMES, *GAPS)
ROLES = {"key": "id_column", "w": "weight_column", "z": "label_column"}


@st.composite
def tables(draw, roles=True):
    """Return a frame of N_ROWS rows with labels in ``y``, and at least one other column of some kind.

    With `roles` there may be ids, weights and another target too; its ``attrs`` are options of an ingest.
    """
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    columns = {"y": np.arange(N_ROWS) % 2}
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=5))
    for k, kind in enumerate(kinds):
        # names may have line breaks too
        columns[f"{kind}\n{k}" if kind == "lines" else f"{kind}{k}"] = _column(kind, rng)
    options = {"label_column": "y"}
    for name in draw(st.sets(st.sampled_from([*ROLES]))) if roles else ():
        columns[name] = _role(name, rng)
        options[ROLES[name]] = "y,z" if name == "z" else name
    frame = pd.DataFrame(columns)
    frame.attrs = options
    return frame


def _role(name, rng):
    if name == "key":
        return pd.Series([f"k {k}" for k in rng.permutation(N_ROWS)], dtype=object)
    return np.round(rng.random(N_ROWS), 2)


def _column(kind, rng):
    if kind in ("number", "gaps"):
        values = np.round(rng.normal(0, 10.0 ** rng.integers(0, 4), N_ROWS), 3)
        values[rng.random(N_ROWS) < (0.3 if kind == "gaps" else 0)] = np.nan
        return values
    if kind in GAPS:
        return _column(GAPS[kind], rng).mask(rng.random(N_ROWS) < 0.3, None)
    if kind == "truth":
        return rng.random(N_ROWS) < 0.5
    if kind == "category":
        return pd.Series([WORDS[k] for k in rng.integers(0, 3, N_ROWS)], dtype=object)
    if kind == "text":
        return pd.Series([f"{TEXTS[k % 4]} word{k}" for k in rng.permutation(N_ROWS)], dtype=object)
    if kind == "lines":
        return pd.Series([("one\ntwo", "three", 'a "b"\n,;')[k] for k in rng.integers(0, 3, N_ROWS)], dtype=object)
    if kind in WRITTEN:
        return pd.Series([WRITTEN[kind].format(k) for k in rng.integers(1, 10, N_ROWS)], dtype=object)
    if kind in TIMES:
        seconds = rng.integers(0, 900 * 86400, N_ROWS)
        times = pd.Series(np.datetime64("2020-01-01", "s") + seconds.astype("timedelta64[s]"))
        return times.dt.strftime(TIMES[kind]).astype(object)
    members = ["1", "2", "30"] if kind == "codes" else ["a", "b", "c"]
    lists = [sorted(rng.choice(members, 2, False)) for _ in range(N_ROWS)]
    return pd.Series([json.dumps(each) if kind == "codes" else "|".join(each) for each in lists], dtype=object)


def csv_of(frame, separator=",", quoting=csv.QUOTE_MINIMAL, header=True, na="", encoding="utf-8"):
    """Return the bytes of a frame as separated text."""
    out = io.StringIO()
    frame.to_csv(out, sep=separator, quoting=quoting, header=header, na_rep=na, index=False)
    return out.getvalue().encode(encoding)


def json_of(frame):
    """Return the bytes of a frame as JSON lines."""
    rows = ({n: None if v != v else v for n, v in row.items()} for row in frame.to_dict("records"))
    return "".join(json.dumps(row) + "\n" for row in rows).encode()
