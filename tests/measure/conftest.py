"""A record for the tests of measuring."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gnomon.store.sqlite import SqliteStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    with SqliteStore.open(tmp_path / "record.sqlite") as opened:
        yield opened
