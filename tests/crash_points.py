"""The points of the protocol at which something may die or go wrong, by number, and the tests that hit each of them.

A simulated process is brought to fail at a point that `tests/simulation/crash_points.py` names after it; that it does
is asserted there. What is about real disks, servers, sandboxes, requests or people is hit by tests of its own. A
control shows that these notice: without the defence, or with what the defence lets through, it ends otherwise.
"""

import re
from dataclasses import dataclass

from tests.simulation.crash_points import CRASH_POINTS

_SIMULATED = "simulation/test_simulation.py::test_a_process_that_is_killed_at_a_crash_point_does_no_harm"
_WITHOUT = "simulation/test_simulation.py::test_control_without_its_defence_a_crash_point_does_harm"
_REPORTS, _CALLS, _BAD = "fleet/test_reports.py::", "fleet/test_calls.py::", "fleet/test_bad_commands.py::"
_DYING, _DISK, _CLOCKS = "record/test_dying_stores.py::", "fleet/test_full_disk.py::", "fleet/test_clocks.py::"
_TURNS = "gateway/test_turns.py::"
_NUMBER = re.compile(r"C[0-9]{1,2}")


@dataclass(frozen=True, slots=True)
class Point:
    """What happens at a point, and the `tests` and `controls` beside those of the simulation.

    `like` is a point of another number whose state is the same here.
    """

    happens: str
    tests: tuple[str, ...] = ()
    controls: tuple[str, ...] = ()
    like: str = ""


def failpoints(number: str) -> list[str]:
    """The names under which a point is simulated."""
    wanted = POINTS[number].like or number
    return [name for name in CRASH_POINTS if (found := _NUMBER.match(name)) and found[0] == wanted]


def hitting(number: str) -> list[str]:
    """The tests that hit a point."""
    return [f"tests/{one}" for one in (*([_SIMULATED] if failpoints(number) else []), *POINTS[number].tests)]


def controls(number: str) -> list[str]:
    """The tests that would fail if those did not notice."""
    return [f"tests/{one}" for one in (*([_WITHOUT] if failpoints(number) else []), *POINTS[number].controls)]


POINTS = {
    "C1": Point(
        "a gateway dies while it reads a request",
        (
            _TURNS + "test_a_server_that_dies_over_half_a_request_has_begun_nothing_and_the_whole_one_begins_one_turn",
            _TURNS + "test_the_same_idempotency_key_gives_the_same_turn",
        ),
        (_TURNS + "test_control_without_a_key_each_request_that_is_repeated_begins_another_turn",),
    ),
    "C2": Point("the model has answered, and nothing of it is kept"),
    "C3": Point(
        "a process dies inside the transaction that accepts a step",
        (
            _DYING + "test_a_step_whose_process_dies_while_it_is_accepted_is_there_as_a_whole_or_not_at_all",
            "record/test_store_calls.py::test_a_reply_and_its_cards_are_kept_together_or_not_at_all",
        ),
        (_DYING + "test_control_without_a_transaction_halves_of_a_step_are_found",),
    ),
    "C4": Point("something is accepted, and its client does not hear of it"),
    "C5": Point(
        "the disk of the store is full",
        (
            _DYING + "test_a_step_that_meets_a_full_disk_is_there_as_a_whole_or_not_at_all",
            "record/test_sqlite_trouble.py::test_a_full_disk_is_said_to_all_who_wait_and_forgotten_once_there_is_room",
            "cli/test_store_trouble.py::test_ask_says_how_to_go_on_and_the_turn_goes_on",
        ),
        (_DYING + "test_control_without_a_transaction_a_full_disk_leaves_halves_of_a_step",),
    ),
    "C6": Point("the store restarts in a commit, so that its outcome is unknown"),
    "C7": Point("a process dies while a call awaits approval"),
    "C8": Point(
        "a right is taken back after its call was accepted",
        ("cli/test_revoked_grants.py::test_T79_an_approved_call_is_not_run_once_its_right_was_taken_back",),
        ("cli/test_revoked_grants.py::test_T79_control_one_who_goes_by_what_was_granted_before_runs_it",),
    ),
    "C9": Point("a call is to be sent, and its process dies before it is"),
    "C10": Point("a command is published, and its relay dies before it knows"),
    "C11": Point("a command may be published or not"),
    "C12": Point("the broker loses what it confirmed"),
    "C13": Point(
        "the broker is away for long",
        ("fleet/test_tenants.py::test_a_relay_keeps_a_flood_in_the_store_and_sends_it_as_results_come",),
    ),
    "C14": Point(
        "a device is away until a command is too late",
        (
            "edge/test_device.py::test_what_is_stale_expired_unsigned_or_for_another_does_not_run",
            "edge/test_bad_days.py::test_what_waited_when_the_machine_went_off_does_not_run_late",
        ),
        ("edge/test_device.py::test_control_a_device_that_does_not_ask_how_late_it_is_runs_what_has_expired",),
    ),
    "C15": Point(
        "the broker confirms what a rule of its own makes it drop",
        ("bus/test_nats_config.py::test_what_a_user_may_not_do_is_said_to_be_denied",),
    ),
    "C16": Point("a command is received, and its worker dies before the claim"),
    "C17": Point(
        "several workers receive the same command",
        (_CALLS + "test_a_command_that_comes_many_times_takes_effect_once",),
    ),
    "C18": Point(
        "a message cannot be read, or breaks who reads it",
        (
            _BAD + "test_a_command_that_does_not_fit_its_card_runs_nothing_and_the_right_one_does",
            _BAD + "test_a_command_that_breaks_a_rule_is_a_result_that_says_so",
        ),
        (_BAD + "test_control_a_worker_that_only_drops_what_breaks_a_rule_leaves_a_call_of_which_nothing_is_heard",),
    ),
    "C19": Point(
        "a command of an older epoch arrives",
        ("fleet/test_unclaimed.py::test_a_command_of_an_older_epoch_begins_nothing",),
    ),
    "C20": Point(
        "a command names no card, or another one",
        (
            _BAD + "test_a_command_that_does_not_fit_its_card_runs_nothing_and_the_right_one_does",
            _BAD + "test_T62_a_card_of_another_project_is_not_found_over_the_bus",
        ),
        (_BAD + "test_control_without_a_look_at_its_card_a_command_that_does_not_fit_it_runs",),
    ),
    "C21": Point("a worker dies after the claim, before it has begun"),
    "C22": Point(
        "a call is said to have started, and its tool has not begun; the claim says both at once",
        (_CALLS + "test_a_command_that_is_delivered_again_after_its_worker_died_does_no_harm",),
        like="C21",
    ),
    "C23": Point(
        "a worker dies during the run",
        ("fleet/test_commands.py::test_a_worker_that_is_killed_over_an_unsafe_call_leaves_its_outcome_unknown",),
    ),
    "C24": Point(
        "a tool takes more time, memory, processes, disk or output than it may",
        (
            "sandbox/test_run.py::test_a_command_that_runs_out_of_time_is_ended_and_keeps_its_output",
            "sandbox/test_run.py::test_a_result_names_the_limit_that_was_hit",
            "sandbox/test_threats.py::test_T29_no_resource_can_be_exhausted",
            "execute/test_quota.py::test_T29_a_command_takes_its_share_of_the_disk_and_no_more",
            "cli/test_long_output.py::test_T29_a_call_with_endless_output_costs_at_most_32_mib",
        ),
        (
            "sandbox/test_run.py::test_control_a_command_that_has_time_left_goes_on",
            "sandbox/test_threats.py::test_T29_control_with_large_limits_the_same_goes_through",
            "execute/test_quota.py::test_T29_control_without_a_share_a_command_takes_what_it_wants",
            "cli/test_long_output.py::test_T29_control_keeping_all_of_it_would_cost_more",
        ),
    ),
    "C25": Point("a worker is paused past its lease, and goes on"),
    "C26": Point("an effect is done, and its result not kept"),
    "C27": Point(
        "an output is kept, and its result is not",
        (
            "record/test_body_places.py::test_a_process_that_is_killed_half_way_leaves_nothing_that_is_read_as_whole",
            "cli/test_store.py::test_staging_files_unnamed_bodies_and_old_logs_are_swept",
        ),
    ),
    "C28": Point(
        "a worker has no room for an output",
        (
            _DISK + "test_a_worker_without_room_for_an_output_tells_how_the_call_ended_and_that_it_is_lost",
            _DISK + "test_an_agent_without_room_for_an_output_reads_how_the_call_ended_and_goes_on",
        ),
        (_DISK + "test_control_a_worker_that_fails_with_its_disk_no_longer_knows_how_the_call_ended",),
    ),
    "C29": Point("a result is kept, and its worker does not hear of it"),
    "C30": Point("a result is kept, and the broker does not hear of it"),
    "C31": Point(
        "a result comes when its call has ended, or its turn goes on elsewhere",
        (_REPORTS + "test_the_result_of_a_call_whose_turn_was_resumed_meanwhile_is_kept_as_a_late_one",),
    ),
    "C32": Point("a result is kept, and its turn is not woken"),
    "C33": Point("a report comes five times"),
    "C34": Point(
        "a report is forged",
        (_REPORTS + "test_T176_a_forged_report_changes_nothing_is_audited_and_does_not_come_again",),
        (_REPORTS + "test_T176_control_without_its_check_a_forged_report_ends_the_call",),
    ),
    "C35": Point(
        "a report names a card that is not there yet",
        (
            _REPORTS + "test_a_report_that_is_quicker_than_its_card_is_looked_at_again",
            _REPORTS + "test_a_report_whose_card_never_comes_is_refused_in_the_end",
        ),
        (_REPORTS + "test_control_a_receiver_that_does_not_look_again_loses_a_report_that_is_quicker_than_its_card",),
    ),
    "C36": Point("a wakeup is lost"),
    "C37": Point("two processes take up the same turn"),
    "C38": Point("a turn is taken up, and its process dies before the model is asked"),
    "C39": Point("a process dies while the model answers"),
    "C40": Point("a model answers twice"),
    "C41": Point(
        "a turn has ended, and its process dies before it tells",
        (
            "gateway/test_turns.py::test_a_server_that_is_killed_leaves_what_was_told_to_the_next_one",
            "gateway/test_webhook_deliveries.py::test_a_delivery_survives_kill_9_and_arrives_again_under_the_same_id",
        ),
    ),
    "C42": Point(
        "a clock jumps, or is wrong",
        (
            _CLOCKS + "test_all_parts_of_a_fleet_go_by_the_clock_of_the_store",
            "loop/test_clock_jumps.py::test_A7_a_jump_does_not_end_a_turn_that_has_time_left",
        ),
        (_CLOCKS + "test_control_a_call_that_is_dated_by_another_clock_is_given_up",),
    ),
    "C43": Point(
        "processes of several versions work together",
        (
            _BAD + "test_a_command_with_fields_of_a_newer_version_runs",
            "utp/test_messages.py::test_unknown_fields_are_ignored_and_kept",
            "utp/test_messages.py::test_a_version_that_is_not_understood_is_refused_before_anything_else_is_read",
            "loop/test_event_hub.py::test_fields_of_a_newer_version_are_ignored",
        ),
        (_BAD + "test_control_a_worker_that_knows_all_fields_or_none_ends_calls_of_newer_processes",),
    ),
    "C44": Point(
        "a store is restored from an older backup",
        (
            _CALLS + "test_a_store_that_was_restored_shuts_out_what_ran_after_its_backup",
            "record/test_restored_stores.py::test_a_process_of_the_time_after_the_backup_changes_nothing",
            "record/test_restored_stores.py::test_no_call_after_a_restore_has_the_id_of_one_of_the_lost_time",
        ),
        (
            "record/test_restored_stores.py::test_control_without_a_fence_it_writes_into_a_turn_of_another_process",
            "record/test_restored_stores.py::test_control_without_a_fence_two_different_calls_have_one_key",
        ),
    ),
    "C45": Point("everything dies at once"),
    "C46": Point(
        "a process or server dies while the log of its database is copied",
        (
            _DYING + "test_a_process_that_dies_while_the_log_of_the_database_is_copied_loses_nothing",
            "record/test_postgres_store.py::test_what_was_kept_survives_the_death_of_the_server",
        ),
        (_DYING + "test_control_without_its_log_a_database_that_was_copied_half_way_is_not_sound",),
    ),
    "C47": Point(
        "a process dies between audit rows and the checkpoint that signs them",
        (_DYING + "test_the_next_checkpoint_signs_the_rows_whose_process_died_before_it_signed_them",),
        (_DYING + "test_control_a_row_that_is_taken_out_of_such_a_gap_is_noticed",),
    ),
    "C48": Point(
        "two people answer the same question",
        ("record/test_store_approvals.py::test_the_first_decision_counts_and_a_second_one_is_told_so",),
        ("record/test_store_approvals.py::test_control_without_its_rule_a_second_decision_counts",),
    ),
}
