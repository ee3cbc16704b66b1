"""Limits of open files."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator

import pytest

from gnomon.system.limits import allow_files, open_files


@pytest.fixture(autouse=True)
def limits() -> Iterator[tuple[int, int]]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield before
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_the_soft_limit_goes_up_as_far_as_wanted_and_never_down(limits: tuple[int, int]) -> None:
    low, hard = open_files() + 50, limits[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (low, hard))
    assert allow_files(low + 20) == low + 20
    assert allow_files(10) == low + 20
    if hard >= 0:
        assert allow_files(hard + 1) == hard


def test_open_files_are_counted() -> None:
    before = open_files()
    descriptor = os.open(os.devnull, os.O_RDONLY)
    assert open_files() == before + 1
    os.close(descriptor)
