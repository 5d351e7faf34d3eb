"""The failure cases of online schema change that are known from other tools, by number, and the test that holds each of them off.

Numbers that are not here are of other databases or were never given. What a case is about is said by the test's name.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]
HERE = "dialects/postgres/"
BESIDE, AROUND, KEYS, DAYS = (f"{HERE}test_{name}.py" for name in ("changes_beside_a_copy", "changes_around_a_swap", "key_types", "hard_days"))
FENCE, SHADOW, CHANGES, ROLES, DRIVER = (f"{HERE}test_{name}.py" for name in ("fence", "shadow", "changes", "roles", "driver_postgres"))
ROWS, LIFE = "conformance/test_shadow_rows.py", "conformance/test_shadow.py"

CASES = {
    # copy and change stream
    "F1": (FENCE, "a_change_waits_for_the_chunk_that_may_carry_the_older_row"),
    "F2": (ROWS, "a_key_may_be_applied_before_its_range_is_copied"),
    "F3": (BESIDE, "no_snapshot_is_held_between_chunks_and_none_for_long"),
    "F4": (BESIDE, "what_is_written_while_a_batch_is_applied_stays_in_the_log", "a_mirror_that_is_written_in_the_same_transactions_equals_the_copy"),
    "F5": (BESIDE, "a_copy_ends_however_fast_rows_are_added"),
    "F6": (BESIDE, "what_a_deadlock_has_undone_is_done_again"),
    "F7": (ROWS, "a_unique_value_may_move_between_rows"),
    "F8": (BESIDE, "an_insert_that_does_nothing_is_not_in_the_log"),
    # values and keys
    "F10": (BESIDE, "a_value_that_becomes_null_is_null_in_the_copy"),
    "F11": (BESIDE, "a_key_of_several_columns_is_one_key"),
    "F12": (KEYS, "rows_are_found_by_any_key"),
    "F13": (KEYS, "rows_are_found_by_any_key"),
    "F14": (KEYS, "rows_are_found_by_any_key"),
    "F15": (KEYS, "rows_are_found_by_any_key"),
    "F17": (KEYS, "a_key_whose_columns_are_ordered_both_ways_is_not_used"),
    "F18": (KEYS, "rows_are_found_by_any_key"),
    "F19": (CHANGES, "what_cannot_be_done_is_refused_before_anything_is_made", "a_change_ends_as_the_servers_own_statement"),
    "F20": (BESIDE, "a_value_too_long_for_the_new_type_ends_the_job_and_no_statement"),
    "F21": (DAYS, "a_session_that_replicates_is_captured_too"),
    "F22": (BESIDE, "what_triggers_and_generated_columns_make_of_a_value_is_copied"),
    "F23": (BESIDE, "rows_that_were_emptied_away_do_not_come_back"),
    "F25": (BESIDE, "the_copy_fires_no_trigger_of_the_applications"),
    "F27": (AROUND, "wide_rows_make_small_chunks"),
    # what is lost at a swap
    "F28": (SHADOW, "everything_attached_stays"),
    "F29": (SHADOW, "everything_attached_stays", "what_cannot_be_carried_over_is_told_at_once"),
    "F30": (f"{HERE}test_in_place.py", "everything_on_the_column_stays"),
    "F31": (AROUND, "numbers_that_were_given_are_not_given_again"),
    "F32": (AROUND, "numbers_that_were_given_are_not_given_again"),
    "F33": (SHADOW, "everything_attached_stays"),
    "F35": (AROUND, "what_goes_with_a_dropped_column_is_told"),
    "F37": (CHANGES, "what_cannot_be_done_is_refused_before_anything_is_made"),
    "F38": (AROUND, "a_renamed_columns_name_inside_other_words_is_let_alone"),
    "F39": (SHADOW, "everything_attached_stays"),
    "F40": (SHADOW, "what_cannot_be_carried_over_is_told_at_once"),
    "F41": (AROUND, "names_stay_however_often_a_table_is_changed"),
    "F42": (AROUND, "names_that_must_be_quoted"),
    "F43": (AROUND, "a_publication_of_everything_that_comes_meanwhile_ends_the_job_and_no_statement"),
    "F44": (f"{HERE}test_replication.py", "what_a_subscriber_has_not_read_yet_can_be_read_after_a_swap"),
    # jobs and operations
    "F47": (f"{HERE}test_crashes.py", "a_death_anywhere_costs_nothing"),
    "F48": (LIFE, "a_check_sees_what_is_not_as_recorded"),
    "F49": (CHANGES, "an_index_that_a_killed_session_left_is_built_anew", "a_command_ends_a_build_that_waits_for_an_old_snapshot"),
    "F50": (AROUND, "old_transactions_elsewhere_hold_nothing_up"),
    "F51": (DRIVER, "sessions_are_pinned_whatever_the_role_says"),
    "F52": (AROUND, "who_waits_behind_a_try_gets_through_when_it_gives_up"),
    "F53": (AROUND, "an_unlogged_table_stays_one"),
    "F54": (AROUND, "writers_go_on_when_what_is_ours_was_taken_away"),
    "F55": ("dxf/test_modify.py", "a_write_speed_is_kept_over_all_nodes"),
    "F56": (CHANGES, "a_change_ends_as_the_servers_own_statement"),
    "F57": (BESIDE, "no_snapshot_is_held_between_chunks_and_none_for_long"),
    "F58": ("ddl/test_neighbours.py", "a_paused_job_blocks_its_table_and_no_other"),
    "F59": (AROUND, "what_writes_no_row_is_known_by_the_catalogue"),
}


@pytest.mark.parametrize("case", CASES)
def test_the_case_is_held_off_by_a_test(case: str) -> None:
    """Each test that a case names is there."""
    path, *names = CASES[case]
    tree = ast.parse((TESTS / path).read_text(encoding="utf-8"))
    there = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}

    assert {f"test_{name}" for name in names} <= there
