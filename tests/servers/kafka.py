"""Apache Kafka for the session: one KRaft node from jars that Maven has fetched."""

from __future__ import annotations

import base64
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Self

from boxengine.embedded.process import ServerNotStarted, ServerProcess, free_port
from tests.servers.offer import How, Offer

_POM = Path(__file__).parents[1] / "kafka" / "pom.xml"
_OLDEST_JAVA = 17


class KafkaFromJars:
    """A real broker, if Java is installed and the jars exist or Maven can fetch them."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._jars = jar_folder(environ)

    def offer(self) -> Offer:
        """To be started, if Java 17 or newer is installed, and the jars or Maven are."""
        java = java_version()
        if java < _OLDEST_JAVA:
            return Offer("kafka", How.ABSENT, f"needs Java {_OLDEST_JAVA} or newer, found {java or 'none'}")
        if not self._jars.is_dir() and shutil.which("mvn") is None:
            return Offer("kafka", How.ABSENT, "neither its jars nor Maven to fetch them")
        return Offer("kafka", How.STARTED, f"Apache Kafka {kafka_version()}, Java {java}")

    def start(self, folder: Path, stack: ExitStack) -> Offer:
        """Start it; its address is the bootstrap server. It is absent if the jars cannot be fetched."""
        offer = self.offer()
        try:
            resolve_jars(self._jars)
        except subprocess.CalledProcessError as error:
            return replace(offer, how=How.ABSENT, detail=f"Maven could not fetch its jars: {error.stdout[-500:]}")
        broker = stack.enter_context(KafkaBroker(folder / "kafka", jars=self._jars))
        return replace(offer, address=broker.bootstrap)


class KafkaBroker:
    """One node on 127.0.0.1, both broker and controller; topics are created at first use, with four partitions.

    As a context manager it starts on entry, and on exit stops and deletes its data.
    """

    def __init__(self, folder: Path, *, jars: Path, settings: Mapping[str, str] | None = None) -> None:
        """Args:
        settings: broker settings, which override ours; ``{port}`` in a value is replaced by the broker's port.
        """
        self._folder = folder
        self._jars = jars
        self._port = free_port()
        self._settings = {name: value.replace("{port}", str(self._port)) for name, value in (settings or {}).items()}
        self._process: ServerProcess | None = None

    @property
    def bootstrap(self) -> str:
        """``host:port``; it stays the same across restarts."""
        return f"127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start, and return when it serves clients."""
        self._folder.mkdir(parents=True, exist_ok=True)
        properties = self._folder / "server.properties"
        if not properties.exists():
            own = "".join(f"{name}={value}\n" for name, value in self._settings.items())
            properties.write_text(_properties(self._folder / "log", self._port, free_port()) + own)
            self._format(properties)
        command = self._java("kafka.Kafka", str(properties))
        self._process = ServerProcess(command, log_path=self._folder / "kafka.log")
        self._process.wait_until(_Probe(self.bootstrap).answers, patience=timedelta(seconds=90))

    def stop(self) -> None:
        """Shut down in a controlled way. Harmless when it is not running."""
        if self._process is not None:
            self._process.stop(signal.SIGTERM, patience=timedelta(seconds=20))

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self._process.kill()

    def restart(self) -> None:
        """Stop and start on the same port with the same data."""
        self.stop()
        self.start()

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal, such as SIGSTOP and SIGCONT to freeze the broker for a while."""
        if self._process is not None:
            self._process.send_signal(number)
            if number is signal.SIGSTOP:
                # Its threads stop one after the other, and messages are still acknowledged until the last one has stopped.
                os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WNOWAIT)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()  # nobody will read its data again, and a controlled shutdown takes seconds
        shutil.rmtree(self._folder, ignore_errors=True)

    def _format(self, properties: Path) -> None:
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        command = self._java("kafka.tools.StorageTool", "format", f"--cluster-id={cluster}", "-c", str(properties))
        made = subprocess.run(command, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if made.returncode != 0:
            raise ServerNotStarted(f"formatting Kafka's storage failed:\n{made.stdout}{made.stderr}")

    def _java(self, main: str, *arguments: str) -> list[str]:
        return [
            "java",
            "-Xms128m",
            "-Xmx512m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",  # halves the start time; a test broker does not run long enough to warm up
            "-Djava.awt.headless=true",
            "-cp",
            f"{self._jars}/*",
            main,
            *arguments,
        ]


class _Probe:
    """Asks a broker for its metadata. The same client asks repeatedly, because each client costs threads."""

    def __init__(self, bootstrap: str) -> None:
        from confluent_kafka.admin import AdminClient

        self._client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})  # a refused connection is expected

    def answers(self) -> bool:
        """Whether the broker answers within a second."""
        from confluent_kafka import KafkaException

        try:
            return bool(self._client.list_topics(timeout=1).brokers)
        except KafkaException:
            return False


def jar_folder(environ: Mapping[str, str]) -> Path:
    """Where the jars are kept between sessions: below ``$BOXENGINE_CACHE``, or else the user's cache folder."""
    cache = Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "boxengine"
    return Path(environ.get("BOXENGINE_CACHE") or cache) / f"kafka-{kafka_version()}"


def kafka_version() -> str:
    """The version that ``tests/kafka/pom.xml`` asks for."""
    found = re.search(r"<kafka.version>(.+?)</kafka.version>", _POM.read_text())
    assert found is not None
    return found[1]


def java_version() -> int:
    """Feature version of the ``java`` on PATH (17, 21, ...); 0 if Java is missing."""
    if shutil.which("java") is None:
        return 0
    said = subprocess.run(["java", "-version"], check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    found = re.search(r'version "(\d+)', said.stderr)
    return int(found[1]) if found else 0


def resolve_jars(target: Path) -> None:
    """Fetch the broker's jars with Maven unless they exist; several processes may do so at once.

    :raises subprocess.CalledProcessError: Maven failed; ``stdout`` says why.
    """
    if target.is_dir():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f"{target.name}-", dir=target.parent))
    goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={draft}/jars"]
    try:
        subprocess.run(
            ["mvn", "-B", "-q", "-f", str(_POM), *goal],
            check=True,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        if not target.is_dir():
            (draft / "jars").rename(target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _properties(log: Path, port: int, controller_port: int) -> str:
    """One replica of everything; a short session, because a killed broker may return only when its old session has ended."""
    return f"""\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller_port}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={log}
num.partitions=4
auto.create.topics.enable=true
offsets.topic.num.partitions=4
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
broker.session.timeout.ms=2000
broker.heartbeat.interval.ms=500
"""


def prepare(environ: Mapping[str, str]) -> str | None:
    """Fetch what the session will need; returns the reason if a real broker is not available."""
    offer = KafkaFromJars(environ).offer()
    if offer.how is How.ABSENT:
        return offer.detail
    try:
        resolve_jars(jar_folder(environ))
    except subprocess.CalledProcessError as error:
        return str(error.stdout)
    return None


if __name__ == "__main__":
    sys.exit(prepare(os.environ))
