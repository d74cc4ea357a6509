"""How boxengine behaves beside sbmt-outbox: one test for each fact that describes it, over every database.

**1. Words**
- box: test_word_box
- item: test_word_item
- bucket: test_word_bucket
- partition: test_word_partition
- job: test_word_job
- lease: test_word_lease

**2. Items**
- columns: test_columns, test_optional_column, test_proto_payload
- ours, optional: test_available_at, test_dedup_key, test_a_column_added_by_hand_serves_as_far_as_its_index_allows,
  test_an_item_that_needs_a_missing_column_is_refused_with_the_command_that_adds_it
- statuses: test_statuses
- number strategy: test_number_strategy
- hash strategy: test_hash_strategy
- box names: test_box_names
- error_log: test_error_log, test_error_log_of_a_transport_that_does_not_raise
- indexes: test_indexes

**3. Coordination in Redis**
- job queue: test_job_queue, test_jobs_of_the_reference_are_worked_on
- partition lease: test_partition_lease, test_partition_lease_is_freed_by_its_holder_only,
  test_partition_lease_of_another_worker_keeps_this_one_from_polling
- bucket lease: test_bucket_lease
- item meta: test_item_meta
- box pause: test_box_pause, test_box_pause_is_seen_within_ten_seconds,
  test_box_pause_ends_the_polling_of_a_running_worker
- a popped job whose bucket is leased elsewhere may be dropped:
  test_a_job_whose_bucket_is_leased_elsewhere_is_dropped_and_its_rows_polled_again
- ours, at most one job per bucket is queued or in work: test_at_most_one_job_per_bucket_is_queued_or_in_work
- FLUSHALL at any moment costs time: test_flushall_costs_time_but_neither_an_item_nor_the_order

**4. Polling**
- defaults: test_poll_defaults
- by id, at most ``regular`` rows: test_a_poll_takes_the_lowest_ids, test_a_poll_takes_at_most_the_regular_batch_size
- of those with errors at most ``retryable``: test_of_rows_with_errors_a_poll_takes_at_most_the_retryable_batch_size
- one more query takes regular rows only: test_a_full_retryable_part_does_not_hide_regular_rows
- tactic default: test_tactic_default
- tactic low-priority: test_tactic_low_priority_waits_while_the_queue_is_short,
  test_tactic_low_priority_skips_while_the_oldest_job_is_young, test_tactic_low_priority_has_the_rate_limit_too
- tactic aggressive: test_tactic_aggressive
- tactic noop: test_tactic_noop
- paused box: test_a_paused_box_is_skipped_by_every_tactic_but_noop, test_polling_auto_disabled
- queue longer than max: test_a_queue_longer_than_the_maximum_is_left_alone_by_every_tactic_but_noop
- ours, a backlog is drained at full speed: test_a_backlog_is_drained_at_full_speed_whatever_the_rate_limit
- ours, a commit wakes the poller: test_a_commit_wakes_the_poller
- ours, so does a moment that an item waits for: test_an_item_whose_time_comes_is_polled_soon
- ours, an idle box costs next to nothing: test_an_idle_box_is_polled_not_at_all_and_only_checked
- poll middlewares: test_poll_middlewares_stand_around_each_poll

**5. Processing**
- defaults: test_process_defaults
- lease: test_a_lease_is_renewed_while_a_slow_job_goes_on_and_nobody_else_gets_the_bucket
- gone, or not pending: test_an_item_that_is_gone_is_an_error_and_one_that_is_not_pending_is_skipped_quietly
- Redis meta with more errors than the row: test_what_redis_remembers_of_a_failure_counts_when_the_row_knows_less,
  test_what_redis_remembers_of_a_failure_with_retries_left_is_counted_on
- tried before, retry strategies in order: test_retry_strategies_are_asked_in_order_about_items_tried_before
- payload builder: test_the_payload_builder_of_the_model_makes_what_goes_out
- transports of the event name, or of all:
  test_an_item_goes_to_the_transports_of_its_event_name_and_to_those_of_all
- item middlewares: test_item_middlewares_stand_around_all_transports_of_an_item,
  test_create_and_batch_middlewares_stand_around_their_steps
- no transport: test_without_a_transport_an_item_fails
- several transports: test_with_several_transports_all_must_succeed_and_each_is_called_again_on_retry
- end, delivered: test_end_delivered
- end, failed attempt with retries left: test_end_failed_attempt_with_retries_left
- end, failed attempt beyond max_retries: test_end_failed_attempt_beyond_max_retries,
  test_max_retries_0_fails_at_the_first_failure
- end, strategy says skip: test_end_strategy_says_skip
- end, strategy says discard: test_end_strategy_says_discard
- cutoff: test_past_the_cutoff_a_job_stops_between_items_and_the_rest_stays_pending_for_the_next

**6. Retry strategies**
- default: test_the_default_strategy_discards_nothing
- names and dotted paths: test_strategies_by_name, test_a_strategy_by_its_dotted_path, test_no_delay
- backoff: test_exponential_backoff
- ours, jitter: test_jitter_shortens_a_pause_by_a_part_that_follows_from_the_id
- ours, rows not yet due are not polled: test_rows_not_yet_due_are_not_polled
- latest_available: test_latest_available_discards_when_a_later_one_is_delivered,
  test_latest_available_keeps_trying_while_the_later_one_is_undelivered,
  test_latest_available_is_by_event_name_too, test_keys_that_differ_in_case_only_are_different_keys

**7. Order**
- same key, same bucket, by id: test_the_same_key_goes_to_the_same_bucket_and_by_id
- without strict_order: test_without_strict_order_followers_go_on
- strict_order true: test_strict_order_true_holds_the_bucket_and_never_fails_the_item,
  test_strict_order_admits_no_retry_strategies
- ours, strict_order key: test_strict_order_key_holds_the_key_only_and_parks_it_until_somebody_decides,
  test_strict_order_retries_back_off
- the database has the last word: test_a_lease_that_is_gone_breaks_no_order
- writers of one key must be serialised: test_the_docs_say_that_writers_of_one_key_must_be_serialised

**8. Retention**
- every 10 minutes: test_retention_runs_every_ten_minutes
- one worker at a time: test_one_worker_at_a_time_cleans_up
- periods: test_finished_rows_are_deleted_by_age_and_pending_ones_never, test_retention_zero_deletes_on_delivery
- windows and batches: test_retention_goes_in_windows_and_batches_from_the_oldest_on
- sleep between: test_retention_sleeps_between_two_batches
- a retention under its minimum: test_a_retention_under_its_minimum_is_refused,
  test_a_retention_of_delivered_rows_under_its_minimum_is_refused

**9. Promises**
- no loss: test_promise_no_loss
- order: test_promise_order
- at least once: test_promise_at_least_once
- acknowledged: test_promise_acknowledged, test_promise_acknowledged_by_kafka
- isolation: test_promise_isolation_of_a_poison_item, test_promise_isolation_of_a_key,
  test_promise_isolation_of_a_box_whose_transport_hangs, test_promise_isolation_of_a_box_whose_table_is_missing,
  test_promise_isolation_of_a_transport_that_raises_for_everything, test_promise_isolation_of_a_dead_broker
"""
