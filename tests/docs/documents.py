"""Reads the project's documents: their fenced blocks, headings and links."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.shortkit import SHORTLY

ROOT = Path(__file__).resolve().parent.parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks").rglob("*.md")])

_FENCE = re.compile(r"^(?P<mark>```+)(?P<info>[^`\n]*)\n(?P<text>.*?)^(?P=mark)[ \t]*$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!!)\[[^\]\n]*\]\((?P<target>[^)\s]+)\)|!\[[^\]\n]*\]\((?P<image>[^)\s]+)\)")
_CODE = re.compile(r"`[^`\n]*`")
_HEADING = re.compile(r"^#{1,6} +(?P<text>.+?) *#*$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A fenced block: its language, the words after the language, its text, and where it stands."""

    language: str
    words: tuple[str, ...]
    text: str
    path: Path
    line: int

    @property
    def name(self) -> str:
        """ "docs/jobs/place.md:12"."""
        return f"{self.path.relative_to(ROOT)}:{self.line}"

    def commands(self) -> list[str]:
        """The command lines of a console block: what follows ``$ ``, with lines that end in a backslash joined."""
        found = re.findall(r"^\$ ((?:.*\\\n)*.*)$", self.text, re.MULTILINE)
        return [re.sub(r"\\\n(> |\s+)?", "", command).strip() for command in found]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the documents' commands run, whose home they see, and in which environment, whose `gnomon` is `GNOMON`."""

    folder: Path
    home: Path
    environment: dict[str, str]


GNOMON = f"""\
#!{sys.executable}
{SHORTLY}from gnomon.cli.main import main
main()
"""
"""The program gnomon, with short visits: what is measured is not the documents' matter."""


def blocks(path: Path) -> list[Block]:
    """All fenced blocks of a document."""
    text = path.read_text(encoding="utf-8")
    made = []
    for match in _FENCE.finditer(text):
        language, *words = match["info"].split() or [""]
        line = text.count("\n", 0, match.start()) + 1
        made.append(Block(language=language, words=tuple(words), text=match["text"], path=path, line=line))
    return made


def blocks_of(*languages: str) -> list[Block]:
    """All blocks of these languages in all documents."""
    return [block for path in DOCUMENTS for block in blocks(path) if block.language in languages]


def links(path: Path) -> list[str]:
    """The targets of all links and pictures of a document, code left out."""
    text = _CODE.sub("", _FENCE.sub("", path.read_text(encoding="utf-8")))
    return [match["target"] or match["image"] for match in _LINK.finditer(text)]


def anchors(path: Path) -> set[str]:
    """The anchors that a document's headings make, as common hosts of Markdown name them.

    Those of docs/commands.md include the help of every command, which only the site has.
    """
    text = _FENCE.sub("", path.read_text(encoding="utf-8"))
    if path == ROOT / "docs" / "commands.md":
        script = [sys.executable, str(ROOT / "scripts" / "command_reference.py")]
        text += subprocess.run(script, capture_output=True, text=True, check=True).stdout
    plain = (re.sub(r"[^\w\- ]", "", match["text"].lower()) for match in _HEADING.finditer(text))
    return {heading.replace(" ", "-") for heading in plain}
