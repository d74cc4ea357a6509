"""Every key of the configuration above the boxes, with its type and default (CONTRACT 2; SEMANTICS 4 and 5)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PrivateAttr, WithJsonSchema

from boxengine.settings.boxes import BoxSettings, InboxSettings, KafkaSettings, Section, TransportSettings
from boxengine.settings.jobs import JobBoxSettings, JobsSettings
from boxengine.settings.origin import Origin
from boxengine.settings.values.numbers import Count, CountOrZero, Flag, Port
from boxengine.settings.values.places import DatabaseUrl, HostNames, HostsAndPorts, RedisUrl, database_of
from boxengine.settings.values.texts import DottedPaths, Hidden, Text, Token, lowered
from boxengine.settings.values.times import Seconds, SecondsOrZero

ENVIRONMENTS = ("default", "development", "test", "staging", "production")
"""Top-level keys that make a file one of environment sections."""

Tactic = Literal["default", "low-priority", "aggressive", "noop"]
Wakeup = Literal["notify", "redis", "none"]
LogFormat = Literal["auto", "json", "text"]
ConsoleAuthentication = Literal["token", "basic", "none"]
LogLevel = Literal["debug", "info", "warning", "error"]


class DatabaseSettings(Section):
    """Where the tables are."""

    url: DatabaseUrl | None = None
    replica_url: DatabaseUrl | None = None
    """Serves polling only."""
    listen_url: DatabaseUrl | None = None
    """Where to LISTEN, if ``url`` leads through PgBouncer: the PostgreSQL server itself."""
    password_file: Text | None = None
    """A file that holds the password, read anew for each connection: for each of these URLs that has no password of its own."""
    password_from: Text | None = None
    """Dotted path of a function without arguments that returns the password, or a pair of user and password. Likewise."""
    prepared_statements: Flag | None = None
    """Whether PostgreSQL keeps prepared statements; left out: unless ``url`` leads through a connection pooler."""
    comments: Flag = False
    """Whether the statements of a delivery end in a comment with box, items and trace, in sqlcommenter's form."""


class RedisSettings(Section):
    """One server by its URL, or Sentinels and the name of their master."""

    url: RedisUrl = "redis://127.0.0.1:6379/0"
    prefix: Text | None = None
    """What every key and channel begins with; left out: nothing, as sbmt-outbox has it."""
    cluster: Annotated[Flag, WithJsonSchema({"const": False})] = False
    """Redis Cluster is refused: what changes together lies in different slots there. Use one server, or Sentinel."""
    sentinels: HostsAndPorts = ()
    """``[host:port, ...]``; then ``master_name`` is needed, and ``url`` has no meaning."""
    master_name: Text | None = None
    db: CountOrZero = 0
    """The master's database, under Sentinel."""
    username: Text | None = None
    """The master's, under Sentinel; else it stands in the URL. So with ``password``."""
    password: Text | None = None
    password_file: Text | None = None
    """A file that holds the password, read anew for each connection. With ``url`` and with Sentinel, for the master."""
    password_from: Text | None = None
    """Dotted path of a function without arguments that returns the password, or a pair of user and password. Likewise."""
    sentinel_username: Text | None = None
    sentinel_password: Text | None = None
    """The Sentinels' own."""
    ssl: Flag = False
    """TLS to the Sentinels and their master; with a URL, write rediss:// instead."""
    ssl_ca_certs: Text | None = None
    """File with the certificates to trust; left out: the system's. This and the next two also with a URL."""
    ssl_certfile: Text | None = None
    """The client's own certificate, where the server asks for one."""
    ssl_keyfile: Text | None = None


class PollerSettings(Section):
    """How pending rows are found."""

    concurrency: Count = 6
    """Partitions."""
    threads_count: Count = 1
    general_timeout: Seconds = timedelta(seconds=60)
    """The most seconds for which a partition's lease is taken; a lease of four seconds is enough for a poll."""
    regular_items_batch_size: Count = 200
    retryable_items_batch_size: Count = 100
    tactic: Tactic = "default"
    rate_limit: Count = 60
    """Polls that found nothing, per ``rate_interval`` and box."""
    rate_interval: Seconds = timedelta(seconds=60)
    min_queue_size: CountOrZero = 10
    max_queue_size: Count = 100
    min_queue_timelag: SecondsOrZero = timedelta(seconds=5)
    queue_delay: SecondsOrZero = timedelta(seconds=0.1)


class ProcessorSettings(Section):
    """How queued jobs are worked on."""

    threads_count: Count = 4
    general_timeout: Seconds = timedelta(seconds=180)
    """After so long a batch counts as hung: its leases, of a few seconds each, are renewed no more, and liveness fails. A stop
    waits as long for the batches under way."""
    cutoff_timeout: Seconds = timedelta(seconds=90)
    """A job stops between items after so long, and leaves the rest pending."""
    brpop_delay: Seconds = timedelta(seconds=1)
    """Longest wait for a job."""
    max_batch_bytes: Count = 64 * 1024 * 1024
    """Bytes that the payloads of one batch may have together; a larger item goes alone."""


class MiddlewaresSettings(Section):
    """Dotted paths, outermost first."""

    create_item: DottedPaths = ()
    create_batch: DottedPaths = ()
    poll: DottedPaths = ()
    batch_process: DottedPaths = ()
    item_process: DottedPaths = ()


class MetricsSettings(Section):
    """Prometheus text at ``/metrics``."""

    enabled: Flag = False
    port: Port = 9090


class ProbesSettings(Section):
    """``/readiness/outbox`` and ``/liveness/outbox``."""

    enabled: Flag = True
    port: Port = 5555


class LoggingSettings(Section):
    """What the worker writes to standard error. The command line's ``--log-format`` and ``--log-level`` go first."""

    format: Annotated[LogFormat, BeforeValidator(lowered)] = "auto"
    """json; text: short lines for people; auto: text on a terminal, else json."""
    level: Annotated[LogLevel, BeforeValidator(lowered)] = "info"


class TracingSettings(Section):
    """OpenTelemetry. The SDK is set up by the application; without one nothing is traced."""

    item_spans: Flag = False
    """Also one span per item and transport call, in the trace of the item's creation."""


class ConsoleSettings(Section):
    """``boxengine web``, and the console inside an application."""

    authentication: Annotated[ConsoleAuthentication, BeforeValidator(lowered)] = "token"
    """token: a page asks for one; basic: the browser asks, any name with a token as its password; none: whoever can
    reach the port may do everything."""
    operate_token: Token | None = None
    """Lets its holder look and act. Left out, and no ``read_token`` either: ``boxengine web`` makes one up and prints it."""
    read_token: Token | None = None
    """Lets its holder look."""
    secret: Text | None = None
    """Signs sessions, together with the tokens. Without a secret and tokens: another key for each process."""
    allowed_hosts: HostNames = ()
    """Names under which browsers may reach it. Left out: on a loopback address that address and localhost, else any."""
    hide: Hidden = Field(default_factory=dict)
    """By box, or ``*`` for all: ``true`` hides payloads, a list of key paths hides those values in payloads and options."""
    trace_url: Text | None = None
    """Where a trace is shown: a URL with ``{trace_id}``."""


class Settings(Section):
    """All that the configuration says. Frozen; what is left out has its default."""

    app: DottedPaths = ()
    """Modules imported at start."""
    owner: Text | None = None
    """Label on metrics."""
    bucket_size: Count = 16
    max_payload_bytes: Count | None = None
    """Larger payloads are refused when they are created. Left out: no limit."""
    database: DatabaseSettings = Field(default_factory=DatabaseSettings)
    redis: RedisSettings = Field(default_factory=RedisSettings)
    poller: PollerSettings = Field(default_factory=PollerSettings)
    processor: ProcessorSettings = Field(default_factory=ProcessorSettings)
    middlewares: MiddlewaresSettings = Field(default_factory=MiddlewaresSettings)
    error_tracker: Text | None = None
    """Dotted path of a callable ``(error_or_message, **context)``; left out: errors go to the log."""
    metrics: MetricsSettings = Field(default_factory=MetricsSettings)
    probes: ProbesSettings = Field(default_factory=ProbesSettings)
    logging: LoggingSettings = Field(default_factory=LoggingSettings)
    tracing: TracingSettings = Field(default_factory=TracingSettings)
    console: ConsoleSettings = Field(default_factory=ConsoleSettings)
    polling_auto_disabled: Flag = False
    """Boxes start paused."""
    disposable_transports: Flag = False
    """Default of a transport's ``disposable``."""
    wakeup: Wakeup = "notify"
    """How a commit wakes the poller: by the database's notification, by Redis, or not at all."""
    kafka: KafkaSettings = Field(default_factory=KafkaSettings)
    outbox_items: Mapping[str, BoxSettings] = Field(default_factory=dict)
    inbox_items: Mapping[str, InboxSettings] = Field(default_factory=dict)
    job_items: Mapping[str, JobBoxSettings] = Field(default_factory=dict)
    """Long jobs."""
    jobs: JobsSettings = Field(default_factory=JobsSettings)

    _origin: Origin = PrivateAttr(default_factory=Origin)

    def model_post_init(self, context: Any, /) -> None:
        """Keeps the origin that was given as validation context."""
        if isinstance(context, Origin):
            self._origin = context

    @property
    def origin(self) -> Origin:
        """Where each value came from."""
        return self._origin

    @property
    def boxes(self) -> dict[str, BoxSettings]:
        """All boxes by name, outbox first; the subscriptions, by names of their own, last."""
        declared = {**self.outbox_items, **self.inbox_items}
        read = [box.readers(name) for name, box in declared.items()]
        return {**declared, **{name: reader for readers in read for name, reader in readers.items()}}

    @property
    def wakes_by_redis(self) -> bool:
        """Whether commits wake the poller by way of Redis: also where the database has no notifications of its own."""
        url = self.database.url
        own = url is None or url.startswith("postgres")
        return self.wakeup == "redis" or (self.wakeup == "notify" and not own)

    @property
    def wakeup_in_force(self) -> Wakeup:
        """How commits wake the poller: a database that has no notifications of its own leaves them to Redis."""
        return "redis" if self.wakes_by_redis else self.wakeup

    @property
    def job_wakeup_in_force(self) -> Wakeup:
        """How commits wake the claimers of long jobs: nobody has to run Redis for them alone."""
        own = self.wakeup == "redis" or bool(self.boxes) or not self.wakes_by_redis
        return self.wakeup_in_force if own else "none"

    def spelled_out(self, table: str) -> str:
        """The table's name in one spelling, as far as the configuration tells: on MySQL with the database of the URL.

        Which schema a bare name means on PostgreSQL only the server knows.
        """
        url = self.database.url or ""
        database = database_of(url) if url.startswith(("mysql", "mariadb")) else ""
        return f"{database}.{table}" if database and "." not in table else table

    def bucket_size_of(self, box: BoxSettings) -> int:
        """The box's own, else the top level's."""
        return self.bucket_size if box.bucket_size is None else box.bucket_size

    def max_payload_of(self, box: BoxSettings) -> int | None:
        """Bytes: the box's own limit, else the top level's; None: no limit."""
        return self.max_payload_bytes if box.max_payload_bytes is None else box.max_payload_bytes

    def owner_of(self, box: BoxSettings) -> str | None:
        """The box's own, else the top level's."""
        return self.owner if box.owner is None else box.owner

    def disposable(self, transport: TransportSettings) -> bool:
        """The transport's own, else the top level's."""
        return self.disposable_transports if transport.disposable is None else transport.disposable
