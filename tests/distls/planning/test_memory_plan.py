"""Sizes in words, and the plan's arithmetic: sums, limits that are kept, refusals that can be believed."""

import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from helpers import raised, refuses
from hypothesis import example, given
from hypothesis import strategies as st

from distls.execution.memory_budget import MIB, SAFE_FRACTION, MemoryBudget, human, parse_bytes
from distls.memory_plan import BASE_BYTES, SLACK, Footprint, check_workers, make_plan
from distls.storage.errors import MemoryPlanError, WorkerError
from distls.workers.rounds.task import Needs

GIB = 2**30


@pytest.mark.fast_cases("1000000", "600MiB", "2g", "1TiB", "1e3")
@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1000000", 10**6), ("1b", 1), ("7 B", 7), ("600MiB", 600 * MIB), ("600 mib", 600 * MIB), ("2GB", 2 * 10**9),
        ("2g", 2 * GIB), ("1.5GiB", 3 * GIB // 2), ("3k", 3072), ("3kb", 3000), ("1TiB", 2**40), ("1tb", 10**12),
        (" 4M ", 4 * MIB), ("1e3", 1000),
    ],
)  # fmt: skip
def test_sizes_are_parsed(text, size):
    assert parse_bytes(text) == size


@pytest.mark.fast_cases("$", "5XB", "nan", "-")
@pytest.mark.parametrize("text", ["", "MiB", "x", "5XB", "5 MiBs", "1,5GiB", "nan", "inf", "1e999GiB", "--5"])
def test_what_is_no_size_is_refused(text):
    refuses(ValueError, "is not a size; write it like 600MiB or 2GiB", parse_bytes, text)


@pytest.mark.parametrize("text", ["0", "-5", "-1MiB", "0.1B"])
def test_a_size_is_positive(text):
    refuses(ValueError, "a size must be positive", parse_bytes, text)


@pytest.mark.fast_cases("0", "1536", "629145600", "5497558138880000")
@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"), (1023, "1023 B"), (1024, "1 KiB"), (1536, "2 KiB"), (MIB, "1.0 MiB"), (99.96 * MIB, "100.0 MiB"),
        (600 * MIB, "600 MiB"), (1.25 * GIB, "1.2 GiB"), (2**40, "1.0 TiB"), (5000 * 2**40, "5000.0 TiB"),
    ],
)  # fmt: skip
def test_sizes_in_words(size, text):
    assert human(size) == text


@given(st.integers(1, 2**60))
def test_words_are_parsed_to_about_the_same_size(size):
    assert parse_bytes(human(size)) == pytest.approx(size, rel=0.51 if size < 3 * 1024 else 0.2)


def test_an_unlimited_budget_shares_half_of_the_free_memory(monkeypatch):
    monkeypatch.setattr("distls.execution.memory_budget.available_memory", lambda: 8 * GIB)
    assert MemoryBudget(workers=2).worker_limit == 2 * GIB
    assert MemoryBudget(GIB, workers=2).worker_limit == GIB


def _data(decoded, stored):
    return SimpleNamespace(
        decoded_bytes=np.array(decoded),
        stored_bytes=np.array(stored),
        path=Path("train"),
        meta=SimpleNamespace(n_rows=1000),
    )


def _plan(budget, **changes):
    options = {
        "dataset": _data([16 * MIB] * 40, [10 * MIB] * 40), "weight_bytes": 3 * MIB, "result_copies": 2, "lanes": 8,
        "sample_bytes": MIB, "driver_copies": 4.0, **changes,
    }  # fmt: skip
    dataset, lanes = options.pop("dataset"), options.pop("lanes")
    weights, work = options.pop("weight_bytes"), options.pop("work_bytes", 0)
    needs = Needs(weights, weights * options.pop("result_copies"), work)
    driver = weights * options.pop("driver_copies")
    return make_plan(dataset, Footprint(needs, driver, **options), lanes=lanes, budget=budget)


sizes = st.integers(0, 2 * GIB)
jobs = st.builds(
    dict,
    dataset=st.lists(st.tuples(sizes, sizes), min_size=1, max_size=9).map(
        lambda pairs: _data([a for a, _ in pairs], [b for _, b in pairs])
    ),
    weight_bytes=st.integers(0, 4 * GIB),
    result_copies=st.integers(1, 3),
    lanes=st.integers(1, 64),
    sample_bytes=st.integers(0, 100 * MIB),
)
shapes = st.tuples(st.integers(1, 20), st.integers(1, 16), st.booleans())


def _budget(shape, limit, cache_limit=None):
    return MemoryBudget(limit, *shape, cache_limit=cache_limit)


@given(jobs, shapes, st.none() | st.integers(0, GIB), st.integers(40, 45))
def test_the_parts_add_up_within_the_limit(job, shape, cache_limit, power):
    plan = _plan(_budget(shape, 2**power, cache_limit), **job)
    decoded = int(job["dataset"].decoded_bytes.sum())
    assert plan.worker_bytes == sum(plan.worker_parts.values()) <= SAFE_FRACTION * plan.worker_limit
    assert plan.worker_limit == 2**power
    assert plan.cache_bytes <= decoded
    assert plan.cache_bytes <= plan.worker_parts["cache"] + plan.worker_parts["cache reserve"] + 1
    assert cache_limit is None or plan.cache_bytes <= cache_limit
    assert 0 <= plan.cached_fraction <= 1
    assert plan.bytes_per_pass == job["dataset"].stored_bytes.sum()


def _needed(job, shape):
    parts = _plan(_budget(shape, 2**50, 0), **job).worker_parts
    assert parts.pop("cache") == parts.pop("cache reserve") == 0
    return parts


@given(jobs, shapes)
def test_the_limit_a_refusal_names_is_accepted_and_hardly_more_than_needed(job, shape):
    said = raised(MemoryPlanError, _plan, _budget(shape, MIB), **job)
    found = re.search(r"allow at least --memory-limit (\d+MiB)", said)
    named = parse_bytes(found[1])
    assert _plan(_budget(shape, named), **job).worker_limit == named
    raised(MemoryPlanError, _plan, _budget(shape, named - 2 * MIB), **job)


@given(jobs, shapes, st.integers(1, 8))
@example({"dataset": _data([0], [0]), "weight_bytes": 21846, "result_copies": 3, "lanes": 10}, (9, 1, True), 1)
def test_more_threads_need_no_less(job, shape, factor):
    workers, threads, compiles = shape
    fewer, more = _needed(job, shape), _needed(job, (workers, 2 * threads, compiles))
    # of tasks with fewer lanes each, fewer results wait to be merged
    alone = job["lanes"] <= workers * threads
    assert all(more[name] >= fewer[name] for name in fewer if alone or name != "weights")
    more = _needed(job, (workers, threads + factor, compiles))
    assert more["partitions"] >= fewer["partitions"]


@given(jobs, shapes, st.integers(1, 9))
def test_more_lanes_need_no_less(job, shape, extra):
    fewer, more = _needed(job, shape), _needed({**job, "lanes": job["lanes"] + extra}, shape)
    # of tasks with several lanes, more may be nodes of the tree: fewer results wait to be merged
    alone = job["lanes"] + extra <= shape[0] * shape[1]
    assert all(more[name] >= fewer[name] for name in fewer if alone or name != "weights")


def test_the_cache_is_what_the_limit_leaves():
    least = sum(_plan(MemoryBudget(100 * GIB, cache_limit=0)).worker_parts.values())
    for extra in (0, 10 * MIB, 300 * MIB):
        plan = _plan(MemoryBudget(int((least + extra) / SAFE_FRACTION) + 2))
        assert plan.worker_parts["cache"] == pytest.approx(extra, abs=4)
    assert _plan(MemoryBudget(100 * GIB)).cache_bytes == 640 * MIB
    assert _plan(MemoryBudget(100 * GIB, workers=2)).cached_fraction == 1.0
    assert _plan(MemoryBudget(100 * GIB, workers=2, cache_limit=160 * MIB)).cached_fraction == 0.5


@pytest.mark.parametrize(
    ("threads", "partition", "remedies"),
    [
        (1, MIB, []),
        (2, MIB, ["use --threads-per-worker 1 with more workers"]),
        (1, 500 * MIB, ["ingest again with a smaller --partition-size"]),
    ],
)
def test_a_refusal_names_numbers_and_remedies(threads, partition, remedies):
    text = raised(MemoryPlanError, _plan, MemoryBudget(100 * MIB, 1, threads), dataset=_data([partition], [partition]))
    assert text.startswith("train: a worker needs ")
    assert "but may use 92.0 MiB of its 100 MiB; allow at least --memory-limit " in text
    assert re.sub(r".*MiB(, or |$)", "", text).split(", or ") == (remedies or [""])


@pytest.mark.parametrize(("lanes", "share"), [(8, 4 / 8), (7, 4 / 7), (1, 1.0)])
def test_what_a_worker_seldom_needs_is_named_reserve(lanes, share):
    parts = _plan(MemoryBudget(100 * GIB, workers=2), lanes=lanes).worker_parts
    decoded = SLACK * 640 * MIB
    assert parts["cache"] == pytest.approx(share * decoded, abs=2), "of its own lanes"
    assert parts["cache reserve"] == pytest.approx((1 - share) * decoded, abs=2), "of another worker's"
    assert parts["base"] + parts["reserve"] == BASE_BYTES
    needed = sum(size for name, size in parts.items() if "cache" not in name)
    tight = _plan(MemoryBudget(int((needed + 100 * MIB) / SAFE_FRACTION) + 2, workers=2), lanes=lanes)
    assert tight.worker_parts["cache"] == pytest.approx(100 * MIB, abs=4), "a cache below its share is no reserve"
    assert tight.worker_parts["cache reserve"] == 0


def test_a_worker_that_cannot_is_named(small_csr):
    dataset = small_csr().dataset
    executor = SimpleNamespace(
        each_worker=lambda function, job: {"tcp://b:1": None, "tcp://a:2": f"{job[0].path}: gone"}
    )
    said = raised(WorkerError, check_workers, executor, dataset, None)
    assert said == f"worker tcp://a:2: {dataset.path.resolve()}: gone"
