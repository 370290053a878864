"""Which tests are left out of a plain `pytest`: the slow lane, run by `pytest --run-slow`.

A plain run keeps at least one case of everything that is promised; here stand further cases of the same promise, and
what starts many processes or waits for them. Naming a file or a folder on the command line runs all of it.
"""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["SLOW", "is_slow", "unmatched"]

# file below tests/ -> patterns of what follows the file in a test's name; each must match a test
SLOW: dict[str, tuple[str, ...]] = {
    "": (
        # the contract of solvers: two of five clusters, two of six moments of an interrupt stay
        r"::test_same_bits_on_every_cluster\[(one process|five processes|two processes of two threads)\]",
        r"::test_interrupted_and_resumed\[(0\.0-[23]|1000000000\.0-[13])\]",
        r"::test_same_bits_without_a_cache",
        # scikit-learn's checks: one instance of each class stays
        r"::test_scikit_learns_checks\[MCIDClassifier\(.+\)-",
        r"::test_scikit_learns_checks\[GeneralizedLeastSquaresClassifier\(alpha",
        r"::test_scikit_learns_checks\[CalibratedLeastSquaresClassifier\(basis",
    ),
    "deploy/test_kubernetes.py": (r"::test_a_job_trains_the_same_weights_and_resumes",),
    "system/faults/test_workers.py": (
        r"::.*\[(read-|reduce-)?(statistics|shards)\]",
        r"::test_a_task_that_kills_every_worker",
        r"::test_the_scheduler_is_killed",
        r"::test_a_worker_that_was_stopped_comes_back",
        r"::test_all_workers_are_gone",
        r"::test_workers_come_and_go",
        r"::test_a_nanny_is_killed",
        r"::test_a_scheduler_that_stays_away",
        r"::test_a_worker_stops_for_longer",
        r"::test_one_worker_is_slow",
    ),
    "system/faults/test_solvers.py": (
        r"::test_a_worker_is_killed_between_rounds",
        r"::test_killed_and_resumed",
    ),
    "system/faults/test_storage.py": (r"::test_full_in_a_checkpoint", r"::test_unsteady_storage"),
    "system/test_object_stores.py": (r"::test_the_same_bits_on_worker_processes",),
    "system/test_interrupts.py": (
        r"::test_a_round_that_does_not_end",
        r"::test_what_is_stuck_loses_nothing",
        r"::test_what_is_stuck_before_the_first_round",
    ),
    "test_benchmarks.py": (
        r"::test_(sgd_qn|mcid)_paper$",
        r"::test_bcd_paper_(figures|many|losses)",
        r"::test_least_squares_paper_(figures|tables|without)",
        r"::test_constrained_sgd_paper$",
        r"::test_(scale|table_of_systems|simulation|peers|endurance)$",
    ),
}


def is_slow(node: str) -> bool:
    """Tell whether a test belongs to the slow lane.

    Parameters
    ----------
    node : str
        Its name as pytest has it, ``tests/FILE::TEST``.
    """
    file, _, name = node.removeprefix("tests/").partition("::")
    return any(re.match(pattern, "::" + name.split("::")[-1]) for pattern in (*SLOW[""], *SLOW.get(file, ())))


def unmatched(nodes: list[str]) -> list[str]:
    """Return the patterns that match none of all tests: what they were for has another name now."""
    found = []
    for file, patterns in SLOW.items():
        names = ["::" + node.split("::")[-1] for node in nodes if node.startswith(str(Path("tests") / file))]
        found += [f"{file}: {p}" for p in patterns if not any(re.match(p, name) for name in names)]
    return found
