"""The contract of `gnomon.toolchains.base.Toolchain` as tests, with the real tools on this machine.

Subclass `ToolchainContract` in a test module and give it a fixture `toolchain`, a fixture `jobs` (two or more jobs that
the toolchain can do), and a fixture `broken` (a job that it cannot do, such as one with a truncated model)::

    class TestMyToolchain(ToolchainContract):
        @pytest.fixture
        def toolchain(self):
            return MyToolchain()
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from gnomon.system.files import file_digest
from gnomon.toolchains.base import Artifact, Toolchain, ToolJob

# ruff: noqa: S101, D102 - tests assert, and a test's name is its sentence


class ToolchainContract:
    """The contract of every toolchain. If the toolchain cannot be used, tests are skipped with the reason."""

    @pytest.fixture
    def usable(self, toolchain: Toolchain) -> Toolchain:
        """The toolchain, if nothing is missing."""
        if missing := toolchain.check():
            pytest.skip(f"{toolchain.name}: {'; '.join(need.what for need in missing)}")
        return toolchain

    def test_it_says_what_it_is(self, toolchain: Toolchain) -> None:
        assert isinstance(toolchain, Toolchain)
        assert toolchain.name and toolchain.runtime

    def test_what_is_missing_has_a_next_step(self, toolchain: Toolchain) -> None:
        assert all(need.what and need.hint for need in toolchain.check())

    def test_left_early_and_asked_again_each_job_gets_one_artifact_and_a_broken_one_costs_itself_only(
        self, usable: Toolchain, jobs: Sequence[ToolJob], broken: ToolJob
    ) -> None:
        before = {job.key: file_digest(job.model) for job in jobs}
        folders = {job.folder: set(job.folder.iterdir()) for job in (broken, *jobs)}
        running = iter(usable.make(jobs))
        next(running)
        del running
        artifacts = {artifact.key: artifact for artifact in usable.make([broken, *jobs])}
        assert sorted(artifacts) == sorted(job.key for job in (broken, *jobs))
        failure = artifacts[broken.key].failure
        assert failure is not None and failure.message and artifacts[broken.key].path is None
        for job in jobs:
            assert file_digest(job.model) == before[job.key], "a model was changed"
            self._check(job, artifacts[job.key])
        left = [path for folder, paths in folders.items() for path in set(folder.iterdir()) - paths]
        assert not [path for path in left if path.name.startswith(".")], "something is left beside the results"

    def _check(self, job: ToolJob, artifact: Artifact) -> None:
        assert artifact.failure is None and artifact.path is not None, artifact.failure
        assert artifact.path.is_file()

    def test_no_jobs_are_no_work(self, usable: Toolchain) -> None:
        assert list(usable.make([])) == []
