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
    # variants that differ in what is compiled: a loss, a layout, a type more
    "distls/solvers/coordinate_descent/test_bcd.py": (
        r"::test_one_lane_is_the_paper_s_algorithm\[multitask",
    ),
    "distls/solvers/coordinate_descent/test_proximal.py": (
        r"::test_all_solvers_find_the_same_optimum\[(?!(softmax|multiclass_squared_hinge)-(l1l2|sparse-group)\])",
    ),
    "distls/solvers/dual_ascent/test_sdca.py": (
        r"::test_the_optimum_and_its_proof\[(?!(softmax|ovr_squared_hinge|crammer_singer)-)",
        r"::test_the_optimum_and_its_proof\[crammer_singer-.*-True\]",
        r"::test_sample_and_class_weights\[(ovr_|squared)",
        r"::test_weights_of_scikit_learn",
        r"::test_no_problem_of_many",
        r"::test_no_problem_lacks_more_than_is_certified\[[12]0\]",
    ),
    "distls/solvers/stochastic/test_fobos.py": (
        r"::test_one_lane_is_the_algorithm_over_shuffled_rows\[(?!l1l2\])",
        r"::test_many_passes_come_near_the_optimum\[multitask",
    ),
    "workers/coordinate_descent/test_descent_kernels.py": (
        r"::test_dense_shards_and_single_precision_scores\[(softmax|multitask)",
    ),
    "workers/stochastic/test_update.py": (
        r"::test_lazy_shrinkage_equals_that_of_every_step\[(0\.0-|0\.2-|0\.02-crammer)",
        r"::test_results_do_not_depend_on_addresses\[.*(csr-float32|dense-float64)\]",
        r"::test_scheduled_updates_are_those_of_the_figures\[(True|False)-ovr_log-",
        r"::test_adaptive_steps_with_lazy_decay_equal_dense_ones\[(crammer_singer|ovr_hinge)",
        r"::test_schedules_with_decay\[(crammer_singer|ovr_squared_hinge)",
        r"::test_one_column_of_two_classes_is_the_mirrored_model_of_two\[ovr_(log|hinge)\]",
    ),
    "workers/stochastic/test_sgd_kernels.py": (
        r"::test_float64_equals_the_oracle\[(perceptron|multi|ovr_)",
        r"::test_cutting_the_order_into_blocks_changes_no_bit\[float..-(perceptron|multi|ovr_)",
        r"::test_float32_data_with_float64_weights_and_wide_indices\[(perceptron|multi|ovr_)",
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
