-- work: looks of an idle worker
SELECT
  (SELECT extract(epoch
                  FROM min(report_jobs.available_at) - clock_timestamp()) AS seconds_until_1
   FROM report_jobs
   WHERE report_jobs.status = 'queued'
     AND report_jobs.waits = 1) AS anon_1,
       EXISTS
  (SELECT *
   FROM report_jobs_after
   WHERE report_jobs_after.waiting = %(waiting_1)s::SMALLINT) AS anon_2,

  (SELECT report_jobs.id
   FROM report_jobs
   WHERE report_jobs.status = 'queued'
     AND report_jobs.waits = 0
   ORDER BY report_jobs.priority,
            report_jobs.id
   LIMIT 1) AS anon_3;
SELECT
  (SELECT extract(epoch
                  FROM min(report_jobs.lease_expires_at) - clock_timestamp()) AS seconds_until_1
   FROM report_jobs
   WHERE report_jobs.status = 'running') AS anon_1,

  (SELECT report_jobs.lock_key
   FROM report_jobs
   WHERE report_jobs.status = 'queued'
     AND report_jobs.waits = 2
   ORDER BY report_jobs.lock_key
   LIMIT 1) AS anon_2;
SELECT
  (SELECT report_jobs.id
   FROM report_jobs
   WHERE report_jobs.finished_at < (now() - %(ago_1)s * interval '1 second')
   ORDER BY report_jobs.finished_at
   LIMIT 1) AS anon_1;

-- work: create
INSERT INTO report_jobs (task, args, idempotency_key, lock_key, partition_key, priority, available_at, waits, max_attempts, lease_ttl, producer, consumer_group, trace_context)
SELECT p0::VARCHAR,
       p1::JSONB,
       p2::VARCHAR,
       p3::VARCHAR,
       p4::VARCHAR,
       p5::INTEGER,
       p6::TIMESTAMP WITH TIME ZONE,
                               p7::SMALLINT,
                               p8::INTEGER,
                               p9::INTEGER,
                               p10::VARCHAR,
                               p11::VARCHAR,
                               p12::JSONB
FROM (
      VALUES (%(task__0)s::VARCHAR,
              %(args__0)s::JSONB,
              %(idempotency_key__0)s::VARCHAR,
              %(lock_key__0)s::VARCHAR,
              %(partition_key__0)s::VARCHAR,
              %(priority__0)s::INTEGER,
              coalesce(%(given_at__0)s::TIMESTAMP WITH TIME ZONE, (clock_timestamp() + %(delay_seconds__0)s * interval '1 second')),
              %(waits__0)s::SMALLINT,
              %(max_attempts__0)s::INTEGER,
              %(lease_ttl__0)s::INTEGER,
              %(producer__0)s::VARCHAR,
              %(consumer_group__0)s::VARCHAR,
              %(trace_context__0)s::JSONB,
              0), (%(task__1)s::VARCHAR,
                   %(args__1)s::JSONB,
                   %(idempotency_key__1)s::VARCHAR,
                   %(lock_key__1)s::VARCHAR,
                   %(partition_key__1)s::VARCHAR,
                   %(priority__1)s::INTEGER,
                   coalesce(%(given_at__1)s::TIMESTAMP WITH TIME ZONE, (clock_timestamp() + %(delay_seconds__1)s * interval '1 second')),
                   %(waits__1)s::SMALLINT,
                   %(max_attempts__1)s::INTEGER,
                   %(lease_ttl__1)s::INTEGER,
                   %(producer__1)s::VARCHAR,
                   %(consumer_group__1)s::VARCHAR,
                   %(trace_context__1)s::JSONB,
                   1), (%(task__2)s::VARCHAR,
                        %(args__2)s::JSONB,
                        %(idempotency_key__2)s::VARCHAR,
                        %(lock_key__2)s::VARCHAR,
                        %(partition_key__2)s::VARCHAR,
                        %(priority__2)s::INTEGER,
                        coalesce(%(given_at__2)s::TIMESTAMP WITH TIME ZONE, (clock_timestamp() + %(delay_seconds__2)s * interval '1 second')),
                        %(waits__2)s::SMALLINT,
                        %(max_attempts__2)s::INTEGER,
                        %(lease_ttl__2)s::INTEGER,
                        %(producer__2)s::VARCHAR,
                        %(consumer_group__2)s::VARCHAR,
                        %(trace_context__2)s::JSONB,
                        2)) AS imp_sen(p0, p1, p2, p3, p4, p5, p6, p7, p8, p9, p10, p11, p12, sen_counter)
ORDER BY sen_counter RETURNING report_jobs.id,
                               report_jobs.id AS id__1;
INSERT INTO report_jobs_events (job_id, kind, payload)
VALUES (%(job_id)s::BIGINT, %(kind)s::VARCHAR, %(payload)s::JSONB);

-- work: create a follower
SELECT report_jobs.id,
       report_jobs.status
FROM report_jobs
WHERE report_jobs.id IN (%(id_1_1)s::BIGINT);
INSERT INTO report_jobs (task, args, idempotency_key, lock_key, partition_key, priority, available_at, waits, max_attempts, lease_ttl, producer, consumer_group, trace_context)
VALUES (%(task)s::VARCHAR, %(args)s::JSONB, %(idempotency_key)s::VARCHAR, %(lock_key)s::VARCHAR, %(partition_key)s::VARCHAR, %(priority)s::INTEGER, coalesce(%(given_at)s::TIMESTAMP WITH TIME ZONE, (clock_timestamp() + %(delay_seconds)s * interval '1 second')), %(waits)s::SMALLINT, %(max_attempts)s::INTEGER, %(lease_ttl)s::INTEGER, %(producer)s::VARCHAR, %(consumer_group)s::VARCHAR, %(trace_context)s::JSONB) RETURNING report_jobs.id;
INSERT INTO report_jobs_after (job_id, after_id, waiting, after_failure)
VALUES (%(job_id)s::BIGINT, %(after_id)s::BIGINT, %(waiting)s::SMALLINT, %(after_failure)s::VARCHAR);
INSERT INTO report_jobs_events (job_id, kind, payload)
VALUES (%(job_id)s::BIGINT, %(kind)s::VARCHAR, %(payload)s::JSONB) RETURNING report_jobs_events.id;

-- work: claim, with a lock_key
WITH ready AS
  (SELECT report_jobs.id AS id,
          report_jobs.lock_key AS lock_key,
          report_jobs.priority AS priority
   FROM report_jobs
   WHERE report_jobs.status = 'queued'
     AND report_jobs.waits = 0
   ORDER BY report_jobs.priority,
            report_jobs.id
   LIMIT %(most)s::INTEGER
   FOR UPDATE SKIP LOCKED),
     claimed AS
  (UPDATE report_jobs
   SET status=%(param_2)s::VARCHAR,
       attempt=(report_jobs.attempt + %(attempt_1)s::INTEGER),
       token=greatest(report_jobs.token + %(token_1)s::BIGINT, CAST(extract(epoch
                                                                            FROM clock_timestamp()) * 1000000 AS bigint)),
       holds=report_jobs.lock_key,
       worker=%(by)s::VARCHAR,
       lease_expires_at=(clock_timestamp() + report_jobs.lease_ttl * interval '1 second'),
       heartbeat_at=clock_timestamp(),
       checkpoints=%(param_3)s::INTEGER,
       started_at=coalesce(report_jobs.started_at, clock_timestamp())
   WHERE report_jobs.id = any(array(
                                      (SELECT ready.id
                                       FROM ready
                                       WHERE ready.lock_key IS NULL))) RETURNING report_jobs.id,
                                                                                 report_jobs.token,
                                                                                 report_jobs.task,
                                                                                 report_jobs.args,
                                                                                 report_jobs.attempt,
                                                                                 report_jobs.max_attempts,
                                                                                 report_jobs.lease_ttl,
                                                                                 report_jobs.priority,
                                                                                 report_jobs.idempotency_key,
                                                                                 report_jobs.lock_key,
                                                                                 report_jobs.partition_key,
                                                                                 report_jobs.checkpoint,
                                                                                 report_jobs.created_at,
                                                                                 report_jobs.trace_context),
     picked AS
  (INSERT INTO report_jobs_events (job_id, kind, payload) SELECT claimed.id AS id,
                                                                 %(param_1)s::VARCHAR AS anon_1,
                                                                 jsonb_build_object(%(jsonb_build_object_2)s::VARCHAR, claimed.attempt, %(jsonb_build_object_3)s::VARCHAR, %(by)s::VARCHAR) AS jsonb_build_object_1
   FROM claimed
   ORDER BY claimed.id)
SELECT claimed.id,
       claimed.token,
       claimed.task,
       claimed.args,
       claimed.attempt,
       claimed.max_attempts,
       claimed.lease_ttl,
       claimed.priority,
       claimed.idempotency_key,
       claimed.lock_key,
       claimed.partition_key,
       claimed.checkpoint,
       claimed.created_at,
       claimed.trace_context,
       CASE
           WHEN (claimed.attempt > %(attempt_2)s::INTEGER) THEN
                  (SELECT report_jobs_events.ts
                   FROM report_jobs_events
                   WHERE report_jobs_events.job_id = claimed.id
                     AND report_jobs_events.kind = 'picked'
                     AND CAST((report_jobs_events.payload ->> %(payload_1)s::TEXT) AS INTEGER) = claimed.attempt - %(attempt_3)s::INTEGER
                   ORDER BY report_jobs_events.id DESC
                   LIMIT %(param_4)s::INTEGER)
       END AS previous_start,
       false AS aged,
                keys.keyed
FROM
  (SELECT
     (SELECT count(*) AS count_1
      FROM ready
      WHERE ready.lock_key IS NOT NULL) AS keyed) AS keys
LEFT OUTER JOIN claimed ON true;
SET LOCAL idle_in_transaction_session_timeout = 10000;
SET LOCAL lock_timeout = 10000;
SELECT report_jobs.id,
       report_jobs.lock_key,
       report_jobs.priority
FROM report_jobs
WHERE report_jobs.status = 'queued'
  AND report_jobs.waits = 0
ORDER BY report_jobs.priority,
         report_jobs.id
LIMIT %(param_1)s::INTEGER
FOR
UPDATE SKIP LOCKED;
SELECT report_jobs.id,
       report_jobs.holds
FROM report_jobs
WHERE report_jobs.holds IN (%(holds_1_1)s::VARCHAR);
UPDATE report_jobs
SET status=%(status)s::VARCHAR,
    attempt=(report_jobs.attempt + %(attempt_1)s::INTEGER),
    token=greatest(report_jobs.token + %(token_1)s::BIGINT, CAST(extract(epoch
                                                                         FROM clock_timestamp()) * 1000000 AS bigint)),
    holds=report_jobs.lock_key,
    worker=%(worker)s::VARCHAR,
    lease_expires_at=(clock_timestamp() + report_jobs.lease_ttl * interval '1 second'),
    heartbeat_at=clock_timestamp(),
    checkpoints=%(checkpoints)s::INTEGER,
    started_at=coalesce(report_jobs.started_at, clock_timestamp())
WHERE report_jobs.id IN (%(id_1_1)s::BIGINT);
UPDATE report_jobs
SET waits=%(waits)s::SMALLINT
WHERE report_jobs.id IN (%(id_1_1)s::BIGINT);
SELECT report_jobs.id,
       report_jobs.lock_key,
       report_jobs.priority
FROM report_jobs
WHERE report_jobs.status = 'queued'
  AND report_jobs.waits = 0
ORDER BY report_jobs.priority,
         report_jobs.id
LIMIT %(param_1)s::INTEGER
FOR
UPDATE SKIP LOCKED;
SELECT report_jobs.id,
       report_jobs.token,
       report_jobs.task,
       report_jobs.args,
       report_jobs.attempt,
       report_jobs.max_attempts,
       report_jobs.lease_ttl,
       report_jobs.priority,
       report_jobs.idempotency_key,
       report_jobs.lock_key,
       report_jobs.partition_key,
       report_jobs.checkpoint,
       report_jobs.created_at,
       report_jobs.trace_context,
       CASE
           WHEN (report_jobs.attempt > %(attempt_1)s::INTEGER) THEN
                  (SELECT report_jobs_events.ts
                   FROM report_jobs_events
                   WHERE report_jobs_events.job_id = report_jobs.id
                     AND report_jobs_events.kind = 'picked'
                     AND CAST((report_jobs_events.payload ->> %(payload_1)s::TEXT) AS INTEGER) = report_jobs.attempt - %(attempt_2)s::INTEGER
                   ORDER BY report_jobs_events.id DESC
                   LIMIT %(param_1)s::INTEGER)
       END AS previous_start
FROM report_jobs
WHERE report_jobs.id IN (%(id_1_1)s::BIGINT);
INSERT INTO report_jobs_events (job_id, kind, payload)
VALUES (%(job_id)s::BIGINT, %(kind)s::VARCHAR, %(payload)s::JSONB) RETURNING report_jobs_events.id;

-- work: claim, with a held lock_key
WITH ready AS
  (SELECT report_jobs.id AS id,
          report_jobs.lock_key AS lock_key,
          report_jobs.priority AS priority
   FROM report_jobs
   WHERE report_jobs.status = 'queued'
     AND report_jobs.waits = 0
   ORDER BY report_jobs.priority,
            report_jobs.id
   LIMIT %(most)s::INTEGER
   FOR UPDATE SKIP LOCKED),
     claimed AS
  (UPDATE report_jobs
   SET status=%(param_2)s::VARCHAR,
       attempt=(report_jobs.attempt + %(attempt_1)s::INTEGER),
       token=greatest(report_jobs.token + %(token_1)s::BIGINT, CAST(extract(epoch
                                                                            FROM clock_timestamp()) * 1000000 AS bigint)),
       holds=report_jobs.lock_key,
       worker=%(by)s::VARCHAR,
       lease_expires_at=(clock_timestamp() + report_jobs.lease_ttl * interval '1 second'),
       heartbeat_at=clock_timestamp(),
       checkpoints=%(param_3)s::INTEGER,
       started_at=coalesce(report_jobs.started_at, clock_timestamp())
   WHERE report_jobs.id = any(array(
                                      (SELECT ready.id
                                       FROM ready
                                       WHERE ready.lock_key IS NULL))) RETURNING report_jobs.id,
                                                                                 report_jobs.token,
                                                                                 report_jobs.task,
                                                                                 report_jobs.args,
                                                                                 report_jobs.attempt,
                                                                                 report_jobs.max_attempts,
                                                                                 report_jobs.lease_ttl,
                                                                                 report_jobs.priority,
                                                                                 report_jobs.idempotency_key,
                                                                                 report_jobs.lock_key,
                                                                                 report_jobs.partition_key,
                                                                                 report_jobs.checkpoint,
                                                                                 report_jobs.created_at,
                                                                                 report_jobs.trace_context),
     picked AS
  (INSERT INTO report_jobs_events (job_id, kind, payload) SELECT claimed.id AS id,
                                                                 %(param_1)s::VARCHAR AS anon_1,
                                                                 jsonb_build_object(%(jsonb_build_object_2)s::VARCHAR, claimed.attempt, %(jsonb_build_object_3)s::VARCHAR, %(by)s::VARCHAR) AS jsonb_build_object_1
   FROM claimed
   ORDER BY claimed.id)
SELECT claimed.id,
       claimed.token,
       claimed.task,
       claimed.args,
       claimed.attempt,
       claimed.max_attempts,
       claimed.lease_ttl,
       claimed.priority,
       claimed.idempotency_key,
       claimed.lock_key,
       claimed.partition_key,
       claimed.checkpoint,
       claimed.created_at,
       claimed.trace_context,
       CASE
           WHEN (claimed.attempt > %(attempt_2)s::INTEGER) THEN
                  (SELECT report_jobs_events.ts
                   FROM report_jobs_events
                   WHERE report_jobs_events.job_id = claimed.id
                     AND report_jobs_events.kind = 'picked'
                     AND CAST((report_jobs_events.payload ->> %(payload_1)s::TEXT) AS INTEGER) = claimed.attempt - %(attempt_3)s::INTEGER
                   ORDER BY report_jobs_events.id DESC
                   LIMIT %(param_4)s::INTEGER)
       END AS previous_start,
       false AS aged,
                keys.keyed
FROM
  (SELECT
     (SELECT count(*) AS count_1
      FROM ready
      WHERE ready.lock_key IS NOT NULL) AS keyed) AS keys
LEFT OUTER JOIN claimed ON true;
SET LOCAL idle_in_transaction_session_timeout = 10000;
SET LOCAL lock_timeout = 10000;
SELECT report_jobs.id,
       report_jobs.lock_key,
       report_jobs.priority
FROM report_jobs
WHERE report_jobs.status = 'queued'
  AND report_jobs.waits = 0
ORDER BY report_jobs.priority,
         report_jobs.id
LIMIT %(param_1)s::INTEGER
FOR
UPDATE SKIP LOCKED;
SELECT report_jobs.id,
       report_jobs.holds
FROM report_jobs
WHERE report_jobs.holds IN (%(holds_1_1)s::VARCHAR);
SELECT report_jobs.holds
FROM report_jobs
WHERE report_jobs.id IN (%(id_1_1)s::BIGINT)
  AND report_jobs.holds IN (%(holds_1_1)s::VARCHAR)
ORDER BY report_jobs.id
FOR KEY SHARE SKIP LOCKED;
UPDATE report_jobs
SET waits=%(waits)s::SMALLINT
WHERE report_jobs.id IN (%(id_1_1)s::BIGINT);
SELECT report_jobs.id,
       report_jobs.lock_key,
       report_jobs.priority
FROM report_jobs
WHERE report_jobs.status = 'queued'
  AND report_jobs.waits = 0
ORDER BY report_jobs.priority,
         report_jobs.id
LIMIT %(param_1)s::INTEGER
FOR
UPDATE SKIP LOCKED;

-- work: claim by age too
WITH aged AS
  (SELECT report_jobs.id AS id,
          report_jobs.lock_key AS lock_key,
          report_jobs.priority AS priority
   FROM report_jobs
   WHERE report_jobs.status = 'queued'
     AND report_jobs.waits = 0
     AND report_jobs.available_at < (now() - %(ago_1)s * interval '1 second')
   ORDER BY report_jobs.available_at
   LIMIT %(oldest)s::INTEGER
   FOR UPDATE SKIP LOCKED),
     ready AS
  (SELECT report_jobs.id AS id,
          report_jobs.lock_key AS lock_key,
          report_jobs.priority AS priority
   FROM report_jobs
   WHERE report_jobs.status = 'queued'
     AND report_jobs.waits = 0
   ORDER BY report_jobs.priority,
            report_jobs.id
   LIMIT %(most)s::INTEGER
   FOR UPDATE SKIP LOCKED),
     claimed AS
  (UPDATE report_jobs
   SET status=%(param_2)s::VARCHAR,
       attempt=(report_jobs.attempt + %(attempt_1)s::INTEGER),
       token=greatest(report_jobs.token + %(token_1)s::BIGINT, CAST(extract(epoch
                                                                            FROM clock_timestamp()) * 1000000 AS bigint)),
       holds=report_jobs.lock_key,
       worker=%(by)s::VARCHAR,
       lease_expires_at=(clock_timestamp() + report_jobs.lease_ttl * interval '1 second'),
       heartbeat_at=clock_timestamp(),
       checkpoints=%(param_3)s::INTEGER,
       started_at=coalesce(report_jobs.started_at, clock_timestamp())
   WHERE report_jobs.id = any(array(
                                      (SELECT "both".id
                                       FROM
                                         (SELECT aged.id AS id, aged.priority AS priority, 0 AS rank
                                          FROM aged
                                          WHERE aged.lock_key IS NULL
                                          UNION ALL SELECT ready.id AS id, ready.priority AS priority, 1 AS rank
                                          FROM ready
                                          WHERE ready.lock_key IS NULL
                                            AND (ready.id NOT IN
                                                   (SELECT aged.id
                                                    FROM aged))) AS "both"
                                       ORDER BY "both".rank, "both".priority, "both".id
                                       LIMIT %(most)s::INTEGER -
                                         (SELECT count(*) AS count_1
                                          FROM aged
                                          WHERE aged.lock_key IS NOT NULL)))) RETURNING report_jobs.id,
                                                                                        report_jobs.token,
                                                                                        report_jobs.task,
                                                                                        report_jobs.args,
                                                                                        report_jobs.attempt,
                                                                                        report_jobs.max_attempts,
                                                                                        report_jobs.lease_ttl,
                                                                                        report_jobs.priority,
                                                                                        report_jobs.idempotency_key,
                                                                                        report_jobs.lock_key,
                                                                                        report_jobs.partition_key,
                                                                                        report_jobs.checkpoint,
                                                                                        report_jobs.created_at,
                                                                                        report_jobs.trace_context),
     picked AS
  (INSERT INTO report_jobs_events (job_id, kind, payload) SELECT claimed.id AS id,
                                                                 %(param_1)s::VARCHAR AS anon_1,
                                                                 jsonb_build_object(%(jsonb_build_object_2)s::VARCHAR, claimed.attempt, %(jsonb_build_object_3)s::VARCHAR, %(by)s::VARCHAR) AS jsonb_build_object_1
   FROM claimed
   ORDER BY claimed.id)
SELECT claimed.id,
       claimed.token,
       claimed.task,
       claimed.args,
       claimed.attempt,
       claimed.max_attempts,
       claimed.lease_ttl,
       claimed.priority,
       claimed.idempotency_key,
       claimed.lock_key,
       claimed.partition_key,
       claimed.checkpoint,
       claimed.created_at,
       claimed.trace_context,
       CASE
           WHEN (claimed.attempt > %(attempt_2)s::INTEGER) THEN
                  (SELECT report_jobs_events.ts
                   FROM report_jobs_events
                   WHERE report_jobs_events.job_id = claimed.id
                     AND report_jobs_events.kind = 'picked'
                     AND CAST((report_jobs_events.payload ->> %(payload_1)s::TEXT) AS INTEGER) = claimed.attempt - %(attempt_3)s::INTEGER
                   ORDER BY report_jobs_events.id DESC
                   LIMIT %(param_4)s::INTEGER)
       END AS previous_start,
       claimed.id = ANY (array(
                                 (SELECT aged.id
                                  FROM aged))) AS aged,
                        keys.keyed
FROM
  (SELECT
     (SELECT count(*) AS count_2
      FROM aged
      WHERE aged.lock_key IS NOT NULL) +
     (SELECT count(*) AS count_3
      FROM ready
      WHERE ready.lock_key IS NOT NULL) AS keyed) AS keys
LEFT OUTER JOIN claimed ON true;

-- work: heartbeat
WITH locked AS
  (SELECT report_jobs.id AS id
   FROM report_jobs
   WHERE report_jobs.status = 'running'
     AND (report_jobs.id,
          report_jobs.token) IN ((%(param_3_1_1)s,
                                  %(param_3_1_2)s), (%(param_3_2_1)s,
                                                     %(param_3_2_2)s))
     FOR NO KEY
     UPDATE SKIP LOCKED)
UPDATE report_jobs
SET lease_expires_at=(clock_timestamp() + report_jobs.lease_ttl * interval '1 second'),
    heartbeat_at=clock_timestamp(),
    progress=CASE report_jobs.id
                 WHEN %(param_1)s::INTEGER THEN %(param_2)s::JSONB
                 ELSE report_jobs.progress
             END
WHERE report_jobs.id = any(array(
                                   (SELECT locked.id
                                    FROM locked))) RETURNING report_jobs.id,
                                                             report_jobs.cancel_requested;

-- work: checkpoint
SET LOCAL idle_in_transaction_session_timeout = 10000;
SET LOCAL lock_timeout = 10000;
UPDATE report_jobs
SET lease_expires_at=(clock_timestamp() + report_jobs.lease_ttl * interval '1 second'),
    heartbeat_at=clock_timestamp(),
    checkpoint=%(checkpoint)s::JSONB,
               checkpoints=%(checkpoints)s::INTEGER
WHERE report_jobs.status = 'running'
  AND (report_jobs.id,
       report_jobs.token) IN ((%(param_1_1_1)s,
                               %(param_1_1_2)s));

-- work: end with the handler's session
SET LOCAL idle_in_transaction_session_timeout = 10000;
SET LOCAL lock_timeout = 10000;
WITH told AS
  (SELECT given.id AS id,
          given.token AS token,
          CAST(given.more AS JSONB) AS
   more
   FROM unnest(
                 (SELECT %(given_id)s::BIGINT[] AS anon_4),
                 (SELECT %(given_token)s::BIGINT[] AS anon_5),
                 (SELECT %(given_more)s::VARCHAR[] AS anon_6)) AS given(id, token,
                                                                        more)),
     held AS
  (SELECT told.id AS id,
          report_jobs.attempt AS attempt,
          coalesce(told.more ->> %(more_1)s::TEXT, %(coalesce_1)s::VARCHAR) AS status,
          CAST(told.more ->> %(more_2)s::TEXT AS INTEGER) AS waits,
          CAST(told.more ->> %(more_3)s::TEXT AS FLOAT) AS pause,
          CAST(told.more ->> %(more_4)s::TEXT AS INTEGER) AS uncounted,
          told.more[%(more_5)s::TEXT] AS result,
          told.more ->> %(more_6)s::TEXT AS error,
          told.more[%(more_7)s::TEXT] AS progress,
          coalesce(told.more ->> %(more_8)s::TEXT, %(coalesce_2)s::VARCHAR) AS kind,
          told.more[%(more_9)s::TEXT] AS payload
   FROM report_jobs
   JOIN told ON report_jobs.id = told.id
   AND report_jobs.token = told.token
   WHERE report_jobs.status = 'running'
   ORDER BY report_jobs.id
   FOR UPDATE OF report_jobs),
     ended AS
  (UPDATE report_jobs
   SET available_at=CASE
                        WHEN (held.status = %(status_1)s::VARCHAR
                              AND report_jobs.cancel_requested IS false) THEN (clock_timestamp() + held.pause * interval '1 second')
                        ELSE report_jobs.available_at
                    END,
                    status=CASE
                               WHEN (held.status = %(status_1)s::VARCHAR
                                     AND report_jobs.cancel_requested) THEN %(param_2)s::VARCHAR
                               ELSE held.status
                           END,
                           waits=CASE
                                     WHEN (held.status = %(status_1)s::VARCHAR
                                           AND report_jobs.cancel_requested IS false) THEN held.waits
                                     ELSE report_jobs.waits
                                 END,
                                 attempt=CASE
                                             WHEN (held.status = %(status_1)s::VARCHAR
                                                   AND report_jobs.cancel_requested IS false) THEN report_jobs.attempt - held.uncounted
                                             ELSE report_jobs.attempt
                                         END,
                                         holds=%(param_3)s::VARCHAR,
                                         lease_expires_at=%(param_4)s::TIMESTAMP WITH TIME ZONE,
                                                                                           progress=coalesce(held.progress, report_jobs.progress),
                                                                                           result=CASE
                                                                                                      WHEN (held.status = %(status_2)s::VARCHAR) THEN held.result
                                                                                                      ELSE report_jobs.result
                                                                                                  END,
                                                                                                  error=CASE
                                                                                                            WHEN (held.status = %(status_1)s::VARCHAR
                                                                                                                  AND report_jobs.cancel_requested
                                                                                                                  OR held.status = %(status_3)s::VARCHAR) THEN report_jobs.error
                                                                                                            ELSE held.error
                                                                                                        END,
                                                                                                        finished_at=CASE
                                                                                                                        WHEN (held.status = %(status_1)s::VARCHAR
                                                                                                                              AND report_jobs.cancel_requested IS false) THEN report_jobs.finished_at
                                                                                                                        ELSE clock_timestamp()
                                                                                                                    END
   FROM held
   WHERE report_jobs.id = held.id RETURNING report_jobs.id,
                                            held.status = %(status_1)s::VARCHAR
   AND report_jobs.cancel_requested AS canceled,
       held.attempt,
       held.kind,
       held.payload),
     events AS
  (INSERT INTO report_jobs_events (job_id, ts, kind, payload) SELECT ended.id AS id,
                                                                     clock_timestamp() AS anon_1,
                                                                     CASE
                                                                         WHEN ended.canceled THEN %(param_1)s::VARCHAR
                                                                         ELSE ended.kind
                                                                     END AS anon_2,
                                                                     CASE
                                                                         WHEN ended.canceled THEN jsonb_build_object(%(jsonb_build_object_1)s::VARCHAR, ended.attempt)
                                                                         ELSE coalesce(ended.payload, jsonb_build_object(%(jsonb_build_object_1)s::VARCHAR, ended.attempt))
                                                                     END AS anon_3
   FROM ended
   ORDER BY ended.id)
SELECT ended.id
FROM ended;

-- work: ends of several
SET LOCAL idle_in_transaction_session_timeout = 10000;
SET LOCAL lock_timeout = 10000;
WITH told AS
  (SELECT given.id AS id,
          given.token AS token,
          CAST(given.more AS JSONB) AS
   more
   FROM unnest(
                 (SELECT %(given_id)s::BIGINT[] AS anon_4),
                 (SELECT %(given_token)s::BIGINT[] AS anon_5),
                 (SELECT %(given_more)s::VARCHAR[] AS anon_6)) AS given(id, token,
                                                                        more)),
     held AS
  (SELECT told.id AS id,
          report_jobs.attempt AS attempt,
          coalesce(told.more ->> %(more_1)s::TEXT, %(coalesce_1)s::VARCHAR) AS status,
          CAST(told.more ->> %(more_2)s::TEXT AS INTEGER) AS waits,
          CAST(told.more ->> %(more_3)s::TEXT AS FLOAT) AS pause,
          CAST(told.more ->> %(more_4)s::TEXT AS INTEGER) AS uncounted,
          told.more[%(more_5)s::TEXT] AS result,
          told.more ->> %(more_6)s::TEXT AS error,
          told.more[%(more_7)s::TEXT] AS progress,
          coalesce(told.more ->> %(more_8)s::TEXT, %(coalesce_2)s::VARCHAR) AS kind,
          told.more[%(more_9)s::TEXT] AS payload
   FROM report_jobs
   JOIN told ON report_jobs.id = told.id
   AND report_jobs.token = told.token
   WHERE report_jobs.status = 'running'
   ORDER BY report_jobs.id
   FOR UPDATE OF report_jobs SKIP LOCKED),
     ended AS
  (UPDATE report_jobs
   SET available_at=CASE
                        WHEN (held.status = %(status_1)s::VARCHAR
                              AND report_jobs.cancel_requested IS false) THEN (clock_timestamp() + held.pause * interval '1 second')
                        ELSE report_jobs.available_at
                    END,
                    status=CASE
                               WHEN (held.status = %(status_1)s::VARCHAR
                                     AND report_jobs.cancel_requested) THEN %(param_2)s::VARCHAR
                               ELSE held.status
                           END,
                           waits=CASE
                                     WHEN (held.status = %(status_1)s::VARCHAR
                                           AND report_jobs.cancel_requested IS false) THEN held.waits
                                     ELSE report_jobs.waits
                                 END,
                                 attempt=CASE
                                             WHEN (held.status = %(status_1)s::VARCHAR
                                                   AND report_jobs.cancel_requested IS false) THEN report_jobs.attempt - held.uncounted
                                             ELSE report_jobs.attempt
                                         END,
                                         holds=%(param_3)s::VARCHAR,
                                         lease_expires_at=%(param_4)s::TIMESTAMP WITH TIME ZONE,
                                                                                           progress=coalesce(held.progress, report_jobs.progress),
                                                                                           result=CASE
                                                                                                      WHEN (held.status = %(status_2)s::VARCHAR) THEN held.result
                                                                                                      ELSE report_jobs.result
                                                                                                  END,
                                                                                                  error=CASE
                                                                                                            WHEN (held.status = %(status_1)s::VARCHAR
                                                                                                                  AND report_jobs.cancel_requested
                                                                                                                  OR held.status = %(status_3)s::VARCHAR) THEN report_jobs.error
                                                                                                            ELSE held.error
                                                                                                        END,
                                                                                                        finished_at=CASE
                                                                                                                        WHEN (held.status = %(status_1)s::VARCHAR
                                                                                                                              AND report_jobs.cancel_requested IS false) THEN report_jobs.finished_at
                                                                                                                        ELSE clock_timestamp()
                                                                                                                    END
   FROM held
   WHERE report_jobs.id = held.id RETURNING report_jobs.id,
                                            held.status = %(status_1)s::VARCHAR
   AND report_jobs.cancel_requested AS canceled,
       held.attempt,
       held.kind,
       held.payload),
     events AS
  (INSERT INTO report_jobs_events (job_id, ts, kind, payload) SELECT ended.id AS id,
                                                                     clock_timestamp() AS anon_1,
                                                                     CASE
                                                                         WHEN ended.canceled THEN %(param_1)s::VARCHAR
                                                                         ELSE ended.kind
                                                                     END AS anon_2,
                                                                     CASE
                                                                         WHEN ended.canceled THEN jsonb_build_object(%(jsonb_build_object_1)s::VARCHAR, ended.attempt)
                                                                         ELSE coalesce(ended.payload, jsonb_build_object(%(jsonb_build_object_1)s::VARCHAR, ended.attempt))
                                                                     END AS anon_3
   FROM ended
   ORDER BY ended.id)
SELECT ended.id
FROM ended;
SELECT report_jobs.id
FROM report_jobs
WHERE report_jobs.status = 'queued'
  AND report_jobs.waits = 2
  AND report_jobs.lock_key = %(lock_key_1)s::VARCHAR
ORDER BY report_jobs.priority,
         report_jobs.id
LIMIT %(param_1)s::INTEGER
FOR
UPDATE SKIP LOCKED;
SELECT report_jobs.id
FROM report_jobs
WHERE report_jobs.status = 'queued'
  AND report_jobs.waits = 2
  AND report_jobs.lock_key = %(lock_key_1)s::VARCHAR
  AND report_jobs.available_at < (now() - %(ago_1)s * interval '1 second')
ORDER BY report_jobs.available_at,
         report_jobs.id
LIMIT %(param_1)s::INTEGER
FOR
UPDATE SKIP LOCKED;
UPDATE report_jobs
SET waits=%(waits)s::SMALLINT
WHERE report_jobs.id IN (%(id_1_1)s::BIGINT);

-- work: jobs whose time has come, and followers
SELECT
  (SELECT extract(epoch
                  FROM min(report_jobs.available_at) - clock_timestamp()) AS seconds_until_1
   FROM report_jobs
   WHERE report_jobs.status = 'queued'
     AND report_jobs.waits = 1) AS anon_1,
       EXISTS
  (SELECT *
   FROM report_jobs_after
   WHERE report_jobs_after.waiting = %(waiting_1)s::SMALLINT) AS anon_2,

  (SELECT report_jobs.id
   FROM report_jobs
   WHERE report_jobs.status = 'queued'
     AND report_jobs.waits = 0
   ORDER BY report_jobs.priority,
            report_jobs.id
   LIMIT 1) AS anon_3;
SET LOCAL idle_in_transaction_session_timeout = 10000;
SET LOCAL lock_timeout = 10000;
SELECT report_jobs_after.job_id,
       report_jobs_after.after_id,
       report_jobs_after.after_failure,
       report_jobs.status
FROM report_jobs_after
LEFT OUTER JOIN report_jobs ON report_jobs.id = report_jobs_after.after_id
WHERE report_jobs_after.waiting = %(waiting_1)s::SMALLINT
  AND report_jobs_after.after_id IN
    (SELECT anon_1.id
     FROM
       (SELECT report_jobs.id AS id
        FROM report_jobs
        WHERE report_jobs.finished_at > (now() - %(ago_1)s::INTEGER * interval '1 second')
        ORDER BY report_jobs.finished_at DESC
        LIMIT %(param_1)s::INTEGER) AS anon_1)
  AND (report_jobs.id IS NULL
       OR report_jobs.status IN ('succeeded',
                                 'failed',
                                 'canceled',
                                 'lost'))
ORDER BY report_jobs_after.job_id
LIMIT %(param_2)s::INTEGER;
SELECT report_jobs_after.job_id
FROM report_jobs_after
WHERE report_jobs_after.waiting = %(waiting_1)s::SMALLINT
  AND report_jobs_after.job_id > %(job_id_1)s::BIGINT
ORDER BY report_jobs_after.job_id
LIMIT %(param_1)s::INTEGER;
SELECT report_jobs_after.job_id,
       report_jobs_after.after_id,
       report_jobs_after.after_failure,
       report_jobs.status
FROM report_jobs_after
LEFT OUTER JOIN report_jobs ON report_jobs.id = report_jobs_after.after_id
WHERE report_jobs_after.waiting = %(waiting_1)s::SMALLINT
  AND report_jobs_after.job_id IN (%(job_id_1_1)s::BIGINT)
  AND (report_jobs.id IS NULL
       OR report_jobs.status IN ('succeeded',
                                 'failed',
                                 'canceled',
                                 'lost'))
ORDER BY report_jobs_after.job_id
LIMIT %(param_1)s::INTEGER;
SELECT report_jobs.id
FROM report_jobs
WHERE report_jobs.id IN (%(id_1_1)s::BIGINT)
  AND report_jobs.status = 'queued'
  AND report_jobs.waits = 3
ORDER BY report_jobs.id
FOR
UPDATE SKIP LOCKED;
UPDATE report_jobs_after
SET waiting=%(waiting)s::SMALLINT
WHERE (report_jobs_after.job_id,
       report_jobs_after.after_id) IN ((%(param_1_1_1)s,
                                        %(param_1_1_2)s), (%(param_1_2_1)s,
                                                           %(param_1_2_2)s));
SELECT report_jobs_after.job_id
FROM report_jobs_after
WHERE report_jobs_after.waiting = %(waiting_1)s::SMALLINT
  AND report_jobs_after.job_id IN (%(job_id_1_1)s::BIGINT);
UPDATE report_jobs
SET available_at=CASE
                     WHEN (report_jobs.available_at > now()) THEN report_jobs.available_at
                     ELSE now()
                 END,
                 waits=CASE
                           WHEN (report_jobs.available_at > now()) THEN %(param_1)s::INTEGER
                           ELSE %(param_2)s::INTEGER
                       END
WHERE report_jobs.id IN (%(id_1_1)s::BIGINT);
INSERT INTO report_jobs_events (job_id, kind, payload)
VALUES (%(job_id)s::BIGINT, %(kind)s::VARCHAR, %(payload)s::JSONB) RETURNING report_jobs_events.id;
SET LOCAL idle_in_transaction_session_timeout = 10000;
SET LOCAL lock_timeout = 10000;
SELECT report_jobs_after.job_id,
       report_jobs_after.after_id,
       report_jobs_after.after_failure,
       report_jobs.status
FROM report_jobs_after
LEFT OUTER JOIN report_jobs ON report_jobs.id = report_jobs_after.after_id
WHERE report_jobs_after.waiting = %(waiting_1)s::SMALLINT
  AND report_jobs_after.after_id IN
    (SELECT anon_1.id
     FROM
       (SELECT report_jobs.id AS id
        FROM report_jobs
        WHERE report_jobs.finished_at > (now() - %(ago_1)s::INTEGER * interval '1 second')
        ORDER BY report_jobs.finished_at DESC
        LIMIT %(param_1)s::INTEGER) AS anon_1)
  AND (report_jobs.id IS NULL
       OR report_jobs.status IN ('succeeded',
                                 'failed',
                                 'canceled',
                                 'lost'))
ORDER BY report_jobs_after.job_id
LIMIT %(param_2)s::INTEGER;
SELECT report_jobs_after.job_id
FROM report_jobs_after
WHERE report_jobs_after.waiting = %(waiting_1)s::SMALLINT
  AND report_jobs_after.job_id > %(job_id_1)s::BIGINT
ORDER BY report_jobs_after.job_id
LIMIT %(param_1)s::INTEGER;

-- work: lag
SELECT extract(epoch
               FROM
                 (SELECT min(report_jobs.available_at) AS min_1
                  FROM report_jobs
                  WHERE report_jobs.status = 'queued'
                    AND report_jobs.waits = 0) - clock_timestamp()) AS seconds_until_1;

-- work: backlog
SELECT
  (SELECT count(*) AS count_1
   FROM
     (SELECT report_jobs.id AS id
      FROM report_jobs
      WHERE report_jobs.status = 'queued'
        AND report_jobs.waits = 0
      ORDER BY report_jobs.priority,
               report_jobs.id
      LIMIT %(param_1)s::INTEGER) AS anon_2) AS anon_1,

  (SELECT count(*) AS count_2
   FROM
     (SELECT report_jobs.id AS id
      FROM report_jobs
      WHERE report_jobs.status = 'queued'
        AND report_jobs.waits = 1
        AND report_jobs.available_at <= now()
      ORDER BY report_jobs.available_at
      LIMIT %(param_2)s::INTEGER) AS anon_4) AS anon_3,

  (SELECT count(*) AS count_3
   FROM
     (SELECT report_jobs.id AS id
      FROM report_jobs
      WHERE report_jobs.status = 'queued'
        AND report_jobs.waits = 1
        AND report_jobs.available_at > now()
      ORDER BY report_jobs.available_at
      LIMIT %(param_3)s::INTEGER) AS anon_6) AS anon_5,

  (SELECT count(*) AS count_4
   FROM
     (SELECT report_jobs.id AS id
      FROM report_jobs
      WHERE report_jobs.status = 'queued'
        AND report_jobs.waits = 2
      LIMIT %(param_4)s::INTEGER) AS anon_8) AS anon_7,

  (SELECT count(*) AS count_5
   FROM
     (SELECT DISTINCT report_jobs_after.job_id AS job_id
      FROM report_jobs_after
      WHERE report_jobs_after.waiting = %(waiting_1)s::SMALLINT
      LIMIT %(param_5)s::INTEGER) AS anon_10) AS anon_9,
       extract(epoch
               FROM
                 (SELECT min(report_jobs.available_at) AS min_1
                  FROM report_jobs
                  WHERE report_jobs.status = 'queued'
                    AND report_jobs.waits = 0) - clock_timestamp()) AS seconds_until_1,
       extract(epoch
               FROM
                 (SELECT min(report_jobs.available_at) AS min_2
                  FROM report_jobs
                  WHERE report_jobs.status = 'queued'
                    AND report_jobs.waits = 1) - clock_timestamp()) AS seconds_until_2;

-- work: give back
SET LOCAL idle_in_transaction_session_timeout = 10000;
SET LOCAL lock_timeout = 10000;
SELECT report_jobs.id,
       report_jobs.lock_key,
       report_jobs.cancel_requested
FROM report_jobs
WHERE report_jobs.status = 'running'
  AND (report_jobs.id,
       report_jobs.token) IN ((%(param_1_1_1)s,
                               %(param_1_1_2)s))
ORDER BY report_jobs.id
FOR
UPDATE;
UPDATE report_jobs
SET status=%(status)s::VARCHAR,
    attempt=(report_jobs.attempt - %(attempt_1)s::INTEGER),
    holds=%(holds)s::VARCHAR,
    lease_expires_at=%(lease_expires_at)s::TIMESTAMP WITH TIME ZONE
WHERE report_jobs.id IN (%(id_1_1)s::BIGINT);
SELECT report_jobs.id
FROM report_jobs
WHERE report_jobs.status = 'queued'
  AND report_jobs.waits = 2
  AND report_jobs.lock_key = %(lock_key_1)s::VARCHAR
ORDER BY report_jobs.priority,
         report_jobs.id
LIMIT %(param_1)s::INTEGER
FOR
UPDATE SKIP LOCKED;
SELECT report_jobs.id
FROM report_jobs
WHERE report_jobs.status = 'queued'
  AND report_jobs.waits = 2
  AND report_jobs.lock_key = %(lock_key_1)s::VARCHAR
  AND report_jobs.available_at < (now() - %(ago_1)s * interval '1 second')
ORDER BY report_jobs.available_at,
         report_jobs.id
LIMIT %(param_1)s::INTEGER
FOR
UPDATE SKIP LOCKED;
UPDATE report_jobs
SET waits=%(waits)s::SMALLINT
WHERE report_jobs.id IN (%(id_1_1)s::BIGINT);
INSERT INTO report_jobs_events (job_id, kind, payload)
VALUES (%(job_id)s::BIGINT, %(kind)s::VARCHAR, %(payload)s::JSONB) RETURNING report_jobs_events.id;

-- work: reap
SELECT
  (SELECT extract(epoch
                  FROM min(report_jobs.lease_expires_at) - clock_timestamp()) AS seconds_until_1
   FROM report_jobs
   WHERE report_jobs.status = 'running') AS anon_1,

  (SELECT report_jobs.lock_key
   FROM report_jobs
   WHERE report_jobs.status = 'queued'
     AND report_jobs.waits = 2
   ORDER BY report_jobs.lock_key
   LIMIT 1) AS anon_2;
SET LOCAL idle_in_transaction_session_timeout = 10000;
SET LOCAL lock_timeout = 10000;
SELECT report_jobs.id,
       report_jobs.attempt,
       report_jobs.max_attempts,
       report_jobs.lock_key,
       report_jobs.cancel_requested,
       report_jobs.worker
FROM report_jobs
WHERE report_jobs.status = 'running'
  AND report_jobs.lease_expires_at < clock_timestamp()
ORDER BY report_jobs.id
LIMIT %(param_1)s::INTEGER
FOR
UPDATE SKIP LOCKED;
UPDATE report_jobs
SET available_at=clock_timestamp(),
    status=%(status)s::VARCHAR,
    waits=%(waits)s::SMALLINT,
    holds=%(holds)s::VARCHAR,
    lease_expires_at=%(lease_expires_at)s::TIMESTAMP WITH TIME ZONE,
                                                               error=%(error)s::VARCHAR
WHERE report_jobs.id IN (%(id_1_1)s::BIGINT);
INSERT INTO report_jobs_events (job_id, kind, payload)
VALUES (%(job_id)s::BIGINT, %(kind)s::VARCHAR, %(payload)s::JSONB) RETURNING report_jobs_events.id;
SELECT extract(epoch
               FROM min(report_jobs.lease_expires_at) - clock_timestamp()) AS seconds_until_1
FROM report_jobs
WHERE report_jobs.status = 'running';
SET LOCAL idle_in_transaction_session_timeout = 10000;
SET LOCAL lock_timeout = 10000;
SELECT report_jobs.id
FROM report_jobs
WHERE report_jobs.status = 'queued'
  AND report_jobs.waits = 0
LIMIT %(param_1)s::INTEGER;

-- work: cancel
SET LOCAL idle_in_transaction_session_timeout = 10000;
SET LOCAL lock_timeout = 10000;
SELECT report_jobs.id,
       report_jobs.lock_key,
       report_jobs.waits
FROM report_jobs
WHERE report_jobs.status = 'queued'
  AND report_jobs.id > %(id_1)s::BIGINT
  AND report_jobs.id IN (%(id_2_1)s::BIGINT)
ORDER BY report_jobs.id
LIMIT %(param_1)s::INTEGER
FOR
UPDATE;
UPDATE report_jobs
SET status=%(status)s::VARCHAR,
    cancel_requested=%(cancel_requested)s,
    finished_at=clock_timestamp()
WHERE report_jobs.id IN (%(id_1_1)s::BIGINT);
SELECT report_jobs.id
FROM report_jobs
WHERE report_jobs.status = 'queued'
  AND report_jobs.waits = 2
  AND report_jobs.lock_key = %(lock_key_1)s::VARCHAR
ORDER BY report_jobs.priority,
         report_jobs.id
LIMIT %(param_1)s::INTEGER
FOR
UPDATE SKIP LOCKED;
SELECT report_jobs.id
FROM report_jobs
WHERE report_jobs.status = 'queued'
  AND report_jobs.waits = 2
  AND report_jobs.lock_key = %(lock_key_1)s::VARCHAR
  AND report_jobs.available_at < (now() - %(ago_1)s * interval '1 second')
ORDER BY report_jobs.available_at,
         report_jobs.id
LIMIT %(param_1)s::INTEGER
FOR
UPDATE SKIP LOCKED;
UPDATE report_jobs
SET waits=%(waits)s::SMALLINT
WHERE report_jobs.id IN (%(id_1_1)s::BIGINT);
INSERT INTO report_jobs_events (job_id, kind, payload)
VALUES (%(job_id)s::BIGINT, %(kind)s::VARCHAR, %(payload)s::JSONB) RETURNING report_jobs_events.id;
SET LOCAL idle_in_transaction_session_timeout = 10000;
SET LOCAL lock_timeout = 10000;
SELECT report_jobs.id
FROM report_jobs
WHERE report_jobs.status = 'running'
  AND report_jobs.cancel_requested IS false
  AND report_jobs.id IN (%(id_1_1)s::BIGINT)
ORDER BY report_jobs.id
FOR
UPDATE;

-- work: retry
SET LOCAL idle_in_transaction_session_timeout = 10000;
SET LOCAL lock_timeout = 10000;
SELECT report_jobs.id,
       report_jobs.lock_key,
       report_jobs.waits
FROM report_jobs
WHERE report_jobs.status IN ('succeeded',
                             'failed',
                             'canceled',
                             'lost')
  AND report_jobs.id > %(id_1)s::BIGINT
  AND report_jobs.status = 'canceled'
ORDER BY report_jobs.id
LIMIT %(param_1)s::INTEGER
FOR
UPDATE;
UPDATE report_jobs
SET available_at=clock_timestamp(),
    status=%(status)s::VARCHAR,
    waits=%(waits)s::SMALLINT,
    attempt=%(attempt)s::INTEGER,
    cancel_requested=%(cancel_requested)s,
    finished_at=%(finished_at)s::TIMESTAMP WITH TIME ZONE
WHERE report_jobs.id IN (%(id_1_1)s::BIGINT);
SELECT report_jobs_after.job_id,
       report_jobs_after.after_id
FROM report_jobs_after
JOIN report_jobs ON report_jobs.id = report_jobs_after.after_id
WHERE report_jobs_after.job_id IN (%(job_id_1_1)s::BIGINT)
  AND report_jobs.status IN ('queued',
                             'running');
INSERT INTO report_jobs_events (job_id, kind, payload)
VALUES (%(job_id)s::BIGINT, %(kind)s::VARCHAR, %(payload)s::JSONB) RETURNING report_jobs_events.id;

-- work: statistics
SET LOCAL idle_in_transaction_session_timeout = 10000;
SET LOCAL lock_timeout = 10000;
SELECT count(*) AS count_1
FROM
  (SELECT DISTINCT report_jobs_after.job_id AS job_id
   FROM report_jobs_after
   WHERE report_jobs_after.waiting = %(waiting_1)s::SMALLINT) AS anon_1;
SELECT count(*) AS count_1
FROM report_jobs
WHERE report_jobs.status = 'queued'
  AND report_jobs.waits = 0;
SELECT count(*) AS count_1
FROM report_jobs
WHERE report_jobs.status = 'queued'
  AND report_jobs.waits = 1
  AND report_jobs.available_at <= now();
SELECT count(*) AS count_1
FROM report_jobs
WHERE report_jobs.status = 'queued'
  AND report_jobs.waits = 1
  AND report_jobs.available_at > now();
SELECT count(*) AS count_1
FROM report_jobs
WHERE report_jobs.status = 'running';
SELECT count(*) AS count_1
FROM report_jobs
WHERE report_jobs.status = 'queued'
  AND report_jobs.waits = 2;
SELECT anon_1.status,
       count(*) AS count_1
FROM
  (SELECT report_jobs.status AS status
   FROM report_jobs
   WHERE report_jobs.finished_at IS NOT NULL
   ORDER BY report_jobs.finished_at DESC
   LIMIT %(param_1)s::INTEGER) AS anon_1
GROUP BY anon_1.status;

-- work: deletion of old jobs
SELECT
  (SELECT report_jobs.id
   FROM report_jobs
   WHERE report_jobs.finished_at < (now() - %(ago_1)s * interval '1 second')
   ORDER BY report_jobs.finished_at
   LIMIT 1) AS anon_1;
SET LOCAL idle_in_transaction_session_timeout = 10000;
SET LOCAL lock_timeout = 10000;
SELECT report_jobs.id
FROM report_jobs
WHERE report_jobs.finished_at < (now() - %(ago_1)s * interval '1 second')
ORDER BY report_jobs.finished_at
LIMIT %(param_1)s::INTEGER
FOR
UPDATE SKIP LOCKED;
SELECT report_jobs_after.job_id,
       report_jobs_after.after_id,
       report_jobs_after.after_failure,
       report_jobs.status
FROM report_jobs_after
LEFT OUTER JOIN report_jobs ON report_jobs.id = report_jobs_after.after_id
WHERE report_jobs_after.waiting = %(waiting_1)s::SMALLINT
  AND report_jobs_after.after_id IN (%(after_id_1_1)s::BIGINT)
  AND (report_jobs.id IS NULL
       OR report_jobs.status IN ('succeeded',
                                 'failed',
                                 'canceled',
                                 'lost'))
ORDER BY report_jobs_after.job_id
LIMIT %(param_1)s::INTEGER;
SELECT report_jobs_after.after_id
FROM report_jobs_after
WHERE report_jobs_after.waiting = %(waiting_1)s::SMALLINT
  AND report_jobs_after.after_id IN (%(after_id_1_1)s::BIGINT);
DELETE
FROM report_jobs_after
WHERE report_jobs_after.job_id IN (%(job_id_1_1)s::BIGINT);
DELETE
FROM report_jobs_events
WHERE report_jobs_events.job_id IN (%(job_id_1_1)s::BIGINT);
DELETE
FROM report_jobs
WHERE report_jobs.id IN (%(id_1_1)s::BIGINT);

-- make: tables
CREATE TABLE report_jobs (
    id BIGSERIAL NOT NULL,
    task VARCHAR(255) NOT NULL,
    args JSONB,
    idempotency_key VARCHAR(255),
    lock_key VARCHAR(255),
    partition_key VARCHAR(255) DEFAULT '' NOT NULL,
    priority INTEGER DEFAULT 100 NOT NULL,
    available_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    status VARCHAR(16) DEFAULT 'queued' NOT NULL,
    waits SMALLINT DEFAULT 0 NOT NULL,
    attempt INTEGER DEFAULT 0 NOT NULL,
    max_attempts INTEGER DEFAULT 5 NOT NULL,
    lease_ttl INTEGER DEFAULT 60 NOT NULL,
    token BIGINT DEFAULT 0 NOT NULL,
    holds VARCHAR(255),
    worker VARCHAR(255),
    lease_expires_at TIMESTAMP WITH TIME ZONE,
    heartbeat_at TIMESTAMP WITH TIME ZONE,
    cancel_requested BOOLEAN DEFAULT false NOT NULL,
    progress JSONB,
    checkpoint JSONB,
    checkpoints INTEGER DEFAULT 0 NOT NULL,
    result JSONB,
    error TEXT,
    producer VARCHAR(255),
    consumer_group VARCHAR(255),
    trace_context JSONB,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    started_at TIMESTAMP WITH TIME ZONE,
    finished_at TIMESTAMP WITH TIME ZONE,
    PRIMARY KEY (id)
);
CREATE INDEX ix_report_jobs_blocked ON report_jobs (lock_key, status, waits, priority, id) WHERE status = 'queued' AND waits = 2;
CREATE INDEX ix_report_jobs_due ON report_jobs (status, waits, available_at) WHERE status = 'queued' AND waits <= 1;
CREATE INDEX ix_report_jobs_finished ON report_jobs (finished_at, id) WHERE finished_at IS NOT NULL;
CREATE INDEX ix_report_jobs_patient ON report_jobs (lock_key, status, waits, available_at) WHERE status = 'queued' AND waits = 2;
CREATE INDEX ix_report_jobs_ready ON report_jobs (status, waits, priority, id) WHERE status = 'queued' AND waits = 0;
CREATE INDEX ix_report_jobs_running ON report_jobs (status, id) WHERE status IN ('running', 'failed', 'canceled', 'lost');
CREATE UNIQUE INDEX ux_report_jobs_holds ON report_jobs (holds);
CREATE UNIQUE INDEX ux_report_jobs_idempotency ON report_jobs (idempotency_key);
ALTER TABLE report_jobs SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, fillfactor = 80);
CREATE TABLE report_jobs_events (
    id BIGSERIAL NOT NULL,
    job_id BIGINT NOT NULL,
    ts TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    kind VARCHAR(16) NOT NULL,
    payload JSONB,
    PRIMARY KEY (id)
);
CREATE INDEX ix_report_jobs_events_job ON report_jobs_events (job_id, id);
ALTER TABLE report_jobs_events SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, fillfactor = 80);
CREATE TABLE report_jobs_schedules (
    name VARCHAR(255) NOT NULL,
    rule VARCHAR(255) NOT NULL,
    handled_until TIMESTAMP WITH TIME ZONE NOT NULL,
    PRIMARY KEY (name)
);
ALTER TABLE report_jobs_schedules SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, fillfactor = 80);
CREATE TABLE report_jobs_after (
    job_id BIGINT NOT NULL,
    after_id BIGINT NOT NULL,
    waiting SMALLINT NOT NULL,
    after_failure VARCHAR(16) NOT NULL,
    PRIMARY KEY (job_id, after_id)
);
CREATE INDEX ix_report_jobs_after_after ON report_jobs_after (after_id, waiting);
CREATE INDEX ix_report_jobs_after_waiting ON report_jobs_after (waiting, job_id);
ALTER TABLE report_jobs_after SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, fillfactor = 80);
