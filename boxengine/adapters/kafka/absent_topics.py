"""Which of the topics that a consumer names do not exist, or may not be read. librdkafka says so once, and then is silent."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable

from boxengine.adapters.kafka.topic_ids import ASK_AGAIN, ASK_EVERY, AskTroubles

logger = logging.getLogger(__name__)

Tell = Callable[[str, str | None], None]
"""Called with a topic and what is wrong with it; None: it can be read."""


class AbsentTopics:
    """Asks the broker for named topics until they are known to be there and readable. To ask creates none."""

    def __init__(self, topics: Collection[str], ask: AskTroubles, *, tell: Tell) -> None:
        """Args:
        topics: names, or patterns beginning with ``^``. For a pattern nobody can say which topics should exist.
        """
        self._patterns = frozenset(topic for topic in topics if topic.startswith("^"))
        self._named = frozenset(topics) - self._patterns
        self._ask = ask
        self._tell = tell
        self._doubtful = set(self._named)
        """Those that are not known to be readable."""
        self._due = 0.0

    def begin(self, now: float) -> None:
        """A new consumer knows of no topic. Most show soon that they exist, and need not be asked for."""
        self._doubtful = set(self._named)
        self._due = now + ASK_EVERY

    def doubt(self, topic: str | None) -> bool:
        """Asks soon for a named topic that is said not to exist, or to be forbidden. False: it was not subscribed to."""
        if topic in self._patterns:
            logger.warning("no topic matches %s yet", topic)
            return True
        if topic is None or topic not in self._named:
            return False
        self._doubtful.add(topic)
        self._due = 0.0
        return True

    def seen(self, topics: Iterable[str]) -> None:
        """These can be read."""
        for topic in self._doubtful.intersection(topics):
            self._doubtful.discard(topic)
            self._tell(topic, None)

    def look(self, now: float) -> None:
        """Asks if it is time to, and tells what it found.

        Raises:
            Exception: librdkafka's; the next question comes later.
        """
        if not self._doubtful or now < self._due:
            return
        self._due = now + ASK_AGAIN
        troubles = self._ask(self._doubtful)
        self._due = now + ASK_EVERY
        self.seen(topic for topic, trouble in troubles.items() if trouble is None)
        for topic in sorted(self._doubtful):
            self._tell(topic, troubles[topic])
