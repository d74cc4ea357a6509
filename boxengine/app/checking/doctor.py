"""Checks everything that can cause trouble in production, each part separately."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from string import Formatter

from boxengine.adapters.http.checkup import CertificateCheckup
from boxengine.adapters.http.client_certificate import ClientCertificate
from boxengine.adapters.kafka.checkup import KafkaCheckup
from boxengine.adapters.sql.checking.checkup import SqlCheckup
from boxengine.adapters.system import SystemClock
from boxengine.app.boxes import Boxes
from boxengine.app.jobs.office import JobOffice
from boxengine.app.overview.problems import told_of_retention
from boxengine.app.servers.connected import Servers
from boxengine.domain.box import Box
from boxengine.domain.holding_back import held_back
from boxengine.engine.running.heartbeat import names_twice
from boxengine.errors import BoxError, SchemaMismatch, StoreConflict, StoreTooSlow
from boxengine.ports.people.checkup import Checkup, Remark
from boxengine.settings import drivers_of_applications, notices
from boxengine.settings.kafka_arguments import kafka_arguments, kafka_servers
from boxengine.settings.transport_names import HTTP, KAFKA, short_name
from boxengine.version import __version__


class Doctor:
    """Checks the servers of a configuration."""

    def __init__(self, boxes: Boxes, servers: Servers) -> None:
        self._boxes = boxes
        self._servers = servers
        pipelines = boxes.resolved.pipelines.values()
        self._chosen: Sequence[Box] = [pipeline.box for pipeline in pipelines]
        models = [pipeline.model for pipeline in pipelines if pipeline.model is not None]
        self._office = JobOffice(boxes, servers.store)
        self._database = SqlCheckup(servers.store, models=models, now=SystemClock().now)

    def look(self) -> list[Remark]:
        """All remarks, findings first."""
        found = [Remark(area="boxengine", text=f"boxengine {__version__}, Python {platform.python_version()}.")]
        found += self._settings()
        found += _part("database", lambda: self._database.remarks(self._chosen))
        found += _part("database", self._lagging)
        found += _part("http", self._certificates)
        found += _part("jobs", self._office.remarks)
        if not self._chosen and self._office.boxes:
            # Long jobs need no Redis.
            return _findings_first(found)
        found += _part("redis", lambda: self._servers.coordinator.remarks(self._chosen))
        found += _part("redis", self._names_twice)
        for checkup in self._kafka():
            found += _part("kafka", lambda checkup=checkup: checkup.remarks(self._chosen))  # type: ignore[misc] # bound now
        return _findings_first(found)

    def _settings(self) -> list[Remark]:
        """What the configuration says that is probably not meant, and what needs no change and is told all the same."""
        settings = self._boxes.resolved.settings
        fine = drivers_of_applications(settings)
        return [
            Remark(area="boxengine", text=f"{each}.", advice=None if each in fine else "Change the configuration.")
            for each in notices(settings)
        ]

    def _names_twice(self) -> list[Remark]:
        """One remark for each database whose workers use this Redis for boxes of the same names."""
        identity = self._servers.store.identity()
        mixed = {
            other.database: (other, boxes)
            for other, boxes in names_twice(
                identity, [box.name for box in self._chosen], self._servers.workers.living()
            )
        }
        return [
            Remark(
                area="redis",
                text=f"A worker on host {other.host} uses this Redis for boxes of the same names in another database: "
                f"{', '.join(boxes)}.",
                advice="Give each database a redis.prefix of its own, or its workers take each other's jobs, leases and pauses.",
            )
            for other, boxes in mixed.values()
        ]

    def _lagging(self) -> list[Remark]:
        """Subscriptions that hold back retention."""
        found = []
        for box in self._chosen:
            try:
                since = None if box.subscription is None else self._servers.store.unread_since(box)
            except (SchemaMismatch, StoreConflict):
                continue  # reported with the tables
            age = None if since is None else held_back(box, since, self._servers.store.now())
            if age is not None:
                sentence, advice = told_of_retention(box, age)
                found.append(Remark(area="database", box=box.name, text=sentence, advice=advice))
        return found

    def alarms(self) -> list[Remark]:
        """What people should see of the database without asking; cheap to compute, and silent about one that does not answer.
        Each look at the boxes says that, and that Redis takes no writes."""
        try:
            found = self._database.alarms(self._chosen)
        except BoxError:
            return []
        return [remark for remark in found if remark.alarming]

    def _certificates(self) -> list[Remark]:
        """Of those that webhooks show to receivers."""
        certificates: dict[ClientCertificate, str] = {}
        for name, box in self._boxes.resolved.settings.boxes.items():
            for transport in box.transports.values():
                if short_name(transport.class_name) == HTTP:
                    certificate = ClientCertificate.of(transport.arguments)
                    if certificate is not None:
                        certificates.setdefault(certificate, name)
        return CertificateCheckup(certificates, now=SystemClock().now()).remarks(self._chosen)

    def _kafka(self) -> list[Checkup]:
        """One checkup per cluster that transports send to, with those of their topics that do not depend on the item."""
        settings = self._boxes.resolved.settings
        clusters: dict[str, tuple[dict[str, object], dict[str, str]]] = {}
        for name, box in settings.boxes.items():
            for transport in box.transports.values():
                if short_name(transport.class_name) != KAFKA:
                    continue
                arguments = kafka_arguments(transport.arguments, settings.kafka)
                servers, topic = kafka_servers(arguments), str(arguments.get("topic", ""))
                fixed = topic and all(place is None for _, place, _, _ in Formatter().parse(topic))
                if servers and fixed:
                    known = clusters.setdefault(servers, (dict(arguments.get("config") or {}), {}))
                    known[1][topic.replace("{{", "{").replace("}}", "}")] = name
        return [
            KafkaCheckup(bootstrap_servers=servers, config=config, topics=topics)
            for servers, (config, topics) in clusters.items()
        ]


def _findings_first(found: Sequence[Remark]) -> list[Remark]:
    """The remarks, each once: several parts ask the same server, and one that does not answer is one finding, of the first."""
    once = dict[tuple[str | None, ...], Remark]()
    for remark in found:
        once.setdefault((remark.box, remark.text, remark.advice), remark)
    return sorted(once.values(), key=lambda remark: not remark.is_finding)


def _part(area: str, ask: Callable[[], list[Remark]]) -> list[Remark]:
    try:
        return ask()
    except StoreTooSlow as error:
        advice = (
            "The server answers, so find out what makes it slow, or raise the statement_timeout of this account. The console "
            "gives each statement two seconds; on the command line, boxengine doctor has no limit of its own."
        )
        return [Remark(area=area, text=f"{error}.", advice=advice)]
    except BoxError as error:
        return [Remark(area=area, text=f"{error}.", advice="Make it answer; until then its findings are unknown.")]
    except ModuleNotFoundError as error:
        return [Remark(area=area, text=f"{error.name} is not installed.", advice=f"pip install {error.name}")]
