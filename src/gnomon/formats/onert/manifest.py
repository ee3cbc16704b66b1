"""The ``metadata/MANIFEST`` of an nnpackage, versions 1.0 to 1.3.

Source: ``nnpackage/spec/10_packaging_and_manifest.md`` of Samsung ONE.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from gnomon.errors import ModelError

MAX_CHARACTERS = 1 << 20
MAX_DEPTH = 32
_VERSION_KEYS = ("major-version", "minor-version", "patch-version")
_HINT = "see nnpackage/spec/10_packaging_and_manifest.md of Samsung ONE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """A tensor that one model of a package hands to others, each named "model:subgraph:tensor"."""

    source: str
    targets: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a MANIFEST says. `models` and `configs` are file names; `raw` holds every key as it was read.

    `inputs`, `outputs` ("model:subgraph:tensor") and `connections` are version 1.3's and otherwise empty.
    """

    version: tuple[int, int, int]
    models: tuple[str, ...]
    model_types: tuple[str, ...]
    configs: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    connections: tuple[Connection, ...] = ()
    raw: Mapping[str, Any] = field(default_factory=dict)


def parse_manifest(text: str) -> Manifest:
    """Reads a MANIFEST. Raises ModelError where it is broken or of a later major version."""
    if len(text) > MAX_CHARACTERS:
        _fail(f"is longer than {MAX_CHARACTERS} characters")
    if _depth(text) > MAX_DEPTH:
        _fail(f"is nested deeper than {MAX_DEPTH} levels")
    try:
        raw = json.loads(text)
    except ValueError as error:
        _fail(f"is not JSON: {error}")
    if not isinstance(raw, dict):
        _fail("is not a JSON object")
    version = _version(raw)
    if version[0] != 1:
        _fail(f"is of version {'.'.join(map(str, version))}; gnomon reads versions 1.0 to 1.3")
    models, types = _strings(raw, "models"), _strings(raw, "model-types")
    if not models:
        _fail("names no model")
    if len(types) != len(models):
        _fail(f"names {len(models)} models but {len(types)} model-types")
    return Manifest(
        version=version,
        models=models,
        model_types=types,
        configs=_strings(raw, "configs"),
        inputs=_strings(raw, "pkg-inputs"),
        outputs=_strings(raw, "pkg-outputs"),
        connections=_connections(raw),
        raw=raw,
    )


def write_manifest(manifest: Manifest) -> str:
    """The JSON text of a manifest; keys that gnomon does not know, and the keys' order, stay."""
    raw: dict[str, Any] = dict(manifest.raw)
    if not raw:
        raw = {key: str(part) for key, part in zip(_VERSION_KEYS, manifest.version, strict=True)}
    lists = {"configs": manifest.configs, "models": manifest.models, "model-types": manifest.model_types}
    lists |= {"pkg-inputs": manifest.inputs, "pkg-outputs": manifest.outputs}
    for key, values in lists.items():
        if values or key in raw:
            raw[key] = list(values)
    if manifest.connections or "model-connect" in raw:
        raw["model-connect"] = [{"from": c.source, "to": list(c.targets)} for c in manifest.connections]
    return json.dumps(raw, indent=2) + "\n"


def _version(raw: Mapping[str, Any]) -> tuple[int, int, int]:
    parts = []
    for key in _VERSION_KEYS:
        value = str(raw.get(key, ""))
        if not (value.isascii() and value.isdigit() and len(value) < 6):
            _fail(f"has no number as {key}")
        parts.append(int(value))
    return parts[0], parts[1], parts[2]


def _strings(raw: Mapping[str, Any], key: str) -> tuple[str, ...]:
    values = raw.get(key, [])
    if not isinstance(values, list) or not all(isinstance(v, str) for v in values):
        _fail(f"has something else than a list of strings as {key}")
    return tuple(values)


def _connections(raw: Mapping[str, Any]) -> tuple[Connection, ...]:
    entries = raw.get("model-connect", [])
    if not isinstance(entries, list):
        _fail("has something else than a list as model-connect")
    found = []
    for entry in entries:
        if not isinstance(entry, dict) or not isinstance(entry.get("from"), str):
            _fail("has an entry without 'from' in model-connect")
        found.append(Connection(source=entry["from"], targets=_strings(entry, "to")))
    return tuple(found)


def _depth(text: str) -> int:
    """The nesting of the JSON text, counted before json's own recursion could run out of stack."""
    depth = deepest = 0
    quoted = escaped = False
    for character in text:
        if quoted:
            quoted = escaped or character != '"'
            escaped = character == "\\" and not escaped
        elif character == '"':
            quoted = True
        elif character in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif character in "]}":
            depth -= 1
    return deepest


def _fail(what: str) -> NoReturn:
    raise ModelError(f"the nnpackage's MANIFEST {what}", hint=_HINT)
