"""What went wrong in the users' own folders and trainers, row by row, and the tests that show it no longer does."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from dreamproof.cli.main import app

TESTS = Path(__file__).parent
NIGHT, FOREIGN, OTHERS = "study/test_night.py", "study/test_foreign_runs.py", "study/test_runs_of_others.py"
LOGS, ADAPTERS = "study/plan/test_importing_logs.py", "study/adapters"
DREAMER, CHECKPOINTS = f"{ADAPTERS}/test_dreamer_runs.py", f"{ADAPTERS}/test_checkpoints.py"
BASELINES, EVENTS = f"{ADAPTERS}/test_stable_baselines3.py", f"{ADAPTERS}/test_event_files.py"
LINES, CHOICE = f"{ADAPTERS}/test_tables_and_lines.py", f"{ADAPTERS}/test_choice_of_adapter.py"
PREFLIGHT, SEEING = "study/preflight/test_preflight.py", "cli/test_seeing.py"

ROWS: dict[int, tuple[str, dict[str, list[str]]]] = {
    1: (
        "the folder that SafeDreamer names by itself is found, with and without a slash",
        {
            FOREIGN: ["test_a_trainer_like_safedreamer_is_trained_to_its_proof"],
            DREAMER: [
                "test_a_dreamer_log_is_found_in_the_run_folder_or_in_a_folder_that_the_trainer_named",
                "test_progress_is_that_of_the_folder_which_this_attempt_created",
            ],
            CHOICE: ["test_a_trainer_that_appends_its_own_name_writes_into_the_run_folder"],
        },
    ),
    2: (
        "trained, not saved: a state of its own with reason, hours, money and remedy everywhere",
        {
            FOREIGN: ["test_seventeen_runs_that_saved_at_their_start_are_one_truth_in_every_verb_and_document"],
            NIGHT: ["test_the_night_after_runs_that_saved_at_their_start"],
        },
    ),
    3: (
        "a run that saved nothing is not trained again unasked, and the preflight warns before",
        {
            FOREIGN: ["test_a_run_that_saved_nothing_is_stopped_at_once_and_not_trained_again"],
            PREFLIGHT: ["test_checkpoints_by_a_clock_that_does_not_fit_the_run_are_a_warning"],
        },
    ),
    4: (
        "a run that somebody else started is watched, never started twice, and adopted",
        {
            OTHERS: [
                "test_a_living_run_is_imported_as_running_and_not_started_a_second_time",
                "test_files_that_were_just_written_show_a_run_whose_process_cannot_be_seen",
                "test_a_living_run_takes_a_slot_and_is_adopted_when_it_ends",
                "test_attach_by_process_finds_the_folder_and_the_next_run_adopts_it",
            ],
        },
    ),
    5: (
        "status, watch and why show process, GPU, memory, age of the last progress and phase; watch keeps a log",
        {
            SEEING: [
                "test_a_line_about_a_cell_holds_everything",
                "test_the_gpu_of_a_process_is_found_by_its_process_id",
                "test_the_age_of_the_last_progress_is_the_supervisors",
                "test_event_files_and_runs_of_wandb_give_their_newest_values",
                "test_a_log_of_the_night_is_kept",
            ],
        },
    ),
    6: (
        "no healthy process is killed, busy machine and long compiles included",
        {
            "study/diagnosis/test_hangs.py": [
                "test_healthy_runs_are_left_alone_and_hangs_are_found_in_the_documented_time",
                "test_real_healthy_runs_are_left_alone_with_the_limits_as_shipped",
            ],
            "study/diagnosis/test_liveness.py": [
                "test_three_quick_beats_and_then_a_compile_of_ten_minutes_kill_nothing",
                "test_time_counts_less_while_other_work_holds_the_cores",
            ],
        },
    ),
    7: (
        "flat Slurm logs become cells with cause, final and peak value, length and job; a job is no seed",
        {
            LOGS: [
                "test_twenty_two_slurm_logs_are_imported_in_one_command",
                "test_seeds_come_from_the_name_from_a_pattern_or_from_a_table_and_never_from_a_job",
                "test_what_an_import_of_logs_saw_is_the_same_in_every_verb_and_document",
            ],
        },
    ),
    8: (
        "15,000 rounds are never 20,000",
        {
            LINES: ["test_the_length_of_a_run_is_that_of_its_lines"],
            "report/test_lints.py": ["test_different_training_lengths_block_the_arm"],
            "report/test_prospects.py": ["test_cells_and_imported_runs_of_another_length_are_named"],
        },
    ),
    9: (
        "tables of results, evaluation logs, duplicates and updates: one truth in all verbs and documents",
        {
            LOGS: [
                "test_a_table_of_means_needs_its_seeds_and_is_then_reported",
                "test_an_evaluation_folder_without_a_checkpoint_is_reported_with_its_means",
                "test_text_logs_of_evaluations_are_reported_by_arm_seed_and_condition",
                "test_no_file_is_named_that_does_not_exist",
                "test_aborted_duplicates_are_counted_as_waste_everywhere",
                "test_rows_of_a_log_are_not_counted_as_updates",
            ],
        },
    ),
    10: (
        "the end of the night: both languages, the user's slides, then a chain of commands with its true outcome",
        {
            NIGHT: [
                "test_the_whole_night_in_one_command",
                "test_a_document_that_fails_is_recorded_and_keeps_nothing_else_from_happening",
                "test_reports_of_the_verb_are_those_of_the_study_and_languages_stay_apart",
            ],
            "study/test_finish.py": [
                "test_when_a_shutdown_follows",
                "test_the_next_command_of_the_chain_is_tried_and_the_rest_left_alone",
                "test_a_shutdown_that_fails_is_recorded_as_a_failure_and_loud",
            ],
        },
    ),
    11: (
        "a required GPU is checked before anything starts",
        {
            NIGHT: [
                "test_a_required_gpu_that_is_not_there_fails_the_preflight",
                "test_a_library_that_cannot_see_the_gpu_fails_with_the_line_that_cures_it",
                "test_our_own_trainer_does_not_fall_back_to_the_cpu_unasked",
            ],
        },
    ),
    12: (
        "a copy without its file times proves nothing by times",
        {
            BASELINES: [
                "test_a_copy_without_its_times_whose_last_models_were_deleted_proves_nothing",
                "test_the_recorded_model_of_step_500_is_no_proof_of_the_end",
            ],
            CHECKPOINTS: ["test_equal_file_times_prove_nothing_for_a_model_without_a_step"],
        },
    ),
    13: (
        "the hash of a checkpoint folder covers all its files",
        {DREAMER: ["test_the_hash_of_a_dreamer_v3_checkpoint_is_that_of_its_folder_not_of_its_counter"]},
    ),
    14: (
        "a preflight that can read nothing fails and names the adapter that would fit",
        {
            PREFLIGHT: [
                "test_a_trainer_that_ends_well_and_shows_nothing_fails_with_the_adapter_that_would_fit",
                "test_a_trainer_that_no_adapter_knows_gets_advice_what_would_do",
                "test_a_whole_run_whose_end_is_not_proven_stops_the_launch",
            ],
        },
    ),
    15: (
        "a restart from zero is noticed and all that was lost is waste",
        {
            FOREIGN: [
                "test_a_trainer_that_begins_again_is_noticed_and_its_lost_steps_are_wasted",
                "test_a_restart_is_noticed_although_the_first_row_lies_beyond_the_checkpoint",
            ],
            "study/money/test_spending.py": ["test_a_restart_from_zero_turns_all_useful_time_before_it_into_waste"],
        },
    ),
    16: (
        "a condition has a real kind; an invalid file is distinguished from no file",
        {
            FOREIGN: [
                "test_a_condition_is_given_a_kind_that_an_evaluation_file_may_hold",
                "test_a_file_that_is_not_valid_is_distinguished_from_no_file",
            ],
        },
    ),
    17: (
        "whole rollouts are tolerated, and what forbids a verdict is said before the money",
        {
            "report/test_lints.py": ["test_lengths_within_the_declared_tolerance_are_equal"],
            "report/test_prospects.py": [
                "test_what_would_forbid_a_verdict_is_named",
                "test_the_smallest_study_has_a_price_and_counts_what_is_proven",
                "test_plan_and_its_json_say_it",
                "test_check_says_it_at_the_speed_that_it_measured",
            ],
        },
    ),
    18: (
        "every printed hint is a valid command, and the last lines of a log are quoted",
        {
            "cli/test_hints.py": ["test_a_hint_is_accepted_by_the_parser"],
            "study/diagnosis/test_log_rules.py": ["test_short_outputs"],
            "study/diagnosis/test_diagnose.py": [
                "test_any_evidence_at_all_gets_a_cause_with_a_quote",
                "test_a_proof_stands_however_the_process_ended",
            ],
        },
    ),
    19: (
        "adapters for TensorBoard, stable-baselines3, W&B and printed lines; {overrides}, step_key, line_pattern",
        {
            BASELINES: [
                "test_every_log_of_stable_baselines3_shows_progress_and_proves_with_the_model",
                "test_a_recorded_folder_of_stable_baselines3_is_proven_in_a_copy_without_its_times",
            ],
            EVENTS: [
                "test_event_files_show_progress_and_prove_with_a_checkpoint",
                "test_an_offline_run_of_wandb_is_proven_by_its_summary",
            ],
            LINES: [
                "test_a_declared_key_counts_whatever_it_is_called",
                "test_printed_lines_are_read_by_the_expression_of_the_study",
            ],
            CHOICE: [
                "test_auto_chooses_the_adapter_whose_files_are_there",
                "test_settings_reach_hydra_as_overrides",
            ],
        },
    ),
    20: (
        "one file to copy makes a loop native in five lines, with a callback for stable-baselines3",
        {
            "test_client.py": [
                "test_it_is_one_file_for_python_3_8_with_the_standard_library_alone",
                "test_the_copied_file_alone_trains_stops_resumes_and_evaluates",
                "test_the_callback_for_stable_baselines3_reports_saves_and_stops",
            ],
        },
    ),
    21: (
        "init, packaged examples, completion, a reference, narrow terminals; nothing named is not everything",
        {
            "cli/test_init.py": [
                "test_every_kind_of_trainer_gives_a_valid_commented_study",
                "test_completion_can_be_installed",
            ],
            "cli/test_examples.py": ["test_a_copy_runs_without_the_repository"],
            "test_reference.py": ["test_the_reference_is_up_to_date"],
            "study/plan/test_gap.py": ["test_a_selection_of_what_is_not_declared_is_refused"],
            "study/money/test_spending.py": ["test_amounts_have_a_sign_only_where_a_currency_is_declared"],
            SEEING: [
                "test_the_table_fits_every_width_from_40_columns_on",
                "test_the_time_left_of_the_study_uses_the_speed_of_what_runs",
            ],
        },
    ),
    22: (
        "JSON with a version, constant documented keys and errors; a small Python API",
        {
            "cli/test_verbs.py": [
                "test_reading_verbs_speak_json",
                "test_errors_are_json_too",
                "test_words_that_no_verb_takes_are_an_error_in_json_too",
            ],
            "test_reference.py": ["test_every_printed_field_has_a_meaning_and_every_meaning_a_field"],
            "test_api.py": ["test_cells_have_one_row_per_arm_and_seed"],
        },
    ),
}


@cache
def collected(file: str) -> frozenset[str]:
    """Names of the test functions in a file."""
    tree = ast.parse((TESTS / file).read_text("utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


def test_every_row_is_listed() -> None:
    assert list(ROWS) == list(range(1, 23))


@pytest.mark.parametrize("row", ROWS)
def test_a_row_names_tests_that_exist(row: int) -> None:
    wanted, tests = ROWS[row]
    assert wanted and tests
    for file, names in tests.items():
        assert Path(file).name.startswith("test_") and set(names) <= collected(file), file
        assert all(name.startswith("test_") for name in names)


ASKED = (TESTS.parent / "docs" / "asked.md").read_text("utf-8")
ASKED_ROWS = re.findall(r"^\| (\d+) \| (.+?) \| (.+) \|$", ASKED, re.MULTILINE)


def test_every_request_of_the_users_has_a_place() -> None:
    assert [int(number) for number, _, _ in ASKED_ROWS] == list(range(1, 89))
    assert all("`test_" in place or "*Results*" in place for _, _, place in ASKED_ROWS)
    named = set(re.findall(r"`(test_\w+)`", ASKED))
    known = {name for path in TESTS.rglob("test_*.py") for name in collected(str(path.relative_to(TESTS)))}
    assert named - known == set()
    verbs = {command.name for command in app.registered_commands}
    assert set(re.findall(r"`dreamproof (\w+)", ASKED)) <= verbs
