"""Adds pages to the site besides those in `docs/`: README, CONTRIBUTING, CHANGELOG, and the help of every command."""

from __future__ import annotations

import posixpath
import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGES = {"README.md": "readme.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
"""The documents outside the folder of documents, with their pages."""
REFERENCE = "<!-- the site has the help of every command here -->"
"""The line of docs/commands.md that the output of `scripts/command_reference.py` replaces."""

_CONSOLE = re.compile(r"^```console[^`\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_TYPED = re.compile(r"(?:^\$ (?:.*\\\n)*.*\n)+", re.MULTILINE)
_LINK = re.compile(r"(!?\[[^\]]*\]\()([^)#\s]+)(#[^)]*)?\)")


def on_files(files: Any, config: Any) -> Any:
    """Add the pages of the documents outside the folder."""
    from mkdocs.structure.files import File

    for name, page in PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / name)))
    return files


def reference() -> str:
    """The help of every command of the gnomon in this checkout."""
    sys.path[:0] = [str(ROOT / "src"), str(ROOT / "scripts")]
    return str(import_module("command_reference").reference())


def copied(console: re.Match[str]) -> str:
    """A console block as separate blocks: commands, which can be pasted as they are, and their output."""
    parts, end = [], 0
    for typed in _TYPED.finditer(console[1]):
        parts += [("text", console[1][end : typed.start()]), ("sh", re.sub(r"^\$ ", "", typed[0], flags=re.MULTILINE))]
        end = typed.end()
    parts.append(("text", console[1][end:]))
    return "\n\n".join(f"```{language}\n{text}```" for language, text in parts if text)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turn links that are right in the checkout into links of the site, and insert the help of the commands."""
    here = posixpath.dirname(page.file.src_uri)
    beside = page.file.src_uri in PAGES.values()

    def turned(match: re.Match[str]) -> str:
        before, target, anchor = match[1], match[2], match[3] or ""
        if "://" in target or target.startswith("mailto:"):
            return match[0]
        whole = posixpath.normpath(target if beside else posixpath.join("docs", here, target))
        if whole in PAGES:
            return f"{before}{posixpath.relpath(PAGES[whole], here or '.')}{anchor})"
        if not whole.startswith("docs/"):
            return f"`{whole}`" if not before.startswith("!") else match[0]
        inside = whole.removeprefix("docs/")
        if inside.startswith("examples/") and not inside.endswith(".md"):
            return f"`{whole}`"
        return f"{before}{posixpath.relpath(inside, here or '.')}{anchor})"

    markdown = _CONSOLE.sub(copied, markdown)
    # Words after a fence's language are for the tests ("console run"), and are not options of the highlighter.
    markdown = re.sub(r"^(```[a-z]+) [^`\n]*$", r"\1", markdown, flags=re.MULTILINE)
    markdown = _LINK.sub(turned, markdown)
    return markdown.replace(REFERENCE, reference()) if REFERENCE in markdown else markdown
