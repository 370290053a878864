"""Which tests are left out of a plain `pytest`: the slow lane, run by `pytest --run-slow`.

A plain run keeps at least one case of everything that the library promises; here stand further cases of the same
promise, and what starts many processes or waits for them. Naming a file or a folder on the command line runs all of it.
"""

from __future__ import annotations

import re

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
        r"::test_weights_are_repeated_rows\[(?!log-dense|ridge-sparse)",
    ),
    "distls/solvers/least_squares/test_basis_functions.py": (r"::TestContract::",),
    "distls/solvers/least_squares/test_staged_cls.py": (
        r"::TestContractOfFourierFeatures::",
        r"::test_lost_predictions_are_made_anew_and_reads_are_planned\[(replacement|gradient)\]",
    ),
    "distls/training/test_strengths.py": (
        r"::test_every_model_has_the_bits_of_a_fit_alone\[(asgd|ovr-pegasos|svmsgd2|csgd|rls|olbfgs|fobos)-",
        r"::test_an_interrupted_path_resumes_with_the_same_bits\[[147]\]",
        r"::test_the_same_bits_on_a_cluster\[three threads\]",
    ),
    "distls/solvers/test_overflow.py": (
        r"::test_rows_that_overflow\[(?!cls|stagewise)",
        r"::test_targets_whose_squares_overflow\[sdca\]",
        r"::test_workers_print_no_warnings",
    ),
    "distls/solvers/test_warm_up.py": (
        r"::test_a_fit_needs_no_other_kernels\[(?!bcd-sparse|sdca-sparse|stagewise-sparse)",
    ),
    "distls/training/test_more_passes.py": (
        r"::test_the_weights_are_those_of_all_passes\[(asgd|sgdqn|olbfgs)\]",
    ),
    # variants that differ in what is compiled: a loss, a layout, a type more
    "distls/estimators/test_estimators.py": (
        r"::test_scikit_learns_checks\[MCIDClassifier\(\)-check_(estimator_sparse_matrix|estimators_dtypes)",
        r"::test_two_classes_have_one_row_of_weights\[(SGDQN|Sparse)",
        r"::test_scikit_learns_checks\[MCIDClassifier\(\)-check_sample_weight_equivalence",
    ),
    "distls/estimators/test_sparse_estimator.py": (
        r"::test_scikit_learns_checks\[.*-check_(estimator_sparse_matrix|estimators_dtypes)",
        r"::test_scikit_learns_checks\[.*-check_(classifiers_train\(|classifier_data_not|supervised_y_2d)",
        r"::test_scikit_learns_checks\[.*-check_sample_weight_equivalence",
        r"::test_repeated_rows_are_weights\[log-True",
    ),
    "distls/estimators/test_stochastic_estimators.py": (
        r"::test_scikit_learns_checks\[SGDQNClassifier\(.*-check_(classifiers_train|classifier_data_not|pipeline_consistency)",
        r"::test_scikit_learns_checks\[(Adaline|CSGD).*-check_estimator_sparse_",
        r"::test_scikit_learns_checks\[SGDQNClassifier\(.*-check_(.*dtype|sample_weight|.*_sparse_|.*_memmap)",
        r"::test_scikit_learns_checks\[.*-check_estimators_dtypes",
        # one case of each method; the others are other compilations
        r"::test_partial_fit_has_the_bits_of_a_streamed_fit\[(2-.*-params[2-6]|.*-params[124])-",
        r"::test_probabilities_where_the_loss_has_them\[(ovr_log|sgdqn)\]",
        r"::test_no_probabilities_where_it_has_none\[hinge\]",
        r"::test_scikit_learns_checks\[(Adaline|CSGD|Stochastic).*-check_sample_weight(_equivalence|s_pandas)",
        r"::test_scikit_learns_checks\[Stochastic.*-check_(estimator_sparse_|.*readonly_memmap)",
        r"::test_scikit_learns_checks\[SGDQNClassifier\(.*-check_estimators_nan_inf",
    ),
    "distls/estimators/test_partial_fit.py": (
        r"::test_same_bits_as_one_pass_over_a_dataset_of_the_blocks\[options1-perceptron",
    ),
    "distls/evaluation/test_ranking.py": (
        r"::test_the_published_threshold_keeps_the_ranking_and_predicts_sets\[dense",
        r"::test_one_lane_goes_as_the_oracle_does\[(dense-|csr-multitask)",
        r"::test_ends_at_the_optimum_of_the_oracle_s_objective\[(?!csr-.*-fista)",
        r"::test_a_model_is_started_from_without_its_threshold\[(dense|csr-multitask|csr-multiclass.*-bcd)",
        r"::test_a_model_is_started_from_without_its_threshold\[.*-(l1|l1linf)\]",
        r"::test_weights_of_rows_count_in_ranking_and_threshold",
    ),
    "distls/interchange/test_export.py": (
        r"::test_onnx\[(two|many|ovr|hinge)-(plain|linear)",
        r"::test_(liblinear|vw)\[(many|words|hinge)-plain",
        r"::test_(liblinear|vw)\[(two|many|ovr)-linear",
        r"::test_npz\[(two|many|ovr)",
        r"::test_sklearn\[(two|many|words)-True",
        r"::test_what_is_not_linear_is_refused\[(sklearn|liblinear|vw|csv)-",
    ),
    "distls/reporting/test_run_report.py": (r"::test_paths_of_several_losses",),
    "distls/reporting/test_commands.py": (r"::test_a_live_report_ends_with_code_0",),
    "distls/reporting/test_browser.py": (
        r"::test_a_report_is_drawn_without_errors_at_every_width\[(1280-|400-light)",
        r"::test_a_(click_on_a_heading|printed_page)",
    ),
    "distls/ingestion/test_ingest_tables.py": (r"::test_every_chunk_boundary_gives_the_same_rows\[None\]",),
    "distls/evaluation/test_certificates.py": (
        r"::test_certificates_of_random_problems_are_bounds\[l1l2-(multitask|softmax)",
        r"::test_the_gap_on_text_is_at_most_ten_times_the_excess\[(l1linf|sparse-group)",
        r"::test_methods_that_read_rows_have_the_bound_of_columns\[(?!fista-False)",
        r"::test_certificates_of_random_problems_are_bounds\[(?!l1l2|l2)",
        r"::test_block_coordinate_descent_has_a_bound_with_an_intercept\[(?!l1l2-multiclass)",
    ),
    "distls/solvers/coordinate_descent/test_bcd.py": (
        r"::test_the_objective_is_exact_and_the_gap_small_at_the_end\[(?!l1l2-(multiclass|softmax)|(elasticnet|sparse-group)-multiclass)",
        r"::test_an_intercept_alone_is_optimal_before_the_fit_ends\[(multitask|softmax)",
        r"::test_without_active_sweeps_the_gap_is_that_of_the_weights_own_gradients\[(?!l1l2-multiclass)",
        r"::test_one_lane_is_the_paper_s_algorithm\[(multitask|softmax)",
        r"::test_features_with_means_and_an_intercept\[(?!multiclass_squared_hinge-2)",
        r"::test_a_round_of_lanes_is_the_oracle_s\[multitask",
        r"::test_single_precision_comes_close",
        r"::TestContractOfConstantSteps::",
        r"::test_every_round_descends_to_the_same_optimum\[[12]\]",
        r"::test_debiasing_is_ridge_on_the_selected_features\[.*-3\]",
    ),
    "distls/solvers/coordinate_descent/test_proximal.py": (
        r"::test_all_solvers_find_the_same_optimum\[(?!multiclass_squared_hinge-(l1l2|sparse-group)\])",
        r"::test_the_certificate_bounds_the_distance\[(multitask_squared_hinge-fista|multiclass_squared_hinge-sparsa|softmax-fista)",
        r"::test_line_search_is_the_oracle_s\[.*-(l1|l2|elasticnet|l1linf)\]",
        r"::test_spectral_steps_are_the_oracle_s\[(multitask_squared_hinge|softmax)-1",
    ),
    "distls/solvers/dual_ascent/test_class_blocks.py": (
        r"::test_each_class_is_at_its_own_optimum\[(hinge|log)\]",
        r"::test_blocks_do_not_change_the_bits\[5\]",
        r"::test_sets_of_labels",
        r"::test_sweeps_end_a_class",
    ),
    "distls/solvers/dual_ascent/test_sdca.py": (
        r"::test_the_optimum_and_its_proof\[(?!(softmax|ovr_squared_hinge|crammer_singer)-)",
        r"::test_the_optimum_and_its_proof\[crammer_singer-.*-True\]",
        r"::test_sample_and_class_weights\[(ovr_|squared)",
        r"::test_weights_of_scikit_learn",
        r"::test_no_problem_of_many",
        r"::test_no_problem_lacks_more_than_is_certified\[[12]0\]",
        r"::test_label_sets\[(ovr_hinge|squared)\]",
        r"::test_the_optimum_and_its_proof\[(softmax|ovr_squared_hinge)-(2-0\.3|4-0\.0)",
    ),
    "distls/solvers/stochastic/test_theorems.py": (
        r"::test_mcid_theorem_2",
        r"::test_constrained_sgd_theorem_3_2",
    ),
    "distls/solvers/stochastic/test_fobos.py": (
        r"::test_one_lane_is_the_algorithm_over_shuffled_rows\[(?!l1l2\])",
        r"::test_many_passes_come_near_the_optimum\[(multitask|multiclass_squared_hinge-4|softmax)",
        r"::TestChosenByTrial::",
    ),
    "distls/solvers/stochastic/test_stochastic_methods.py": (
        r"::test_two_classes_are_one_mirrored_problem\[olbfgs\]",
        r"::Test(GaussNewton|OneLane)::test_same_bits_on_every_cluster\[three threads",
        r"::test_more_features_than_rows_are_learned_with_the_hinge\[40-41",
    ),
    "workers/coordinate_descent/test_descent_kernels.py": (
        r"::test_steps_of_the_intercept_are_newton_s\[(?!multiclass_squared_hinge-True)",
        r"::test_any_number_of_classes\[(multitask|softmax)",
        r"::test_dense_shards_and_single_precision_scores\[(softmax|multitask)",
        r"::test_sweeps_are_the_paper_s\[(softmax|multitask_squared_hinge)-",
        r"::test_sweeps_on_sets_of_labels\[multitask",
        r"::test_steps_of_the_intercept_without_a_hessian\[(multitask|softmax)",
        r"::test_no_sweep_makes_it_worse_and_many_end_at_the_optimum\[(softmax|multitask)",
        r"::test_sweeps_on_sets_of_labels\[multiclass_squared_hinge-line-search-[249]",
        r"::test_the_oracle_s_gap_bounds_how_much_is_left\[.*-(multitask|softmax)",
    ),
    "workers/losses/test_registered_from_outside.py": (
        r"::test_what_is_compiled_for_it_is_not_in_the_way",
        r"::test_sparse_methods_train_with_the_penalty\[bcd",
    ),
    "workers/stochastic/second_order/test_second_order.py": (
        r"::test_rls_equals_the_oracle\[ovr_squared_hinge-False",
        r"::test_olbfgs_equals_the_oracle\[(softmax|ovr_|squared-.-dense)",
        r"::test_a_single_output_is_the_second_of_two\[ovr_log\]",
        r"::test_cutting_the_order_into_blocks_changes_no_bit\[(olbfgs-softmax-float32|rls-ovr_log-float64)",
        r"::test_rls_comes_near_the_optimum_of_other_losses\[ovr_log",
        r"::test_one_pass_solves_the_ridge_problem\[(1-dense|3-)",
        r"::test_every_pass_ends_at_the_minimum_for_classes\[1",
    ),
    "workers/stochastic/test_joint_learning.py": (
        r"::test_every_learner_has_its_own_bits\[(softmax-[28]|ovr_hinge-1)-float64\]",
    ),
    "workers/stochastic/test_update.py": (
        r"::test_schedules_with_decay\[numbers-dense",
        r"::test_one_column_of_two_classes_is_the_mirrored_model_of_two\[.*float64",
        r"::test_lazy_shrinkage_equals_that_of_every_step\[(0\.0-|0\.2-|0\.02-crammer)",
        r"::test_lazy_shrinkage_equals_that_of_every_step\[0\.02-(softmax-.*-l1linf|softmax-dense)",
        r"::test_lazy_shrinkage_equals_that_of_every_step\[0\.02-multiclass_squared_hinge-(csr|dense-l1l2)",
        r"::test_results_do_not_depend_on_addresses\[(?!.*csr-float64\])",
        r"::test_results_do_not_depend_on_addresses\[rls.*-csr-float64",
        r"::test_cuts_and_looks_change_no_bit\[(float32-svmsgd2|float32-fobos|float64-csgd)",
        r"::test_scheduled_updates_are_those_of_the_figures\[(True|False)-ovr_log-",
        r"::test_scheduled_updates_are_those_of_the_figures\[(True|False-.*-dense)-",
        r"::test_adaptive_steps_with_lazy_decay_equal_dense_ones\[(crammer_singer|ovr_hinge|softmax-dense)",
        r"::test_schedules_with_decay\[(crammer_singer|ovr_squared_hinge)",
        r"::test_one_column_of_two_classes_is_the_mirrored_model_of_two\[ovr_(log|hinge)-",
        r"::test_lazy_shrinkage_equals_that_of_every_step\[0\.02-softmax-csr-l1l2",
        r"::test_lazy_shrinkage_equals_that_of_every_step\[0\.02-.*-dense-l1linf",
        r"::test_one_column_of_two_classes_is_the_mirrored_model_of_two\[ovr_squared_hinge-float32",
        r"::test_adaptive_steps_with_lazy_decay_equal_dense_ones\[numbers-dense",
        r"::test_a_weighted_row_of_least_squares_is_a_row_of_its_root\[1-",
        r"::test_results_do_not_depend_on_addresses\[olbfgs",
        r"::test_schedules_with_decay\[numbers-csr",
    ),
    "workers/stochastic/test_sgd_kernels.py": (
        r"::test_float64_equals_the_oracle\[(perceptron|multi|ovr_)",
        r"::test_cutting_the_order_into_blocks_changes_no_bit\[float..-(perceptron|multi|ovr_)",
        r"::test_float32_data_with_float64_weights_and_wide_indices\[(?!crammer)",
        r"::test_every_vector_width_and_a_warm_start\[(ovr_|perceptron|multi)",
        r"::test_float64_equals_the_oracle\[.*-dense-",
        r"::test_weight_two_is_the_row_twice_in_its_batch\[(multi|ovr_(log|squared)|perceptron)",
        r"::test_the_perceptron_does_not_depend_on_alpha\[.*-float64",
        r"::test_one_versus_rest_is_a_binary_model_for_each_class\[ovr_log",
    ),
    "distls/estimators/test_dual_estimators.py": (
        # the two classifiers are one class with two losses; that of regression keeps single precision
        r"::test_scikit_learns_checks\[Dual(LinearSVC|LogisticRegression)\(.*\)-check_(estimators_dtypes|dtype_object)",
        r"::test_scikit_learns_checks\[DualLinearSVC\(.*\)-check_(fit_idempotent|fit2d_predict1d|dict_unchanged|dont_overwrite)",
        r"::test_scikit_learns_checks\[DualLinearSVC\(.*\)-check_(n_features_in\(|positive_only|readonly|methods_|estimator_sparse_|estimators_overwrite|classifier_data_not)",
        r"::test_scikit_learns_checks\[.*-check_sample_weight_equivalence",
        r"::test_scikit_learns_checks\[DualL.*-check_(sample_weight|classifiers_one_label_sample)",
        r"::test_scikit_learns_checks\[Dual(LogisticRegression|Ridge)\(.*-check_estimator_sparse_matrix",
        r"::test_agrees_with_linear_svc\[(squared_hinge|hinge-3|crammer_singer-2)",
        r"::test_agrees_with_liblinear_s_intercept\[(squared_hinge-2|(hinge|crammer_singer|ovr_log)-3)\]",
        r"::test_agrees_with_ridge_and_elastic_net\[(None-0\.5|2-0\.0)\]",
        r"::test_agrees_with_logistic_regression\[(strength0-2|strength1-3)\]",
    ),
    "workers/losses/test_dual_steps.py": (
        # in float64 most; in float32 where rounding could leave the domain, one loss of each
        r"::test_steps_are_the_oracle_s\[(?!squared).*-float32",
        r"::test_steps_are_the_oracle_s\[.*-class-float32",
        r"::test_steps_are_the_oracle_s\[.*-numbers-float64",
        r"::test_weights_and_sums_follow_the_duals\[(?!squared-3).*-float32",
        r"::test_rows_without_features_have_best_duals_too\[(?!softmax|ovr_hinge|ovr_squared_hinge).*-float32",
        r"::test_duals_stay_in_the_domain\[(?!softmax|ovr_hinge|ovr_squared_hinge)",
        r"::test_steps_are_the_oracle_s\[squared-4-class-float64",
    ),
    "distls/solvers/stochastic/test_label_sets.py": (
        r"::test_weights_and_objective_are_those_of_the_oracle\[svmsgd2-ovr_(hinge|log)",
        r"::test_weights_and_objective_are_those_of_the_oracle\[sgd-.*-params[456]-",
        r"::test_defaults_learn_the_sets\[(sgdqn|asgd)",
        r"::test_weights_and_objective_are_those_of_the_oracle\[sgd-(ovr_log|squared)",
        r"::test_defaults_learn_the_sets\[ovr-logistic",
    ),
    "workers/linear_algebra/test_score_kernels.py": (
        r"::test_float32_weights_give_a_float64_gradient\[(multi|ovr_(hinge|squared)|perceptron|squared)",
        r"::test_scores\[.*-float32-.*-dense",
        r"::test_float32_weights_give_a_float64_gradient\[ovr_log",
    ),
    "distls/estimators/test_least_squares_estimators.py": (
        r"::test_scikit_learns_checks\[.*-check_(sample_weight_equivalence|estimators_dtypes|.*readonly_memmap)",
        r"::test_scikit_learns_checks\[.*-check_estimator_sparse_matrix",
    ),
    "distls/estimators/test_small_optimum.py": (r"::test_has_the_optimum_of_dual_ascent\[.*-2\]",),
    "distls/solvers/coordinate_descent/test_shrinking.py": (r"::test_one_lane_is_yuan_s_shrinking\[softmax",),
    "distls/solvers/least_squares/test_cls.py": (
        r"::test_every_round_is_the_oracles\[(?!False-setting0|True-setting3)",
        r"::test_generated_features_are_the_oracles_rows\[(dense-|csr-(polynomials|logits)\])",
        r"::test_the_error_falls_in_all_settings\[(2-float32|5-float64)",
    ),
    "distls/solvers/least_squares/test_gls.py": (
        r"::test_a_path_at_shared_reads_is_separate_fits_of_every_fold\[(softmax-csr|logit-dense)",
    ),
    "distls/solvers/stochastic/test_ovr.py": (
        r"::test_one_pass_in_stored_order_is_a_binary_model_for_each_class\[1-ovr-pegasos",
    ),
    "distls/methods/test_recommendation.py": (r"::test_other_targets_have_links_of_their_own\[multilabel",),
    "distls/evaluation/test_dual_search.py": (
        r"::test_a_tolerance_ends_a_fit\[(sgd|asgd)-",
        r"::test_bounds_of_random_problems_are_true\[([6-9]|1[01])\]",
    ),
    "distls/evaluation/test_calibrate.py": (
        r"::test_of_many_fits_only_what_is_published_is_calibrated\[folds",
    ),
    "distls/cli/test_report.py": (r"::test_what_gives_a_real_bound_solves_the_same_problem\[sgdqn",),
    "distls/cli/test_cli.py": (r"::test_a_traceback_with_debug_and_only_then\[dask",),
    "workers/stochastic/test_constrained_sgd.py": (
        r"::test_float32_follows_the_oracle\[project-(classes|numbers)",
    ),
    "workers/synthetic/test_synthetic_data.py": (
        r"::test_a_linear_model_learns_it_but_not_perfectly\[(rcv1-53|dense|odp)",
        r"::test_block_boundaries_do_not_show\[(odp|alpha|axis|csgd-wide|lshtc1)\]",
        r"::test_factors_are_ill_conditioned\[(alpha|axis)",
        r"::test_the_best_possible_error_of_factors_is_that_of_their_noise\[(alpha|delta)",
        r"::test_seed_part_and_index_each_change_the_rows\[(rcv1-53|alpha|csgd-wide|lshtc1)",
    ),
    "distls/synthetic/test_generation.py": (
        r"::test_fewer_rows_are_a_prefix_in_partitions_of_any_size\[131072",
        r"::test_partitions_of_sparse_kinds_are_of_the_asked_size\[odp",
    ),
    "distls/ingestion/test_ingest_anndata.py": (
        r"::test_labels_of_every_kind\[(number|integer|flag|fraction)-a2?\.(h5ad|zarr)\]",
        r"::test_a_chunk_of_strings_that_promises_more_than_it_has_is_refused\[(obs/word|var/_index)-(a2|a3)",
    ),
    "distls/columns/test_sharding.py": (
        r"::test_killed_anywhere_it_resumes_to_the_same_bytes\[(0\.[04]-dense|0\.1-sparse|0\.6-sparse|0\.95-dense)\]",
        r"::test_bundles_and_schedules_leave_no_trace\[5000",
    ),
    "distls/training/test_cross_validation.py": (
        r"::test_a_fit_without_a_fold_is_one_to_the_other_rows\[(softmax|hinge)\]",
        r"::test_other_targets\[continuous",
        r"::test_an_interrupted_cross_validation_is_resumed\[pruned",
    ),
    "distls/training/test_regularization_path.py": (
        r"::test_the_first_alpha_is_judged_at_the_best_intercept\[softmax",
    ),
    "storage/dataset/test_partitions.py": (
        r"::test_every_bit_of_a_tiny_partition\[(class-(zstd|lz4)|multilabel-(none|zstd))\]",
    ),
    "system/test_malicious.py": (
        r"::test_classes_without_rows_are_refused_before_weights_are_made\[(gls|bcd|sdca)",
    ),
    "distls/solvers/dual_ascent/test_intercept_scaling.py": (
        r"::test_the_optimum_is_that_of_a_constant_column\[.*-2\]",
    ),
    "workers/compilation/test_kernel_contents.py": (r"::test_copies_have_none",),
    "distls/evaluation/test_regression.py": (r"::test_from_text_to_predictions\[csv",),
    "workers/losses/test_losses.py": (
        r"::test_ties_go_to_the_lowest_class\[float64",
        # that kernels with a loss are loaded in other processes is kept: test_warm_up
        r"::test_kernels_with_a_loss_come_from_the_disk_cache",
        r"::test_arrays_and_rows_agree_with_the_paper\[[34]-",
    ),
    # further faults of the same kind, and what is long because it is large
    "deploy/test_dockerfile.py": (r"::test_its_steps_build_and_install_the_package",),
    "deploy/test_kubernetes.py": (r"::test_a_job_trains_the_same_weights_and_resumes",),
    "deploy/test_readme.py": (r"::test_the_commands_by_hand_train_the_same_weights",),
    "deploy/test_systemd.py": (r"::test_their_commands_train_the_same_weights",),
    "system/faults/test_concurrent.py": (r"::test_the_second_ingest_and_the_second_transposition",),
    "system/faults/test_kills.py": (
        # kept: both signals at once, the driver killed after a checkpoint; all workers killed in test_losses_of_workers
        r"::test_killed_workers_change_nothing",
        r"::test_interrupted_run_says_how_to_go_on_and_resumes",
        r"::test_driver_killed_before_any_checkpoint",
        r"::test_whoever_asks_twice_gets_one_answer",
        r"::test_killed_worker_changes_nothing_of_coordinate_descent",
    ),
    "system/faults/test_solvers.py": (
        r"::test_a_worker_is_killed_between_rounds",
        r"::test_killed_and_resumed",
    ),
    "system/faults/test_storage.py": (
        r"::test_full_in_a_checkpoint",
        r"::test_full_in_generate\[(?!102400-two workers)",
        r"::test_unsteady_storage",
        r"::test_what_is_kept_of_each_row_is_made_anew\[(stages|calibrated)-",
        r"::test_damaged_between_rounds\[.*-two workers",
    ),
    "distls/execution/test_leftovers.py": (r"::test_the_folders",),
    "distls/execution/test_losses_of_workers.py": (
        r"::test_all_workers_are_killed_at_once\[(map-.|reduce-2)\]",
        r"::test_workers_(are_killed_with|that_cannot_be)",
        r"::test_a_(worker|scheduler)_that_is_stopped",
        r"::test_a_successor_is_forked_as_its_predecessor_was\[True",
    ),
    "system/test_limits.py": (
        r"::test_a_(limit_on_open_files|temporary_folder)",
        r"::test_few_open_files(\[32\]|_are_enough)",
        r"::test_few_addresses\[(dask-1000|serial-.*)\]",
    ),
    "system/faults/test_workers.py": (
        r"::.*\[(read-|reduce-)?(statistics|shards)\]",
        r"::test_a_worker_is_killed\[(?!kernel-lanes)",
        r"::test_the_only_holder_of_the_weights_is_killed",
        r"::test_both_workers_are_killed",
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
    "system/test_cluster.py": (
        r"::test_tls_by_dasks_own_configuration",
        r"::test_no_answer_is_one_line",  # waits for answers that do not come
    ),
    "system/test_inside_dask.py": (
        r"::test_as_many_fits",
        r"::test_a_cluster_that_starts",
        r"::test_searches_under_joblib",
    ),
    "system/test_columns.py": (
        r"::test_interrupted_it_goes_on",
        r"::test_a_killed_worker_changes_nothing",
        # kept: test_sharding's kills of the same transposition, in one process
        r"::test_killed_it_goes_on",
    ),
    "system/test_compilation.py": (
        r"::test_who_compiles_has_the_bits_of_who_loads",
        r"::test_a_fit_whose_kernels_are_damaged",
    ),
    "workers/compilation/test_damaged_entries.py": (
        r"::test_a_damaged_file_is_replaced\[(?!.nbc-one bit|.nbi-truncated)",
        r"::test_processes_that_find_it_together",
        r"::test_a_damaged_file_is_replaced\[\.nbi-truncated",
    ),
    "system/test_endurance.py": (r"::test_500_rounds_leave_nothing",),
    "system/test_hosts.py": (
        r"::test_a_slow_link_and_one_cut_for_a_moment",
        r"::test_a_cut_link_loses_a_worker_and_nothing_else",
    ),
    "system/test_interrupts.py": (
        r"::test_a_round_that_does_not_end",
        r"::test_what_is_stuck_loses_nothing",
        r"::test_what_is_stuck_before_the_first_round",
        r"::test_work_that_does_not_end",
        r"::test_a_cluster_that_does_not_close",
    ),
    "system/test_memory.py": (
        r"::test_descent_over_shards",
        r"::test_classes_whose_weights_do_not_fit",
        r"::test_peaks_of_the_least_squares_methods_stay_below_the_plan",
        r"::test_columns_stay_below_the_limit",
    ),
    "system/test_object_stores.py": (
        r"::test_the_same_bits_on_worker_processes",
        r"::test_the_same_bits_from_a_store_that_fails",
        r"::test_a_store_that_is_gone_ends_the_fit_in_one_line",
        r"::test_a_killed_driver_goes_on_from_its_checkpoint",
    ),
    "system/test_permissions.py": (r"::test_no_file_is_wider_than_the_mask",),
    "system/test_tls.py": (
        # kept: same bits with TLS, strangers without a certificate refused
        r"::test_open_to_other_machines_is_open_by_tls_only",
        r"::test_workers_of_strangers_are_refused",
    ),
    "test_guides.py": (r"::test_commands_print_what_the_guide_shows",),
    "test_fuzz.py": (r"::test_a_few_cases_of_each_reader$",),
    "test_benchmarks.py": (
        r"::test_(sgd_qn|mcid)_paper$",
        r"::test_bcd_paper_(figures|many|losses)",
        r"::test_least_squares_paper_(figures|tables|without)",
        r"::test_constrained_sgd_paper",
        r"::test_(scale|table_of_systems|simulation|peers|peaks|endurance|kernels|chaos|recovery|small|many_classes|choose)$",
        r"::test_chaos_elsewhere",
        r"::test_least_squares_paper_on_pictures",
        r"::test_(gram|serving)$",
    ),
    "test_sizes.py": (r"::test_the_numbers_of_the_house",),
    "distls/serving/test_fitted_model.py": (r"::test_families\[bcd",),
    "workers/compilation/test_addresses.py": (
        r"::test_training_does_not_depend_on_addresses\[(ovr_log|ovr_hinge)-.*-float64",
        r"::test_training_does_not_depend_on_addresses\[ovr_hinge-",
    ),
}


def is_slow(node: str) -> bool:
    """Tell whether a test belongs to the slow lane.

    Parameters
    ----------
    node : str
        Its name as pytest has it, ``tests/FILE::TEST``.
    """
    file, names = _file_and_names(node)
    return any(re.match(pattern, name) for pattern in (*SLOW[""], *SLOW.get(file, ())) for name in names)


def unmatched(nodes: list[str]) -> list[str]:
    """Return the patterns that match none of all tests: what they were for has another name now."""
    names: dict[str, list[str]] = {file: [] for file in SLOW}
    for file, either in map(_file_and_names, nodes):
        names[""] += either
        if file in names:
            names[file] += either
    return [
        f"{file}: {pattern}"
        for file, patterns in SLOW.items()
        for pattern in patterns
        if not any(re.match(pattern, name) for name in names[file])
    ]


def _file_and_names(node: str) -> tuple[str, tuple[str, str]]:
    """A pattern may name the class of a test, to mean this one's alone."""
    file, _, name = node.removeprefix("tests/").partition("::")
    return file, ("::" + name.split("::")[-1], "::" + name)
