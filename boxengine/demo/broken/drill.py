"""A drill: one situation, from the alarm until the console says that all is well."""

from __future__ import annotations

import queue
import sys
import tempfile
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import TextIO

from boxengine.demo.broken.scene import Scene
from boxengine.demo.broken.situations import SITUATIONS, Situation
from boxengine.errors import BoxError

LOOK_EVERY = 0.5
APPEARS_WITHIN = 240
"""How many looks a situation has to appear in the console before the drill gives up."""


class Drill:
    """Runs one situation."""

    def __init__(self, name: str, *, lines: Iterable[str], out: TextIO) -> None:
        """Args:
        name: the situation's name.
        lines: the lines that the person types.
        """
        self._situation: Situation = SITUATIONS[name]
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._source = lines
        self._out = out

    def run(self) -> None:
        """Runs the drill until the situation is fixed."""
        with tempfile.TemporaryDirectory(prefix="boxengine-broken-", ignore_cleanup_errors=True) as folder:
            # PostgreSQL runs under another account if this process is root.
            Path(folder).chmod(0o755)
            scene = Scene(Path(folder))
            try:
                self._say("Starting PostgreSQL, Valkey, a receiver and the console ...")
                scene.set_up()
                self.play(scene)
            finally:
                scene.tear_down()

    def play(self, scene: Scene) -> None:
        """Plays the situation in a working scene, from the alarm until all is well."""
        self._situation.happens(scene)
        self._wait_for_it(scene)
        self._tell(scene)
        self._wait_until_fixed(scene)

    def _wait_for_it(self, scene: Scene) -> None:
        for _ in range(APPEARS_WITHIN):
            if any(self._situation.sentence in each for each in scene.sentences()):
                return
            self._pause()
        raise BoxError(f"the console does not show it: {scene.log.read_text()[-2000:] if scene.log.exists() else ''}")

    def _tell(self, scene: Scene) -> None:
        self._say("Something is wrong. Find and fix it with docs/on-call.md and the console:")
        self._say(f"  {scene.url}   token: {scene.token}")
        if self._situation.outside:
            self._say(self._situation.outside)
        self._say("Ctrl-C gives up.")
        threading.Thread(target=self._read, name="boxengine-demo-typed", daemon=True).start()

    def _wait_until_fixed(self, scene: Scene) -> None:
        listening = True
        while scene.sentences():
            try:
                line = self._lines.get(timeout=LOOK_EVERY)
            except queue.Empty:
                continue
            if line is None:
                listening = False
                continue
            try:
                self._situation.typed(scene, line.strip())
                self._say("done")
            except Exception as error:
                self._say(f"{type(error).__name__}: {str(error).splitlines()[0]}")
        self._say("Fixed: the console says that all is well. Enter ends the drill.")
        if listening:
            self._lines.get()

    def _read(self) -> None:
        for line in self._source:
            self._lines.put(line)
        self._lines.put(None)  # the input has ended

    def _pause(self) -> None:
        threading.Event().wait(LOOK_EVERY)

    def _say(self, text: str) -> None:
        print(text, file=self._out, flush=True)


def drill(name: str) -> None:
    """Runs one drill in this terminal."""
    Drill(name, lines=sys.stdin, out=sys.stdout).run()
