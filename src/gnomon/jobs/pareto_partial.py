"""The dump of a search that goes on: what it has run so far, so that one that is ended leaves that."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace

from gnomon.errors import UsageError
from gnomon.jobs.pareto_evaluate import Evaluator
from gnomon.jobs.pareto_files import dump_of, save_dump
from gnomon.jobs.pareto_records import ParetoRequest
from gnomon.jobs.pareto_search import searched
from gnomon.search.driver import Trail

_SHARE = 0.02
"""Writing takes no more of the time than this: a long search has a long dump."""


class PartialDump:
    """Writes the dump that is asked for, if one is, again and again while a search goes on."""

    def __init__(self, asked: ParetoRequest, evaluator: Evaluator) -> None:
        self._asked, self._evaluator = asked, evaluator
        self._start_s = time.monotonic()
        self._next_s = 0.0

    def save(self, evaluations: int) -> None:
        """So many evaluations are done. A full disk is told at the end, when the whole dump is written."""
        path, space, begin_s = self._asked.dumpfile, self._evaluator.space, time.monotonic()
        if path is None or begin_s < self._next_s:
            return
        rows = self._evaluator.dump_rows()
        if rows:
            none = searched(space.space, Trail(told=()), seconds=begin_s - self._start_s)
            dump = dump_of(space, rows, self._asked.plan, none)
            with suppress(UsageError):
                save_dump(replace(dump, sample_count=None if dump.sample_count is None else evaluations), path)
        now_s = time.monotonic()
        self._next_s = now_s + (now_s - begin_s) / _SHARE
