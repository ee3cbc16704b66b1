"""The job as a function; its signature declares the command's options."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated

from gnomon.api.place import profile
from gnomon.jobs.runs.answers import keep
from gnomon.options import option

from .document import WaitPart, YoursDocument


def yours(
    model: Annotated[str, option(metavar="MODEL")],
    *,
    runtimes: Annotated[
        Sequence[str], option("--runtime", repeat=True, metavar="NAME", help="Runtimes to measure.")
    ] = (),
    on_message: Callable[[str], None] | None = None,
) -> YoursDocument:
    """Measure how long each configuration takes to load MODEL and to answer once."""
    measured = profile(model, runtimes=runtimes, processes=1)
    document = YoursDocument(
        model=measured.model.path,
        campaign=measured.campaign,
        record=measured.record,
        configurations=tuple(
            WaitPart(configuration=column.label, wait_s=column.load_s + column.first_call_s)
            for column in measured.columns
        ),
    )
    keep(document.document(), on_message)
    return document
