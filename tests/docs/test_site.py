"""The documents are a site: every page is in its menu, every link and anchor leads somewhere, nothing is fetched."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.docs.documents import ROOT

FETCHED = re.compile(
    r"""<(?:script|img|iframe|audio|video|source)[^>]*\ssrc="https?://|<link[^>]*stylesheet[^>]*https?://"""
)


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs")
    pytest.importorskip("mkdocstrings")
    pytest.importorskip("material")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_the_site_is_built_with_every_page_and_link(site: Path) -> None:
    pages = {path.relative_to(site).as_posix() for path in site.rglob("index.html")}
    assert {"tutorial/index.html", "coming-from/stab/index.html", "api/index.html", "changelog/index.html"} <= pages
    assert "gnomon.api.place.place" in (site / "api" / "index.html").read_text(encoding="utf-8")


def test_the_page_of_commands_has_the_help_of_each(site: Path) -> None:
    page = (site / "commands" / "index.html").read_text(encoding="utf-8")
    assert 'id="gnomon-estimator-suggest"' in page
    assert "--fail-slower" in page


def test_what_the_site_copies_can_be_pasted(site: Path) -> None:
    page = (site / "readme" / "index.html").read_text(encoding="utf-8")
    code = [re.sub(r"<[^>]*>", "", block) for block in re.findall(r"<pre>(.*?)</pre>", page, re.DOTALL)]
    assert any(block.startswith("gnomon place ppocr-rec.onnx -v\n") for block in code)
    assert any(block.startswith("Use openvino") for block in code)
    assert not [block for block in code if block.startswith("$ ")]


def test_the_site_fetches_nothing_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        assert not FETCHED.search(page.read_text(encoding="utf-8")), page


def test_messages_of_troubleshooting_are_those_of_the_code() -> None:
    """Each message that the page quotes occurs in the sources, piece by piece between its `..`."""
    quoted = re.findall(
        r"^\| `([^`]+)` \|", (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert len(quoted) > 20
    sources = " ".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    sources = re.sub(r'"\s*\n\s*f?"', "", sources)
    for message in quoted:
        for piece in re.split(r"\s*\.\.\s*", message):
            assert piece.strip(" :") in sources, f"{message!r}: {piece!r} is said nowhere"
