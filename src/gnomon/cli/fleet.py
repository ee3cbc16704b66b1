"""`gnomon place` on several devices."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from gnomon.cli.measuring import options_of
from gnomon.cli.output import write_json


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What `gnomon place` was asked beside the options of measuring."""

    out: Path | None
    overwrite: bool
    measure: bool
    picture: bool
    as_json: bool
    quiet: bool


def place_several(model: Path, asked: Asked, values: dict[str, Any]) -> None:
    """Place the model on every device of `values["devices"]` at once, prove the plan for all, and show it."""
    from gnomon import api
    from gnomon.cli.fleet_document import fleet_document
    from gnomon.cli.pictures import draw
    from gnomon.cli.progress import ShowFleet
    from gnomon.jobs.fleet import place_on
    from gnomon.jobs.prove_common import CommonProof, prove_best
    from gnomon.jobs.request import timed
    from gnomon.store.sqlite import default_path

    made = (
        api.request_of(model, options_of(values, device), sweeps=True, limited=True)
        for device in dict.fromkeys(values["devices"])
    )
    requests = {request.device.name: timed(replace(request, measure=asked.measure)) for request in made}
    out = api.package_path(model) if asked.out is None else asked.out
    with ShowFleet(tuple(requests), quiet=asked.quiet) as show:
        found = place_on(requests, out, overwrite=asked.overwrite, watch=show.watch_of, tell=show.tell)
        proofs: tuple[CommonProof, ...] = ()
        if asked.measure:
            found, proofs = prove_best(requests, found, watch=show.watch_of, tell=show.tell)
        document = fleet_document(found, values["record"] or default_path(), proofs)
        for device, result in zip(document["devices"], found.results, strict=True):
            if asked.picture and result.placement is not None:
                own = device["placement"]
                own["pictures"] = draw(own, result.placement.package, partial(show.tell, result.name))
    if asked.as_json:
        write_json(document)
    else:
        from gnomon.report.fleet_text import fleet_report
        from gnomon.report.text import Page

        fleet_report(document, Page())
