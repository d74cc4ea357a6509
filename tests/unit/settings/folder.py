"""A folder with configuration files, read as the application reads them."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from boxengine.errors import ConfigurationError
from boxengine.settings import Resolved, Settings, load, load_and_resolve, resolve

BUILT_IN = {
    "log": "tests.unit.settings.shop.Log",
    "kafka": "tests.unit.settings.shop.Kafka",
    "http": "tests.unit.settings.shop.Http",
}


@dataclass
class Folder:
    path: Path
    environ: dict[str, str] = field(default_factory=dict)

    def write(self, text: str, name: str = "outbox.yml") -> Path:
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text), encoding="utf-8")
        return file

    def load(self, *paths: str, env: str | None = None) -> Settings:
        return load([Path(path) for path in paths], env=env, environ=self.environ, cwd=self.path)

    def settings(self, text: str) -> Settings:
        self.write(text)
        return self.load()

    def resolved(self, text: str) -> Resolved:
        return resolve(self.settings(text), builtin_transports=BUILT_IN)

    def problems(self, text: str) -> Mapping[str, str]:
        """Message by key path, of all that is wrong with this configuration, imports included."""
        self.write(text)
        try:
            load_and_resolve(None, env=None, environ=self.environ, cwd=self.path, builtin_transports=BUILT_IN)
        except ConfigurationError as error:
            found = error.problems
        else:
            found = ()
        assert {problem.file for problem in found} <= {"outbox.yml"}
        assert len({problem.path for problem in found}) == len(found), "one problem per path"
        return {problem.path: problem.message for problem in found}
