"""The MANIFEST of an nnpackage."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.errors import ModelError
from gnomon.formats.onert.manifest import Manifest, parse_manifest, write_manifest

GOLDEN_1_0 = (
    '{"major-version":"1","minor-version":"0","patch-version":"0","models":["mymodel.model"],"model-types":["tflite"]}'
)
GOLDEN_1_3 = """{
  "major-version": "1",
  "minor-version": "3",
  "patch-version": "0",
  "configs": [ "model.cfg" ],
  "models": [ "a.circle", "b.tflite" ],
  "model-types": [ "circle", "tflite" ],
  "pkg-inputs": [ "0:0:0" ],
  "pkg-outputs": [ "1:0:0", "1:0:1" ],
  "model-connect": [ { "from": "0:0:0", "to": [ "1:0:0", "1:0:1" ] } ],
  "of-later": { "kept": true }
}"""


def test_golden_manifests() -> None:
    old = parse_manifest(GOLDEN_1_0)
    assert (old.models, old.configs) == (("mymodel.model",), ())
    new = parse_manifest(GOLDEN_1_3)
    assert new.configs == ("model.cfg",)
    assert new.model_types == ("circle", "tflite")
    assert json.loads(write_manifest(new)) == json.loads(GOLDEN_1_3)
    assert list(json.loads(write_manifest(new))) == list(json.loads(GOLDEN_1_3))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"major-version": None}, r"1 \(for versions 1.0 to 1.3\) expected"),
        ({"major-version": "2"}, r"1 \(for versions 1.0 to 1.3\) expected, '2' found"),
        ({"models": []}, "at least one model"),
        ({"models": "m"}, "models"),
        ({"models": [1]}, "models"),
        ({"model-types": []}, "0 model-types"),
        ({"configs": {}}, "configs"),
    ],
)
def test_broken_manifests_say_what_is_wrong(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        parse_manifest(json.dumps({**json.loads(GOLDEN_1_3), **change}))
    assert caught.value.hint


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", "[" * 100_000, '{"a":' * 100_000, " " * (1 << 21), "9" * 10_000, '"' + "[" * 50, "\ud800"],
)
def test_hostile_texts_are_refused(text: str) -> None:
    with pytest.raises(ModelError):
        parse_manifest(text)


names = st.text(min_size=1, max_size=8)


@given(
    st.lists(st.tuples(names, st.sampled_from(["tflite", "circle"])), min_size=1, max_size=3),
    st.lists(names, max_size=2),
)
def test_round_trip(models: Any, configs: list[str]) -> None:
    manifest = Manifest(
        major_version="1",
        models=tuple(m for m, _ in models),
        model_types=tuple(k for _, k in models),
        configs=tuple(configs),
    )
    text = write_manifest(manifest)
    again = parse_manifest(text)
    assert (again.models, again.model_types, again.configs) == (manifest.models, manifest.model_types, tuple(configs))
    assert write_manifest(again) == text
