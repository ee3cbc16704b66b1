"""`gnomon rpc`: a tracker and servers of TVM's RPC protocol on this machine, to tune on and to try it out."""

from __future__ import annotations

import sys
from typing import Any

import click

from gnomon.cli.main import write_json

_JSON = click.option("--json", "as_json", is_flag=True, help="One JSON document on the standard output.")


@click.group(short_help="Start, look at and end servers that kernels are tuned on.")
def rpc() -> None:
    """Start, look at and end a tracker with servers of TVM's RPC protocol, which `gnomon tune` measures on.

    Two really different devices are made of one machine: wide has all cores and all vector units, narrow one thread
    and the plainest code. Needs the extra tvm of the project.
    """


@rpc.command(short_help="Start a tracker with servers on this machine.")
@click.option("--devices", type=click.IntRange(1, 64), default=2, show_default=True, help="Servers: wide, narrow, ..")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port of the tracker.  [default: a free one]")
@click.option(
    "--bind",
    metavar="ADDRESS",
    default="127.0.0.1",
    show_default=True,
    help="Listen here. Whoever reaches it can run anything on this machine: the protocol has no authentication.",
)
@click.option("--detach", is_flag=True, help="Return when it is ready, and leave it in the background.")
@_JSON
def up(devices: int, port: int, bind: str, detach: bool, as_json: bool) -> int:
    """Start a tracker with servers on this machine, and keep them until Ctrl-C, SIGTERM or `gnomon rpc down`.

    A server that a tuned kernel crashes is started anew. Nothing is left behind at the end, also if gnomon is killed.
    """
    from gnomon.jobs.rpc import RpcRequest, rpc_up
    from gnomon.report.plain import clean

    request = RpcRequest(devices=devices, port=port, bind=bind)
    if detach:
        from gnomon.jobs.rpc import start_detached

        _show_up(start_detached(request), as_json)
        return 0

    def say(line: str) -> None:
        print(f"gnomon: {clean(line)}", file=sys.stderr, flush=True)

    told: list[str] = []

    def begun(document: dict[str, Any]) -> None:
        if not told:
            told.append(document["tracker"])
            _show_up(document, as_json)
            say("they run until Ctrl-C")

    number = rpc_up(request, begun=begun, tell=say)
    say("ended: nothing is left behind")
    return 128 + number


@rpc.command(short_help="Tell which servers a tracker has.")
@click.option(
    "--tracker", metavar="HOST:PORT", help="The tracker.  [default: $TVM_TRACKER_HOST, or that in the background]"
)
@_JSON
def status(tracker: str | None, as_json: bool) -> None:
    """Tell which servers a tracker has, and how many are free."""
    from gnomon.jobs.rpc import known_tracker

    document = known_tracker(tracker)
    if as_json:
        write_json(document)
        return
    from gnomon.report.page import Column, Page

    page = Page()
    _cleaned(document, page)
    keys = document["keys"]
    count = sum(len(key["servers"]) for key in keys)
    page.headline(f"The tracker at {document['tracker']} has {count} server{'' if count == 1 else 's'}.")
    if keys:
        columns = (Column(title="key", number=False), Column(title="servers", number=False, most=60))
        rows = [[k["key"], ", ".join(k["servers"]), str(k["free"]), str(k["pending"])] for k in keys]
        page.table((*columns, Column(title="free"), Column(title="waiting")), rows)
    if document["detached"]:
        page.line("")
        page.path("try", document["detached"]["try"])
        page.path("end", "gnomon rpc down")


@rpc.command(short_help="End what runs in the background.")
@_JSON
def down(as_json: bool) -> None:
    """End the tracker and the servers that `gnomon rpc up --detach` has started."""
    from gnomon.jobs.rpc import stop_detached

    document = stop_detached()
    if as_json:
        write_json(document)
        return
    from gnomon.report.page import Page

    page = Page()
    _cleaned(document, page)
    ended = document["ended"]
    page.headline(
        "Nothing runs in the background."
        if ended is None
        else f"Ended the tracker at {ended.get('tracker')} and its servers."
    )


def _show_up(document: dict[str, Any], as_json: bool) -> None:
    if as_json:
        write_json(document)
        return
    from gnomon.report.page import Column, Page

    page = Page()
    _cleaned(document, page)
    page.headline(f"A tracker listens at {document['tracker']}.")
    columns = (
        Column(title="key", number=False),
        Column(title="target", number=False),
        Column(title="threads"),
        Column(title="server", number=False),
    )
    page.table(columns, [[d["key"], d["target"], str(d["threads"]), d["server"]] for d in document["devices"]])
    if document["warning"]:
        page.line("")
        page.item(document["warning"])
    page.line("")
    page.path("try", document["try"])
    if "log" in document:
        page.path("log", document["log"])
        page.path("end", "gnomon rpc down")
    sys.stdout.flush()


def _cleaned(document: dict[str, Any], page: Any) -> None:
    if document.get("cleaned"):
        page.line(document["cleaned"])
