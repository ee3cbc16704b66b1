"""What the site of the documents has beside `docs/`: README, CONTRIBUTING and CHANGELOG, and links to them."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGES = {"README.md": "readme.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
"""Documents beside the folder of documents, and their pages."""

_LINK = re.compile(r"(!?\[[^\]]*\]\()([^)#\s]+)(#[^)]*)?\)")


def on_files(files: Any, config: Any) -> Any:
    """Adds the pages of the documents that lie beside the folder."""
    from mkdocs.structure.files import File

    for name, page in PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turns links as they are in the checkout into links of the site."""
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

    # Words behind a fence's language are the tests' ("console run"), and no option of the highlighter.
    markdown = re.sub(r"^(```[a-z]+) [^`\n]*$", r"\1", markdown, flags=re.MULTILINE)
    return _LINK.sub(turned, markdown)
