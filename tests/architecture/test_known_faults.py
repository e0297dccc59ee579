"""Faults that users of similar systems reported in public: each row of groups A to G and of the serving engines (S) is
a test of ours, or does not apply for the reason given here. The rows' names are those of the project's list, e.g. A1 is
mininet#877 and S25 is row 25 of serving and simulators.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]

ROWS: dict[str, tuple[str, ...]] = {
    # Lifecycle and cleanup
    "A1 cleanup deletes what it did not make": ("topologies/test_reaper.py::test_strangers_with_names_like_ours_stay",),
    "A2 stop deletes files of the folder": ("topologies/test_reaper.py::test_strangers_with_names_like_ours_stay",),
    "A4 a name is in use": (
        "topologies/test_reaper.py::test_a_foreign_container_with_our_next_name_gives_a_clear_message",
        "topologies/test_reaper.py::test_containers_go_by_label_only",
    ),
    "A5 a link is stranded between create and move": (
        "topologies/test_bench_run.py::test_kill_9_at_any_moment_of_the_start",
    ),
    "A7 a helper blocks the next start": (
        "topologies/test_bench_run.py::test_a_lab_that_was_taken_down_starts_again_with_its_helpers",
        "topologies/test_bench_run.py::test_another_plan_in_the_same_folder_takes_nothing_of_the_last_attempt",
        "topologies/test_capture.py::test_kill_9_of_the_bench_leaves_no_capture_behind",
    ),
    "A8 after a reboot it still says running": (
        "topologies/test_reaper.py::test_what_a_dead_run_left_goes_and_its_folder_says_lost",
        "webui/runs/test_indexing.py::test_after_a_reboot_a_silent_run_is_lost",
    ),
    "A10 two starts": (
        "topologies/test_runnerd.py::test_two_starts_at_once_are_one",
        "webui/runs/test_services.py::test_the_same_key_at_the_same_moment_gives_one_run",
    ),
    "A11 a capture is left behind": ("topologies/test_capture.py::test_kill_9_of_the_bench_leaves_no_capture_behind",),
    "A13 a container ends at once": (
        "topologies/test_bench_run.py::test_an_image_whose_containers_end_at_once_fails_the_run_with_their_code_and_words",
    ),
    "A14 a cancel loses the output": ("topologies/test_bench_run.py::test_cancel_keeps_what_there_is_and_says_why",),
    "A16 trouble at the end hides the result": (
        "topologies/test_bench_run.py::test_trouble_while_tearing_down_does_not_hide_the_result",
    ),
    "A17 an old folder is used again": (
        "testbed/experiment/test_run_folder.py::test_a_folder_is_made_once_and_never_again",
        "topologies/test_bench_run.py::test_another_plan_in_the_same_folder_takes_nothing_of_the_last_attempt",
    ),
    # Names, address pools, the host's firewall
    "B2 cut names collide": ("topologies/test_naming.py::test_nodes_that_begin_alike_get_different_interfaces",),
    "B3 dashes and dots in names": ("topologies/test_naming.py::test_odd_but_sound_names_are_taken",),
    "B5 address pools overlap": (
        "topologies/test_docker_host.py::test_our_containers_need_nothing_of_dockers_address_pools",
    ),
    "B6 pools run out": ("topologies/test_docker_host.py::test_our_containers_need_nothing_of_dockers_address_pools",),
    "B8 a firewall drops IPv4": (
        "scenarios/test_verdicts.py::test_whoever_meddles_is_found_out",
        "scenarios/test_accidents_of_the_host.py::test_the_hosts_firewall_does_not_reach_a_runs_networks",
        "topologies/test_fabric.py::test_the_probe_names_the_way_that_is_broken",
    ),
    "B9 a firewall drops IPv6": (
        "scenarios/test_verdicts.py::test_whoever_meddles_is_found_out",
        "scenarios/test_accidents_of_the_host.py::test_the_hosts_firewall_does_not_reach_a_runs_networks",
        "topologies/test_fabric.py::test_ipv6_is_off_and_bridged_frames_pass_no_firewall",
    ),
    "B11 bridged frames go through the firewall": (
        "topologies/test_fabric.py::test_ipv6_is_off_and_bridged_frames_pass_no_firewall",
    ),
    "B12 noise on quiet links": ("topologies/test_capture.py::test_an_idle_link_is_silent",),
    "B14 big frames are dropped": (
        "topologies/test_fabric.py::test_a_full_size_datagram_crosses_the_compute_fabric_unfragmented",
        "topologies/test_lane_traffic.py::test_full_frames_pass_and_longer_ones_do_not",
    ),
    "B15 ends disagree on the MTU": ("topologies/test_fabric.py::test_a_link_that_is_not_as_planned_is_named",),
    # Shaping, queues, fidelity
    "C2 rates over a gigabit are ignored": (
        "topologies/test_lanes.py::test_more_than_a_gigabit_is_set_and_not_ignored",
        "testbed/experiment/test_planning.py::test_the_packet_budget_is_kept_and_said",
    ),
    "C3 shaping overwrites queues": ("topologies/test_lanes.py::test_setting_one_thing_keeps_the_others",),
    "C6 setting one thing resets others": ("topologies/test_lanes.py::test_setting_one_thing_keeps_the_others",),
    "C8 quantum is big": ("topologies/test_lanes.py::test_the_kernel_does_not_complain_about_a_quantum",),
    "C9 a burst of a second at line rate": (
        "topologies/test_lane_traffic.py::test_a_short_probe_arrives_at_the_set_rate",
        "emulators/test_rnic.py::test_the_uplink_is_never_faster_than_its_rate",
    ),
    "C11 a delay is counted twice": (
        "testbed/network/test_wires.py::test_a_round_trip_is_twice_the_latency_and_each_direction_has_the_rate",
        "topologies/test_lane_traffic.py::test_both_directions_of_a_link_have_its_rate_at_once",
        "testbed/clocks/test_front_network.py::test_a_message_takes_both_ports_and_the_delay",
    ),
    "C12 latency cuts bandwidth": ("testbed/network/test_wires.py::test_latency_does_not_change_the_rate",),
    "C14 a class filter misses traffic": (
        "topologies/test_lane_traffic.py::test_frames_that_no_level_marks_are_shaped_too",
    ),
    "C15 a mark is lost between namespaces": (
        "topologies/test_lane_traffic.py::test_a_priority_set_in_a_node_does_not_choose_the_lane",
    ),
    "C17 a busy host fails the test": (
        "testbed/experiment/test_summary.py::test_an_invalid_fidelity_is_an_error_and_not_a_failure",
        "scenarios/test_verdicts.py::test_no_starved_run_is_faithful",
    ),
    "C18 odd round trips": (
        "topologies/test_calibration.py::test_the_host_is_measured_and_nothing_is_left",
        "testbed/command/test_calibrated.py::test_doctor_shows_the_profile_with_its_spread",
    ),
    "C20 a flap loses the configuration": ("topologies/test_lanes.py::test_a_link_that_went_down_and_up_is_as_before",),
    # RoCE
    "D1 rxe is not supported in a namespace": (
        "topologies/test_rdma.py::test_doctor_tells_what_the_host_offers_and_why_the_rest_is_not_lent",
    ),
    "D3 a device goes under a queue pair": (
        "conformance/wire_contract.py::test_a_silent_peer_ends_in_retry_exceeded",
        "emulators/test_rnic.py::test_a_link_that_is_deleted_ends_verbs_with_an_error",
        "emulators/test_rnic_namespaces.py::test_a_device_that_is_removed_under_traffic_ends_it_at_both_ends",
    ),
    "D4 a message longer than the MTU": ("conformance/wire_contract.py::test_messages_longer_than_a_packet",),
    "D6 many connections": ("emulators/test_rnic_deaths.py::test_many_connections_leave_the_nic_as_it_was",),
    "D7 a wrong address hangs": (
        "testbed/network/test_wires.py::test_ends_that_do_not_meet_are_named_at_once",
        "topologies/test_rdma.py::test_a_wrong_gid_index_is_named_and_does_not_hang",
    ),
    "D9 an old rdma tool": ("topologies/test_rdma.py::test_an_old_rdma_tool_is_a_reason_not_a_crash",),
    "D10 a device has no bus": (
        "topologies/test_hardware.py::test_a_real_port_and_an_uplink_carry_what_emulated_links_carry",
    ),
    # Jobs and workers
    "E2 a lease that nobody uses never ends": (
        "webui/benches/test_leases.py::test_a_lease_that_nobody_uses_ends",
        "webui/benches/test_leases.py::test_a_used_lease_ends_15_minutes_after_its_last_run",
    ),
    "E3 a lease ends during the setup": (
        "webui/benches/test_leases.py::test_a_run_under_way_when_a_lease_begins_or_ends_goes_on",
    ),
    "E5 a part is taken and the whole is free": (
        "webui/benches/test_leases.py::test_eight_who_take_it_at_once_are_one",
        "webui/runs/test_services.py::test_ten_claims_are_one",
        "webui/runs/test_services.py::test_a_lease_that_ran_out_is_taken_over_and_the_old_worker_loses_it",
    ),
    "E6 a kept offline survives a restart": (
        "webui/benches/test_reports.py::test_silence_is_written_down_once_and_a_report_ends_it",
        "webui/benches/test_reports.py::test_a_worker_starts_without_an_opinion_of_its_bench",
    ),
    "E8 a failure is missing in the history": (
        "webui/runs/test_execution.py::test_a_bench_that_cannot_be_asked_is_asked_again",
        "webui/runs/test_indexing.py::test_a_run_that_goes_on_is_followed_to_its_end",
        "scenarios/test_console_killed.py::test_each_part_killed_under_a_run",
    ),
    "E9 a task runs twice": (
        "webui/runs/test_worker.py::test_three_deliveries_are_one_run",
        "webui/runs/test_execution.py::test_a_duplicate_message_starts_nothing",
        "webui/runs/test_execution.py::test_a_run_that_was_begun_here_never_goes_back_to_the_queue",
        "webui/runs/test_worker.py::test_a_message_that_comes_again_while_the_run_goes_on_and_after_it_starts_nothing",
        "webui/runs/test_orphans.py::test_a_run_is_adopted_by_its_own_bench_alone",
    ),
    "E11 two cancels race": ("webui/runs/test_services.py::test_ten_cancels_are_one",),
    "E12 a worker flaps": (
        "webui/benches/test_reports.py::test_one_bad_look_among_good_ones_changes_nothing",
        "webui/benches/test_reports.py::test_a_heartbeat_that_comes_late_again_and_again_does_not_flap",
    ),
    "E14 the executor dies and the page shows nothing": (
        "webui/runs/test_simulation.py::test_a_killed_process_is_seen_within_a_look",
        "scenarios/test_accidents_of_the_console.py::test_kill_9_of_what_a_run_hangs_on",
        "scenarios/test_console_killed.py::test_each_part_killed_under_a_run",
    ),
    "E15 a failed command counts as passed": (
        "topologies/test_bench_run.py::test_a_node_that_dies_ends_the_run_with_its_code_and_words",
        "topologies/test_fabric.py::test_a_failed_command_is_not_hidden",
    ),
    # The console: pages, streams, downloads
    "F2 who joins late misses something": (
        "webui/runs/test_live_load.py::test_every_viewer_has_every_event_once_also_through_a_killed_server",
        "webui/static/test_pack.py::test_a_page_knows_the_same_from_a_pack_as_from_the_log",
    ),
    "F3 who reads the log blocks the run": (
        "webui/runs/test_stream.py::test_a_page_that_does_not_answer_is_sent_eight_frames_and_no_more",
    ),
    "F5 a huge line": (
        "testbed/events/test_log.py::test_a_huge_line_is_cut_with_a_mark",
        "webui/runs/test_logsearch.py::test_f5_a_huge_value_is_cut_with_a_mark",
    ),
    "F6 the run ends with the last tab": (
        "browser/test_console.py::test_closing_every_tab_does_not_end_a_run",
        "scenarios/test_console_killed.py::test_each_part_killed_under_a_run",
    ),
    "F8 a closed view cannot be opened again": (
        "webui/runs/test_stream.py::test_cut_anywhere_and_resumed_nothing_is_missing_or_double",
    ),
    "F9 whoever lost the right keeps the stream": (
        "webui/test_sockets.py::test_rights_withdrawn_close_open_sockets",
    ),
    "F11 scripts in names and lines": (
        "browser/test_run_page.py::test_f11_scripts_of_clients_nodes_and_logs_stay_text",
        "webui/compare/test_views.py::test_the_page_says_what_differs_what_came_of_it_and_escapes_what_people_wrote",
    ),
    "F12 a 500 on odd input": (
        "webui/api/test_schemathesis.py::test_the_api_is_as_it_is_described",
        "webui/test_access.py::test_everybody_gets_what_is_theirs_and_nothing_else",
        "webui/compare/test_views.py::test_odd_addresses_are_no_fault_of_ours",
    ),
    "F14 other bytes than the file has": (
        "webui/api/test_artifacts.py::test_the_served_bytes_have_the_files_hash",
        "scenarios/test_behind_a_proxy.py::test_a_run_is_started_followed_and_downloaded_through_it",
    ),
    "F15 mixed time zones": ("testbed/experiment/test_provenance.py::test_times_are_utc",),
    # Images, captures, the first start
    "G4 a node's image is broken": (
        "topologies/test_docker_host.py::test_an_image_that_cannot_run_a_node_is_refused_before_use",
        "topologies/test_bench_run.py::test_an_image_whose_containers_end_at_once_fails_the_run_with_their_code_and_words",
    ),
    "G5 an image lacks a program": (
        "topologies/test_docker_host.py::test_an_image_that_cannot_run_a_node_is_refused_before_use",
    ),
    "G7 the documented commands fail on a newer system": (
        "architecture/test_installing.py::test_libraries_go_into_an_environment_of_our_own_and_no_bare_python_is_called",
        "architecture/test_documents.py::test_commands_are_taken_as_shown",
    ),
    "G8 a new environment lacks a module": (
        "architecture/test_installing.py::test_no_module_is_imported_that_newer_or_bare_environments_lack",
    ),
    "G10 another builder breaks the image": (
        "topologies/test_docker_host.py::test_the_dockerfile_builds_with_both_builders",
    ),
    "G11 a capture misses the last packets": ("topologies/test_capture.py::test_one_packet_a_hundred_times",),
    # Serving engines, their API and streams
    "S1 the role chunk is taken for the first token": (
        "emulators/test_openai_answers.py::test_role_comes_with_the_first_token_even_if_its_text_is_held",
        "emulators/test_openai_api.py::test_no_byte_before_the_first_token",
    ),
    "S2 a chunked prefill sends something before its last chunk": (
        "testbed/dualpath/test_engines.py::test_a_prefill_in_chunks_gives_its_one_token_after_the_last_known_fault_2",
    ),
    "S4 an answer of one token has no choices": (
        "emulators/test_openai_answers.py::test_shortest_answers_have_a_choice_and_one_finish_reason",
        "emulators/test_openai_client.py::test_one_token_answer",
    ),
    "S5 the finish reason is missing or there twice": (
        "emulators/test_openai_answers.py::test_shortest_answers_have_a_choice_and_one_finish_reason",
        "emulators/test_openai_answers.py::test_text_that_looked_like_a_stop_comes_before_the_finish_reason",
    ),
    "S7 the usage chunk's shape": (
        "emulators/test_openai_answers.py::test_golden_bytes_of_a_chat",
        "emulators/test_openai_answers.py::test_golden_bytes_of_a_text_completion_without_usage",
    ),
    "S8 ready before it is": ("emulators/test_openai_api.py::test_not_ready_is_said_everywhere",),
    "S10 failed requests are in the latencies": (
        "scenarios/test_load_clients.py::test_what_breaks_off_in_mid_stream_is_errored_and_in_no_latency",
        "testbed/metrics/test_latency.py::test_failed_and_unfinished_requests_count_in_no_latency",
    ),
    "S13 usage is not what was emitted": (
        "scenarios/test_load_clients.py::test_figures_of_fixed_rates_and_of_a_sweep_agree_with_the_report",
        "emulators/test_openai_answers.py::test_held_token_is_counted_and_sent_with_the_next",
    ),
    "S14 TPOT of one token": ("testbed/metrics/test_latency.py::test_a_request_of_one_token_has_no_gap_and_no_tpot",),
    # Load generators and their figures
    "S16 rates of tiny windows": (
        "testbed/metrics/test_throughput.py::test_fifty_requests_a_second_have_no_spread_however_close_they_come",
    ),
    "S17 another rate asks other questions": (
        "testbed/workload/test_schedule.py::test_the_same_seed_gives_the_same_prompts_at_all_rates",
    ),
    "S19 two meanings of ITL": ("testbed/metrics/test_latency.py::test_the_two_meanings_of_p99_itl_differ_and_say_so",),
    "S20 counters do not add up": ("emulators/test_openai_api.py::test_metrics_add_up",),
    # Recorded sessions
    "S22 ids are cut to 32 bits": (
        "testbed/workload/test_recorded_sessions.py::test_known_fault_22_ids_that_are_equal_in_their_low_32_bits_are_not_equal",
        "testbed/workload/test_traces.py::test_known_fault_22_the_fixtures_ids_need_more_than_32_bits",
    ),
    "S23 cumulative or delta": (
        "testbed/workload/test_recorded_sessions.py::test_known_fault_23_the_same_lengths_mean_two_things",
        "testbed/workload/test_recorded_sessions.py::test_known_fault_23_whole_prompts_read_as_delta_are_noticed_by_their_ids",
        "testbed/workload/test_traces.py::test_known_fault_23_the_same_file_needs_the_right_word",
    ),
    # Schedulers, KV, prefill and decode apart
    "S25 preempted for ever with little KV": (
        "testbed/dualpath/test_buffers.py::test_what_can_never_fit_is_refused_known_fault_25",
        "testbed/dualpath/test_engine_failures.py::test_a_turn_larger_than_a_memory_fails_at_once_and_others_go_on_known_faults_25_and_32",
        "testbed/dualpath/test_request_scheduler.py::test_a_turn_that_no_engine_can_ever_hold_is_refused_at_once_and_holds_nobody_up",
    ),
    "S26 what is allocated is not freed": (
        "testbed/dualpath/test_buffers.py::test_what_is_not_held_is_not_taken_back_known_fault_26",
        "testbed/dualpath/test_engines.py::test_all_memory_is_free_at_drain_and_nobody_holds_more_than_there_is_known_fault_26",
        "testbed/dualpath/test_scheduler_failures.py::test_every_turn_is_answered_or_failed_once_and_nothing_is_held_at_drain",
        "testbed/baselines/test_pool_system.py::test_known_fault_28_every_hit_is_read_once_from_one_place",
    ),
    "S28 loads below zero": (
        "testbed/baselines/test_dram_pool.py::test_known_fault_28_loads_are_never_negative_and_remote_is_hits_without_local",
        "testbed/baselines/test_pool_system.py::test_known_fault_28_every_hit_is_read_once_from_one_place",
        "testbed/dualpath/test_engines.py::test_chunks_end_anywhere_and_no_computed_page_is_lost_known_fault_29",
    ),
    "S29 chunks and pages overlap": (
        "testbed/dualpath/test_engines.py::test_chunks_end_anywhere_and_no_computed_page_is_lost_known_fault_29",
        "testbed/dualpath/test_read_paths.py::test_chunks_are_fetched_and_sent_block_by_block",
    ),
    "S31 evicted while it is loaded": (
        "testbed/baselines/test_dram_pool.py::test_known_fault_31_what_is_being_read_is_never_evicted",
        "testbed/dualpath/test_engines.py::test_all_memory_is_free_at_drain_and_nobody_holds_more_than_there_is_known_fault_26",
        "testbed/dualpath/test_engine_failures.py::test_turns_that_are_aborted_at_any_moment_leave_nothing",
    ),
    "S32 a buffer smaller than a request": (
        "testbed/dualpath/test_engine_failures.py::test_a_turn_larger_than_a_memory_fails_at_once_and_others_go_on_known_faults_25_and_32",
        "testbed/dualpath/test_engine_failures.py::test_a_buffer_without_a_page_for_a_turn_is_refused_when_the_node_is_made",
        "testbed/dualpath/test_request_scheduler.py::test_a_turn_that_no_engine_can_ever_hold_is_refused_at_once_and_holds_nobody_up",
    ),
    "S34 told before it is there": (
        "testbed/baselines/test_dram_pool.py::test_known_fault_34_what_is_being_written_is_nobodys_hit",
        "testbed/dualpath/test_storage.py::test_before_the_tail_has_it_a_version_is_read_by_nobody",
        "testbed/dualpath/test_engines.py::test_every_full_block_is_persisted_at_once_and_told_in_order",
    ),
    "S35 the rank is lost on the way": (
        "testbed/dualpath/test_request_scheduler.py::test_the_engine_that_was_chosen_is_carried_from_end_to_end",
    ),
    # Simulators
    "S37 the same run is another": (
        "testbed/clocks/test_simulated.py::test_the_same_run_twice_is_the_same_byte_for_byte",
        "testbed/experiment/test_simulation.py::test_another_process_with_another_hash_seed_writes_the_same",
        "testbed/dualpath/test_engines.py::test_the_same_world_twice_is_the_same_to_the_nanosecond",
    ),
    "S38 nobody knows how near it comes": (
        "testbed/command/test_reproduce.py::test_the_isolated_table_comes_as_near_as_the_page_says",
    ),
}
"""Row to the tests that it is."""

DO_NOT_APPLY: dict[str, str] = {
    "C5 loss cannot be set back to zero": "links are lossless and no loss can be set on them; where packets are lost "
    "on purpose, the soft RNIC loses them, and its faults are given once, when it starts",
    "S11 reasoning deltas": "no model here answers with reasoning apart from its text, so there is no such delta",
    "G1 a check waits a fixed time": "nothing grades or checks work of students yet",
    "G2 an old grade is used again": "nothing grades or checks work of students yet",
}
"""Row to the reason why there is nothing to test."""


@pytest.mark.parametrize("row", ROWS)
def test_a_row_is_a_test_that_there_is(row: str) -> None:
    for place in ROWS[row]:
        path, _, name = place.partition("::")
        found = re.findall(r"^\s*(?:async )?def (test_\w+)", (TESTS / path).read_text(encoding="utf-8"), re.MULTILINE)
        assert name in found, place


def test_every_row_of_the_groups_is_there_once() -> None:
    told = sorted(row.partition(" ")[0] for row in (*ROWS, *DO_NOT_APPLY))
    groups = {
        "A": (1, 2, 4, 5, 7, 8, 10, 11, 13, 14, 16, 17),
        "B": (2, 3, 5, 6, 8, 9, 11, 12, 14, 15),
        "C": (2, 3, 5, 6, 8, 9, 11, 12, 14, 15, 17, 18, 20),
        "D": (1, 3, 4, 6, 7, 9, 10),
        "E": (2, 3, 5, 6, 8, 9, 11, 12, 14, 15),
        "F": (2, 3, 5, 6, 8, 9, 11, 12, 14, 15),
        "G": (1, 2, 4, 5, 7, 8, 10, 11),
        "S": (1, 2, 4, 5, 7, 8, 10, 11, 13, 14, 16, 17, 19, 20, 22, 23, 25, 26, 28, 29, 31, 32, 34, 35, 37, 38),
    }
    assert told == sorted(f"{letter}{number}" for letter, numbers in groups.items() for number in numbers)
