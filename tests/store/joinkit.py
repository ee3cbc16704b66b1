"""Records that overlap, and commands that import them into one record at the same moment."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.store.contract import failed_run, sample_campaign, sample_run

from gnomon.core.sample import FINISHED, Event, Run
from gnomon.store.address import record_address
from gnomon.store.base import CampaignQuery, EventQuery, RunQuery, Store
from gnomon.store.opening import read_store
from gnomon.store.sqlite import SqliteStore

_COMMAND = """
import sys
import gnomon.jobs.runs.joining
from gnomon.cli.main import run
print("ready", flush=True)
sys.stdin.readline()
sys.exit(run(["runs", "import", *sys.argv[1:], "--json"]))
"""
_BLOCKS = 40


def overlapping(folder: Path) -> tuple[list[str], dict[str, tuple[list[Run], list[Event]]]]:
    """Three records by their files, of which no two hold the same, and by campaign all that they hold together."""
    whole: dict[str, tuple[list[Run], list[Event]]] = {}
    files = []
    for number in range(3):
        path = folder / f"part{number}.sqlite"
        files.append(str(path))
        with SqliteStore.open(path) as store:
            for id in (f"c{k}" for k in range(number, number + 6)):
                store.open_campaign(sample_campaign(id))
                runs, events = whole.setdefault(id, ([], []))
                items: list[Run | Event] = [sample_run(block=b) for b in range(_BLOCKS) if (b + number) % 3]
                items += [failed_run(f"failed in {number}"), failed_run("failed in all")]
                items += [Event(name="part", at_s=2.0, data={"number": number}), Event(name=FINISHED, at_s=9.0)]
                with store.whole():
                    for item in items:
                        store.append(id, item)
                        known: list[Any] = runs if isinstance(item, Run) else events
                        known += [item] if item not in known else []
    return files, whole


def import_at_once(commands: list[list[str]], record: str) -> list[dict[str, int]]:
    """What each of these commands says that it has added: all begin at the same moment."""
    with ExitStack() as stack:
        started = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", _COMMAND, *files, "--record", record],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
            for files in commands
        ]
        for process in started:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
        for process in started:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        ended = [(process, *process.communicate()) for process in started]
    added = []
    for process, out, err in ended:
        assert process.returncode == 0, err + out
        files = json.loads(out)["files"]
        added.append({name: sum(file[name] for file in files) for name in ("campaigns", "runs", "events")})
    return added


def holds_once(store: Store, whole: dict[str, tuple[list[Run], list[Event]]]) -> bool:
    """Whether a record holds all of that, and each thing once."""

    def ordered(items: list[Any]) -> list[str]:
        return sorted(map(repr, items))

    assert sorted(c.id for c in store.query(CampaignQuery())) == sorted(whole)
    for id, (runs, events) in whole.items():
        assert ordered(list(store.query(RunQuery(campaign=id)))) == ordered(runs)
        assert ordered(list(store.query(EventQuery(campaign=id)))) == ordered(events)
    return True


def counted(whole: dict[str, tuple[list[Run], list[Event]]]) -> dict[str, int]:
    """How many campaigns, runs and events that are."""
    runs, events = (sum(len(items[k]) for items in whole.values()) for k in (0, 1))
    return {"campaigns": len(whole), "runs": runs, "events": events}


def added_once(record: str, folder: Path) -> dict[str, int]:
    """Import overlapping records at the same moment, by commands of one file and of several, and look at the record.

    What all commands together say that they have added is what is there, and returned.
    """
    files, whole = overlapping(folder)
    added = import_at_once([[files[0]], [files[1]], files[::-1], files], record)
    total = {name: sum(one[name] for one in added) for name in added[0]}
    assert total == counted(whole)
    with read_store(record_address(record)) as store:
        assert holds_once(store, whole)
    return total
