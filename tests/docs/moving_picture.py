"""``python -m tests.docs.moving_picture FILE``: films ``boxengine demo --kill`` and writes it as an SVG that moves.

The film is a strip: each state of the terminal stands below the one before it, and an animation moves the strip up in steps.
Where the reader prefers reduced motion, the last picture stands still.
"""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from dataclasses import dataclass
from html import escape
from pathlib import Path

import pyte

COMMAND = [sys.executable, "-m", "boxengine", "demo", "--kill"]
COLUMNS, LINES = 92, 24
EVERY = 0.4
"""Seconds between two pictures, at least."""
LAST = 6.0
"""Seconds for which the verdict stays."""
CELL_WIDTH, LINE_HEIGHT, MARGIN = 8.43, 18, 16
COLOURS = {"green": "#4ade80", "red": "#f87171", "default": "#e5e7eb"}
PATIENCE = 120.0


@dataclass(frozen=True, slots=True)
class Picture:
    """The terminal from one moment on."""

    at: float
    rows: tuple[str, ...]
    """Each as SVG text spans."""


def filmed() -> list[Picture]:
    """Runs the command in a terminal and returns what that showed."""
    screen = pyte.Screen(COLUMNS, LINES)
    stream = pyte.ByteStream(screen)
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(COLUMNS), "LINES": str(LINES)}
    stream.feed(b"$ boxengine demo --kill\r\n")
    process = subprocess.Popen(
        COMMAND, stdin=follower, stdout=follower, stderr=follower, env=environment, start_new_session=True
    )
    os.close(follower)
    began = time.monotonic()
    pictures = [Picture(0.0, rows_of(screen))]
    try:
        while time.monotonic() - began < PATIENCE:
            if select.select([leader], [], [], EVERY)[0]:
                try:
                    stream.feed(os.read(leader, 65_536))
                except OSError:  # the command has ended and closed its side
                    break
            at = time.monotonic() - began
            rows = rows_of(screen)
            if at - pictures[-1].at >= EVERY and rows != pictures[-1].rows:
                pictures.append(Picture(at, rows))
    finally:
        process.wait(timeout=PATIENCE)
        os.close(leader)
    pictures.append(Picture(time.monotonic() - began, rows_of(screen)))
    if process.returncode:
        raise SystemExit(f"the demo ended with exit code {process.returncode}")
    return pictures


def rows_of(screen: pyte.Screen) -> tuple[str, ...]:
    """The screen's lines, each as spans of one style."""
    return tuple(_spans(screen, line) for line in range(LINES))


def _spans(screen: pyte.Screen, line: int) -> str:
    spans: list[tuple[str, str]] = []
    for column in range(COLUMNS):
        cell = screen.buffer[line][column]
        style = f"fill:{COLOURS.get(cell.fg, COLOURS['default'])}" + (";font-weight:bold" if cell.bold else "")
        if spans and spans[-1][0] == style:
            spans[-1] = (style, spans[-1][1] + cell.data)
        else:
            spans.append((style, cell.data))
    if spans:
        spans[-1] = (spans[-1][0], spans[-1][1].rstrip())
    return "".join(f'<tspan style="{style}">{escape(text)}</tspan>' for style, text in spans if text)


def drawn(pictures: list[Picture]) -> str:
    """The film as one SVG."""
    width, height = int(COLUMNS * CELL_WIDTH + 2 * MARGIN), LINES * LINE_HEIGHT + 2 * MARGIN
    length = pictures[-1].at + LAST
    steps = "".join(
        f"{100 * picture.at / length:.2f}%{{transform:translateY({-number * height}px)}}"
        for number, picture in enumerate(pictures)
    )
    end = -(len(pictures) - 1) * height
    strip = "".join(
        f'<text x="{MARGIN}" y="{number * height + MARGIN + (line + 1) * LINE_HEIGHT - 5}">{row}</text>'
        for number, picture in enumerate(pictures)
        for line, row in enumerate(picture.rows)
        if row
    )
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img"
  aria-label="boxengine demo">
<style>
text{{font:14px ui-monospace,Menlo,Consolas,"DejaVu Sans Mono",monospace;white-space:pre}}
.strip{{animation:play {length:.1f}s step-end infinite}}
@keyframes play{{{steps}100%{{transform:translateY({end}px)}}}}
@media(prefers-reduced-motion:reduce){{.strip{{animation:none;transform:translateY({end}px)}}}}
</style>
<rect width="{width}" height="{height}" rx="8" fill="#111827"/>
<svg width="{width}" height="{height}"><g class="strip">{strip}</g></svg>
</svg>
"""


def main(path: Path) -> None:
    pictures = filmed()
    path.write_text(drawn(pictures))
    print(f"{path}: {len(pictures)} pictures, {pictures[-1].at:.0f} s")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
