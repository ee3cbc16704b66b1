"""Where a model runs: what `gnomon where` does, as a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Unpack, cast

from gnomon.api.options import Model, Options, WhereOptions, model_request
from gnomon.options import option, refuse_unknown
from gnomon.values import percent

if TYPE_CHECKING:
    from gnomon.jobs.where.document import WhereDocument


def where(
    model: Model,
    *,
    fail_below: Annotated[
        float | None,
        option(
            read=percent,
            metavar="95%",
            help="Exit with 1 where less of the multiply-accumulates than this is on what was asked for.",
        ),
    ] = None,
    on_message: Callable[[str], None] | None = None,
    **options: Unpack[WhereOptions],
) -> WhereDocument:
    """Show in seconds which operator of MODEL each runtime gives to which provider, delegate or device, and why not.

    Nothing is measured: each runtime loads the model as it does by itself, or for each --backend, and its own report
    is read. A backend that was asked for and takes nothing is said first.

    Raises GnomonError.
    """
    from gnomon.jobs.where import job

    refuse_unknown(options, WhereOptions)
    request = model_request(model, cast("Options", options))
    return job.where(request, fail_below=fail_below, tell=on_message)
