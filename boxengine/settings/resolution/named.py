"""What a dotted path names, and whether it can be called as the engine will call it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from boxengine.engine.answers import ASYNC, how_it_would_run, never_runs
from boxengine.errors import described
from boxengine.settings.call_shapes import misfit
from boxengine.settings.diagnosis import Finding
from boxengine.settings.dotted_paths import CannotImport, import_module, load_object
from boxengine.settings.origin import Path


class Named:
    """Imports by dotted path. Adds what is wrong to ``found``."""

    def __init__(self) -> None:
        self.found: list[Finding] = []

    def import_app(self, names: Sequence[str]) -> None:
        """Imports the modules of ``app``, which come first."""
        for position, name in enumerate(names):
            try:
                import_module(name)
            except CannotImport as error:
                self.report(("app", position), str(error))

    def report(self, path: Path, message: str) -> None:
        """Adds a mistake."""
        self.found.append(Finding(path, message))

    def load_callable(
        self, path: Path, dotted_path: str, shape: str, *, awaited: bool = False
    ) -> Callable[..., Any] | None:
        """What the dotted path names; an instance of it, where that is a class. It may be ``async def`` if it is ``awaited``."""
        found = self.load(path, dotted_path)
        if isinstance(found, type):
            try:
                found = found()
            except (Exception, SystemExit) as error:
                message = f"{dotted_path}() raised {described(error)}; expected a class without arguments"
                self.report(path, message)
                return None
        if found is None:
            return None
        if callable(found):
            fits = self.runs(path, dotted_path, found, awaited=awaited) and self._fits(path, dotted_path, found, shape)
            return cast("Callable[..., Any]", found) if fits else None
        message = f"{dotted_path} is not callable; expected a class whose instances are called as {shape}"
        self.report(path, message)
        return None

    def runs(self, path: Path, name: str, found: object, *, awaited: bool = False) -> bool:
        """Whether a call of it runs its code: nobody goes through a generator, and not everything is ``awaited``."""
        kind = never_runs(found)
        if kind is None or (awaited and kind == ASYNC):
            return True
        self.report(path, f"{name} is {kind}, whose code would never run; {how_it_would_run(awaited=awaited)}")
        return False

    def _fits(self, path: Path, name: str, found: object, shape: str) -> bool:
        mistake = misfit(found, shape)
        if mistake is not None:
            self.report(path, f"{name} {mistake}")
        return mistake is None

    def load(self, path: Path, dotted_path: str) -> Any:
        """What the dotted path names; None if it cannot be imported."""
        try:
            return load_object(dotted_path)
        except CannotImport as error:
            self.report_once(path, str(error))
            return None

    def report_once(self, path: Path, message: str) -> None:
        """Adds a mistake. A module that cannot be imported is one mistake, however many keys name something in it."""
        broken = [finding for finding in self.found if finding.path[0] == "app" and finding.message == message]
        if not broken:
            self.report(path, message)
