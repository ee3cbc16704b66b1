"""Times gnomon's queries of a results database in PostgreSQL that holds ten million samples.

A separate server is started (Debian: postgresql) and filled by COPY with the rows that the store would write: a
campaign for each model, device and night, each with a number of runs and samples. Each query is made several times,
each time for another campaign and through a new connection. Prints one JSON document.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from tests.store.postgreskit import Server, running_server

from benchmarks.common import parser, publish, spread
from gnomon.core.sample import FINISHED, Campaign, Context, Event, Run, Samples
from gnomon.jobs.runs.job import list_campaigns, show_campaign
from gnomon.store import rows
from gnomon.store.address import DatabaseAddress
from gnomon.store.base import CampaignQuery, RunQuery, newest_free
from gnomon_postgres.store import PostgresStore

_LISTED = 20
_MODELS, _DEVICES = 20, 10


def _campaign(number: int) -> Campaign:
    model, device, night = number % _MODELS, number // _MODELS % _DEVICES, number // _MODELS // _DEVICES
    context = Context(
        device={"machine": f"board {device}"},
        versions={"onnxruntime": "1.23.2"},
        model_digest=f"{model:064x}",
        model_name=f"model-{model}.onnx",
        options={"threads": 4},
        seed=0,
        gnomon_version="0.1.0",
    )
    key = f"{model} {device}"
    return Campaign(id=f"c{number}", kind="profile", key=key, context=context, started_at_s=86400.0 * night)


def _runs(number: int, runs: int, samples: int) -> Iterator[Run]:
    for run in range(runs):
        times = tuple(1_000_000 + 37 * (number + run + i) % 9973 for i in range(samples))
        yield Run(
            candidate=f"candidate {run % 5}",
            process=run // 5 % 5,
            block=run // 25,
            started_at_s=float(number),
            samples=Samples(wall_ns=times, cpu_ns=times),
            facts={"peak_rss_bytes": 50_000_000},
        )


def _fill(server: Server, database: str, campaigns: int, runs: int, samples: int) -> None:
    """Add rows as the store would, one after another, but in one transaction."""
    import psycopg

    def load(table: str, records: Iterator[dict[str, Any]]) -> None:
        first = next(records)
        names = ", ".join(f'"{name}"' for name in first)
        with db.cursor().copy(f"COPY gnomon.{table} ({names}) FROM STDIN") as copy:
            copy.write_row(tuple(first.values()))
            for record in records:
                copy.write_row(tuple(record.values()))

    numbers = range(campaigns)
    finished = rows.from_event(Event(name=FINISHED, at_s=1.0))
    with psycopg.connect(server.url(database)) as db:
        load("campaigns", (rows.from_campaign(_campaign(n)) for n in numbers))
        load(
            "runs",
            ({"campaign": n + 1} | rows.from_run(run) for n in numbers for run in _runs(n, runs, samples)),
        )
        load("events", ({"campaign": n + 1} | finished for n in numbers))
        db.commit()
        db.autocommit = True
        db.execute("VACUUM ANALYZE")


def _history(store: PostgresStore, like: Campaign) -> int:
    """The number of samples of a model on a device, over all its campaigns; reads all of them."""
    return sum(
        len(run.samples.wall_ns)
        for campaign in store.query(CampaignQuery(key=like.key))
        for run in store.query(RunQuery(campaign=campaign.id))
        if run.samples
    )


def _asked(url: str, campaigns: int, repeats: int, runs: int, samples: int) -> dict[str, Any]:
    def both(store: PostgresStore, one: Campaign) -> int:
        other = _campaign(int(one.id[1:]) + _MODELS * _DEVICES)
        return show_campaign(store, one).row.runs + show_campaign(store, other).row.runs

    def appended(store: PostgresStore, one: Campaign) -> None:
        store.append(one.id, replace(next(_runs(0, 1, samples)), process=10**6 + time.monotonic_ns()))

    questions: dict[str, Callable[[PostgresStore, Campaign], object]] = {
        "runs list": lambda store, _: [row for row, _ in zip(list_campaigns(store), range(_LISTED), strict=False)],
        "runs show": lambda store, one: show_campaign(store, one),
        "runs show of two campaigns": both,
        "history of a model on a device": _history,
        "what to resume": lambda store, one: newest_free(store, one.key, finished=False),
        "the newest like it": lambda store, one: newest_free(store, one.key),
        "one append": appended,
    }
    found: dict[str, Any] = {}
    for name, ask in questions.items():
        took = []
        for repeat in range(repeats):
            one = _campaign(campaigns * repeat // repeats // 2)
            with PostgresStore.open(DatabaseAddress(url=url)) as store:
                begun = time.perf_counter()
                ask(store, one)
                took.append(time.perf_counter() - begun)
        found[name] = spread(took)
    with PostgresStore.open(DatabaseAddress(url=url)) as store:
        found["samples in a history"] = _history(store, _campaign(0))
    return found


def main() -> None:
    """Fill a database, make the queries, and print the seconds that each took."""
    options = parser(__doc__)
    options.add_argument("--campaigns", type=int, default=1000)
    options.add_argument("--runs", type=int, default=100, help="of each campaign")
    options.add_argument("--samples", type=int, default=100, help="of each run")
    options.add_argument("--repeats", type=int, default=7)
    given = options.parse_args()
    with running_server(durable=True) as server:
        database = server.database()
        url = server.url(database)
        PostgresStore.open(DatabaseAddress(url=url)).close()
        begun = time.perf_counter()
        _fill(server, database, given.campaigns, given.runs, given.samples)
        filled_s = time.perf_counter() - begun
        ((stored,),) = server.run(f"SELECT pg_database_size('{database}')", database=database)
        ((version,),) = server.run("SHOW server_version")
        asked = _asked(url, given.campaigns, given.repeats, given.runs, given.samples)
    publish(
        {
            "postgresql": version,
            "campaigns": given.campaigns,
            "samples": given.campaigns * given.runs * given.samples,
            "bytes": stored,
            "filling_s": filled_s,
            "seconds": asked,
        },
        given,
    )


if __name__ == "__main__":
    main()
