"""Under what a profile's networks were measured: latencies of unlike contexts do not stand in one profile."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from gnomon.errors import UsageError
from gnomon.jobs import recall
from gnomon.jobs.request import Request
from gnomon.jobs.space_folder import LatencyRow


def measuring_context(request: Request, settings: Mapping[str, Any], server: str | None) -> dict[str, str]:
    """What changes the times of one toolchain, as texts by name: where it measures, with what, and its settings.

    Of what is as usual nothing is said, so that a profile of an older day goes on.
    """
    wish = request.wish
    said: dict[str, Any] = {
        "device": server or request.device.name,
        "threads": None if server else wish.threads,
        "backends": list(wish.backends),
        "precisions": list(wish.precisions),
        "environments": [dict(one) for one in wish.environments],
        "settings": {name: str(value) for name, value in settings.items()},
        "of the device": recall.settings_of(request.device),
    }
    return {
        name: value if isinstance(value, str) else json.dumps(value, sort_keys=True)
        for name, value in said.items()
        if value
    }


def settings_in(context: Mapping[str, str]) -> dict[str, str]:
    """The toolchain's settings in a context, to ask for the same again; none where they cannot be read."""
    try:
        found = json.loads(context.get("settings", "{}"))
    except ValueError:
        return {}
    return {str(name): str(value) for name, value in found.items()} if isinstance(found, dict) else {}


def check_context(rows: Iterable[LatencyRow], toolchain: str, context: Mapping[str, str]) -> None:
    """UsageError, with all that differs, where a toolchain's networks were measured under another context."""
    known = next((row.context for row in rows if row.toolchain == toolchain and row.call_s is not None), None)
    if known is None or dict(known) == dict(context):
        return
    unlike = [name for name in sorted({*known, *context}) if known.get(name) != context.get(name)]
    told = "; ".join(
        f"{name}: {known.get(name, 'as usual')} there, {context.get(name, 'as usual')} now" for name in unlike
    )
    raise UsageError(
        f"networks of this profile were measured by {toolchain} otherwise ({told})",
        hint="Give --profile-dir another path: times that were measured otherwise do not stand side by side.",
    )
