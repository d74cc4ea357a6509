"""The tests that ``make test`` leaves out and ``make test-slow`` runs.

A line is the path of a file or folder below ``tests``, or a test of a file (``::name``), or one variant of a test
(``::name[variant]``). Each group says what always runs in its place.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

BROKEN_ON_PURPOSE = """
simulation/test_mutants.py::test_a_deliberate_bug_breaks_the_promise_it_names
"""
"""Whether the simulation would notice a bug. The simulation itself and the tests of the search for bugs always run."""

FURTHER_HISTORIES = """
simulation/test_histories.py::test_every_history_keeps_every_promise
simulation/jobs/test_histories.py::test_every_history_of_long_jobs_keeps_every_promise[500]
simulation/jobs/test_histories.py::test_every_history_of_long_jobs_keeps_every_promise[750]
"""
"""The first 400 histories of items and the first 500 of long jobs always run."""

RANDOM_KILLS = """
chaos/test_smoke.py::test_nothing_is_lost_and_nothing_reordered_when_the_database_crashes
chaos/test_smoke.py::test_partitions_that_retention_drops_take_nothing_along_that_was_not_delivered
integration/django/test_proof.py::test_no_order_is_lost_or_made_up_or_overtaken_when_the_worker_is_killed
integration/kafka/test_chaos_rows.py::test_a_small_row_holds
integration/kafka/test_consumer_faults.py::test_a_consumer_killed_ten_times_at_random_moments_leaves_each_message_once
integration/kafka/test_consumer_rebalance.py::test_a_consumer_whose_partitions_were_taken_away_in_its_sleep_doubles_nothing
integration/kafka/test_consumer_faults.py::test_a_topic_that_does_not_exist_keeps_the_consumer_unready_until_it_does[classic]
integration/log/test_subscribed_workers.py::test_a_killed_worker_leaves_each_subscription_where_it_was
integration/test_standby.py::test_a_worker_goes_on_where_a_standby_without_the_last_commits_was_promoted
integration/test_standby.py::test_jobs_do_again_what_a_promoted_standby_does_not_know
integration/test_pgbouncer.py::test_two_workers_deliver_five_thousand_items_once_and_in_order_in_boxes_of_every_order
cli/test_start.py::test_two_workers_share_the_work_and_deliver_nothing_twice
cli/test_start.py::test_kill_9_loses_nothing_and_reorders_nothing_where_rows_are_deleted_as_they_are_claimed
"""
"""Whole workers under one fault or another. ``make chaos`` and its siblings run longer ones; of each kind a test always runs:
kill -9 of a worker, of a consumer and of a process of many, a crash of PostgreSQL and of MariaDB, a lost Redis, consumers that
come and go. Of a failover to a standby, what each connection does at it, and what is forgotten of ids, always run."""

GUIDES = """
deployment/test_alerts.py::test_every_alert_rings_for_its_cause_and_stops_after_the_remedy
deployment/test_wheel.py::test_a_generated_django_project_passes_its_own_tests
deployment/test_wheel.py::test_a_generated_fastapi_application_passes_its_own_tests
deployment/test_wheel.py::test_an_order_is_delivered_by_what_init_writes
deployment/test_wheel.py::test_the_demo_runs
docs/test_site.py::test_the_search_works_in_pages_opened_from_the_folder
docs/test_testing_page.py::test_every_example_of_the_page_passes
docs/test_tutorial.py
examples/test_django.py::test_the_first_steps_of_the_guide_lead_to_a_delivery
examples/test_fastapi.py::test_an_order_reaches_kafka_and_the_webhook[asyncpg]
examples/test_fastapi.py::test_the_test_of_the_guide_passes_and_sends_nothing
cli/test_new.py
types/test_checkers.py::test_a_misspelt_name_is_told_with_the_right_one_or_as_unknown[mypy]
types/test_checkers.py::test_each_mistake_is_found[mypy]
types/test_checkers.py::test_nothing_else_is_found[mypy]
"""
"""Guides acted out from an empty folder, what the wheel makes there, and what mypy says to users. The quick start, the orders
that go through Kafka, one example of FastAPI, of Django, of long jobs and of subscriptions, the links of the site, the files in
the wheel, and pyright always run."""

FURTHER_SIZES_OF_A_SCREEN = """
web/browser/test_console.py::test_every_page_is_free_of_faults[1440-dark]
web/browser/test_console.py::test_every_page_is_free_of_faults[375-light]
web/browser/test_subscriptions.py::test_what_waits_in_the_log_is_seen_from_the_box_to_the_single_item[1440-dark]
web/browser/test_subscriptions.py::test_what_waits_in_the_log_is_seen_from_the_box_to_the_single_item[375-light]
"""
"""A desk in light and a phone in the dark always run."""

DRILLS = """
web/browser/test_on_call.py::test_an_old_transaction_keeps_dead_rows
web/browser/test_on_call.py::test_no_worker_runs
web/browser/test_on_call.py::test_one_command_starts_a_drill_and_says_when_it_is_fixed
web/browser/test_on_call.py::test_redis_is_lost
"""
"""``boxengine demo --broken`` and its remedy in the console. A receiver that is down and a poison item always run."""

RARE_CONNECTIONS = """
web/browser/test_console.py::test_a_stream_that_is_silent_for_long_goes_on
web/browser/test_console.py::test_a_tab_comes_back_after_a_proxy_that_refused_its_stream
web/browser/test_console.py::test_a_tab_whose_connection_has_broken_without_a_word_connects_again
web/browser/test_long_jobs.py::test_the_page_of_a_job_goes_on_renewing_itself_after_a_proxy_has_refused_to
web/browser/test_long_jobs.py::test_the_page_of_a_job_leads_to_the_login_when_the_session_has_ended_and_says_when_the_job_is_gone
web/browser/test_long_jobs.py::test_what_somebody_reads_on_the_page_of_a_job_stays_where_it_is_while_the_rest_is_renewed
integration/engine/test_unavailable.py::test_those_of_a_log_do_so_too
integration/kafka/test_consumer_faults.py::test_consuming_starts_while_database_and_broker_are_down_and_begins_when_they_are_there
integration/telemetry/test_probes_of_a_worker.py::test_a_consumer_whose_broker_dies_is_not_ready_but_alive_and_ready_again_when_it_is_back
integration/test_servers.py::test_a_killed_kafka_comes_back_with_what_it_acknowledged
integration/transports/test_kafka.py::test_a_broker_that_freezes_leaves_the_batch_pending_and_a_later_one_goes_through[tx]
integration/transports/test_kafka_refusals.py::test_an_unknown_topic_fails_its_own_items_and_says_so[tx]
integration/transports/test_kafka_refusals.py::test_items_of_a_topic_that_does_not_exist_yet_wait_for_it[tx]
"""
"""Proxies, brokers and receivers that answer late or not at all. A page that learns of a lost database and of an ended session,
a receiver that is away from a table, a producer without transactions, a consumer without a broker, and one whose database is
killed always run."""

DJANGO = """
integration/django/test_databases.py::test_a_box_stands_only_in_the_databases_that_the_routers_allow
integration/django/test_databases.py::test_a_refused_option_is_told_by_djangos_checks_unless_the_worker_has_a_url_of_its_own
integration/django/test_databases.py::test_a_worker_reaches_a_server_of_which_only_a_file_tells
integration/django/test_databases.py::test_items_that_go_to_another_database_than_the_workers_are_found_by_djangos_checks
integration/django/test_databases.py::test_migrate_passes_by_a_database_without_boxes_that_no_worker_could_reach
integration/django/test_databases.py::test_two_models_of_one_box_are_refused_in_one_database_and_may_stand_in_two
integration/django/test_databases.py::test_urls_for_the_worker_lead_to_the_main_database_alone
integration/django/test_databases.py::test_what_was_read_from_a_replica_is_announced_and_acted_on_where_it_is_written
integration/django/test_django.py::test_a_process_of_a_worker_that_ends_after_old_temporary_files_were_deleted_is_replaced
integration/django/test_django.py::test_a_proxy_stands_for_the_box_of_the_model_behind_it
integration/django/test_django.py::test_a_table_may_be_in_a_schema_named_with_djangos_quotes
integration/django/test_django.py::test_an_application_with_another_number_of_buckets_than_the_one_in_force_creates_nothing
integration/django/test_django.py::test_another_command_goes_on_after_one_of_boxengines
integration/django/test_django.py::test_djangos_own_options_may_stand_anywhere
integration/django/test_django.py::test_items_have_their_ids_where_the_database_returns_none_from_a_bulk_insert
integration/django/test_django.py::test_migrate_leaves_columns_to_djangos_migrations
integration/django/test_django.py::test_migrate_names_a_table_that_somebody_has_locked
integration/django/test_django.py::test_on_mysql_moments_are_in_utc_whatever_zone_djangos_connection_is_set_to
integration/django/test_django.py::test_without_use_tz_moments_are_in_djangos_zone_and_the_worker_knows_them
integration/django/test_emits.py::test_an_object_without_a_file_has_not_changed_since_it_was_created
integration/django/test_tasks.py::test_a_backend_without_a_model_of_tasks_is_found_by_djangos_checks
integration/django/test_tasks.py::test_no_task_fails_or_runs_once_more_for_what_receivers_of_signals_raise
integration/django/test_tasks.py::test_without_use_tz_a_task_and_those_who_read_its_result_have_moments_in_djangos_zone
"""
"""Projects set up in a special way. Items, signals, the admin, tasks and ``migrate`` in the usual one always run."""

FURTHER_COMMANDS = """
cli/test_demo.py::test_a_signal_to_the_whole_group_stops_the_worker_before_its_servers[15]
cli/test_items.py::test_thousands_of_failed_items_are_delivered_after_a_retry_while_a_worker_runs
cli/test_items.py::test_under_strict_order_by_key_the_followers_of_a_parked_key_go_on_in_order[delete]
cli/test_items.py::test_under_strict_order_by_key_the_followers_of_a_parked_key_go_on_in_order[discard]
cli/test_items.py::test_what_the_encoding_of_the_terminal_lacks_is_shown_as_escapes
cli/test_jobs.py::test_a_job_waits_for_another_one_and_says_so
cli/test_jobs.py::test_a_task_with_a_contract_takes_what_the_contract_says
cli/test_jobs.py::test_ids_go_behind_the_box_or_into_the_option
cli/test_jobs.py::test_ids_that_are_left_alone_are_named_with_the_reason
cli/test_odd_callables.py::test_a_transport_of_which_each_thread_has_its_own
cli/test_processes.py::test_a_process_that_dies_at_every_start_is_started_again_after_growing_pauses
cli/test_processes.py::test_a_process_that_ends_after_old_temporary_files_were_deleted_is_replaced
cli/test_signals.py::test_a_second_signal_ends_all_processes_at_once[the process]
cli/test_signals.py::test_a_signal_to_the_whole_group_stops_as_gracefully_as_one_to_the_parent[2]
cli/test_standard_error.py::test_a_full_pipe_on_standard_error_stops_neither_delivery_nor_sigterm[two processes]
cli/test_start.py::test_a_library_that_hangs_when_python_ends_holds_the_process_up_for_seconds_only
cli/test_start.py::test_a_program_that_a_transport_starts_reads_an_empty_input
integration/telemetry/test_metrics_of_a_consumer.py::test_the_lag_is_what_a_consumer_that_cannot_store_has_before_it
proofs/order/test_on_call.py::test_failed_items_are_sent_again_and_another_reason_is_told[refused]
integration/telemetry/test_readiness_of_consumers.py::test_consumers_are_not_ready_while_no_broker_answers[2-whose1]
"""
"""Commands as processes, in situations that are rare: nothing runs in place of these. ``--help``, each command and each signal
always run."""

AGAIN_ON_MARIADB = """
integration/audit
integration/django
integration/engine
integration/jobs
security
"""
"""Of what is here shown on both databases, PostgreSQL's half always runs. Of the store (``conformance``), of delivery by
workers (``parity``, ``chaos``) and of the commands, MariaDB's half always runs too."""


def slow_ones(ids: Sequence[str]) -> set[str]:
    """Those of ``ids`` that run only if asked for; an id begins with the path below the folder of the project."""
    slow = {each for line in _lines(*_GROUPS) for each in ids if _stands_for(line, each)}
    known = set(ids)
    for line in _lines(AGAIN_ON_MARIADB):
        slow |= {each for each in ids if _stands_for(line, each) and _on_postgresql(each) & known}
    return slow


def outdated_lines(ids: Sequence[str]) -> list[str]:
    """The lines of this file that name none of ``ids``, the ids of all tests."""
    return [line for line in _lines(*_GROUPS) if not any(_stands_for(line, each) for each in ids)]


def _lines(*groups: str) -> list[str]:
    return [f"tests/{line}" for group in groups for line in group.strip().split("\n")]


def _stands_for(line: str, test: str) -> bool:
    """pytest-xdist appends ``@`` and the group to an id."""
    return test.startswith(line) and test[len(line) :][:1] in ("", "/", ":", "[", "@")


def _on_postgresql(test: str) -> set[str]:
    """The ids that ``test`` may have on PostgreSQL; empty if its id names no other database."""
    name, _, variant = test.partition("[")
    parts = re.split(r"([-\]])", variant)
    mysql = [place for place, part in enumerate(parts) if part in ("mariadb", "mysql_url")]
    return {
        f"{name}[{''.join([*parts[:place], postgresql, *parts[place + 1 :]])}"
        for place in mysql
        for postgresql in ("postgresql", "postgres", "postgres_url")
    }


_GROUPS = (
    BROKEN_ON_PURPOSE,
    FURTHER_HISTORIES,
    RANDOM_KILLS,
    GUIDES,
    FURTHER_SIZES_OF_A_SCREEN,
    DRILLS,
    RARE_CONNECTIONS,
    DJANGO,
    FURTHER_COMMANDS,
)
