"""`gnomon where` as a function: the backend of each operator of a model."""

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
            help="Exit with 1 if less than this share of the multiply-accumulates is on the requested backends.",
        ),
    ] = None,
    on_message: Callable[[str], None] | None = None,
    **options: Unpack[WhereOptions],
) -> WhereDocument:
    """Show within seconds on which provider, delegate or device each runtime runs MODEL's operators, and why.

    Nothing is measured: each runtime loads the model with its defaults, or once for each --backend, and reports the
    backend of each operator. A requested backend that takes no operators is reported first.

    Raises GnomonError.
    """
    from gnomon.jobs.where import job

    refuse_unknown(options, WhereOptions)
    request = model_request(model, cast("Options", options))
    return job.where(request, fail_below=fail_below, tell=on_message)
