"""What a text column can store. A text that does not fit would roll back the outcomes of its whole batch."""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass

from sqlalchemy import Connection, String, text
from sqlalchemy.types import TypeEngine

_LONGEST_CHARACTER = 4
"""Bytes, in UTF-8."""
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_BEYOND_THREE_BYTES = "[^\x00-\uffff]"
"""Compiled where it is needed: that takes 5 ms, and no column of PostgreSQL has such a character set."""
_EVERYTHING = frozenset({"UTF8", "SQL_ASCII", "utf8mb4", "utf16", "utf16le", "utf32", "ucs2"})
"""Character sets that store any text that Python sends. With ``SQL_ASCII`` the server stores any bytes unchecked."""
_THREE_BYTES = frozenset({"utf8", "utf8mb3"})
_CODECS = {
    "latin1": "cp1252",  # MySQL's
    "LATIN1": "latin-1",
    "LATIN2": "iso8859-2",
    "LATIN5": "iso8859-9",
    "LATIN9": "iso8859-15",
    "KOI8R": "koi8-r",
    "EUC_CN": "gb2312",
}
_WINDOWS = re.compile(r"WIN(\d+)")
_COLUMN = text("""
    SELECT character_set_name, data_type, character_maximum_length, character_octet_length
    FROM information_schema.columns WHERE table_schema = :schema AND table_name = :name AND column_name = :column
""")


@dataclass(frozen=True, slots=True)
class TextColumn:
    """Which texts a column can store."""

    charset: str = "UTF8"
    """The server's name for its character set."""
    characters: int | None = None
    """The most characters that it can store; None: no such limit."""
    size: int | None = None
    """The most bytes that it can store; None: no such limit."""
    nul: bool = True
    """Whether a text may hold the character NUL."""

    @property
    def takes_everything(self) -> bool:
        """Whether it can store every character."""
        return self.charset in _EVERYTHING

    @property
    def always_fit(self) -> int | None:
        """How many characters fit, whichever they are; None: any number."""
        by_size = None if self.size is None else self.size // _LONGEST_CHARACTER
        return min((limit for limit in (self.characters, by_size) if limit is not None), default=None)

    def fit(self, value: str) -> str:
        """The text in a form that fits: unsupported characters are replaced, and the end is cut off."""
        if not self.nul and "\x00" in value:
            value = value.replace("\x00", REPLACEMENT)
        if self.charset in _THREE_BYTES:
            value = re.sub(_BEYOND_THREE_BYTES, REPLACEMENT, value)
        codec = "utf-8" if self.takes_everything or self.charset in _THREE_BYTES else _codec_of(self.charset)
        encoded = value.encode(codec, "replace")
        if self.size is not None and len(encoded) > self.size:
            encoded = encoded[: self.size]
        value = encoded.decode(codec, "ignore")
        return value if self.characters is None else value[: self.characters]


EVERY_TEXT = TextColumn()
_CHARSET = "boxengine: server_encoding"
"""Where a connection to PostgreSQL keeps it, for the next table."""


def _codec_of(charset: str) -> str:
    """Python's codec for a server's character set; ASCII if Python has none."""
    windows = _WINDOWS.fullmatch(charset)
    name = f"cp{windows[1]}" if windows else _CODECS.get(charset, charset)
    try:
        return codecs.lookup(name).name
    except LookupError:
        return "ascii"


def text_column(
    connection: Connection, schema: str | None, table: str, column: str, type_: TypeEngine[str]
) -> TextColumn:
    """Looks up what the column can store."""
    if connection.dialect.name == "postgresql":
        charset = connection.info.get(_CHARSET)
        if charset is None:
            charset = connection.info[_CHARSET] = connection.exec_driver_sql("SHOW server_encoding").scalar_one()
        return TextColumn(charset, getattr(type_, "length", None) if isinstance(type_, String) else None, nul=False)
    if connection.dialect.name not in ("mysql", "mariadb"):
        return EVERY_TEXT
    where = {"schema": schema, "name": table, "column": column}
    found = connection.execute(_COLUMN, where).one_or_none()
    if found is None or found[0] is None:
        return TextColumn(characters=getattr(type_, "length", None))
    charset, data_type, characters, size = found
    # VARCHAR counts characters, the TEXT family bytes.
    if data_type in ("varchar", "char"):
        return TextColumn(charset, int(characters))
    return TextColumn(charset, size=int(size))
