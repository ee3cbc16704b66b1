"""`gnomon space`: its lists, its options, and errors with the next step; nothing is trained here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NoReturn

import pytest

from gnomon.cli.main import run
from gnomon.errors import UsageError
from gnomon.jobs.space import job
from gnomon.jobs.space.profiling.training import TrainRequest


def call(capsys: pytest.CaptureFixture[str], *args: object) -> tuple[int, str, str]:
    code = run(["space", *map(str, args)])
    told = capsys.readouterr()
    return code, told.out, told.err


def test_primitives_have_other_blocks_in_the_other_numbering(capsys: pytest.CaptureFixture[str]) -> None:
    digests = []
    for numbering in ("ssprofile", "aw_nas"):
        code, out, _ = call(capsys, "primitives", "--numbering", numbering, "--json")
        assert code == 0
        digests.append({one["name"]: one["digest"] for one in json.loads(out)["primitives"]})
    alike = {name for name in digests[0] if digests[0][name] == digests[1][name]}
    assert len(digests[0]) == 31
    assert alike == {"Mobileblock_0", *(f"Resblock_{k}" for k in range(3)), *(f"VGGblock_{k}" for k in range(13))}


def test_toolchains_say_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capsys, "toolchains", "--json")
    assert code == 0
    told = {one["name"]: one for one in json.loads(out)["toolchains"]}
    assert told["quark-xint8"]["measured_by"] == "onnxruntime"
    assert all(one["hint"] for row in told.values() for one in row["missing"])


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["--set", "arch=/x"], "TOOLCHAIN.KEY=VALUE"),
        (["--set", "quark-xint8.packages"], "TOOLCHAIN.KEY=VALUE"),
        (["--set", "quark-xint8.packages=/x"], "needs --toolchain quark-xint8"),
        (
            ["--toolchain", "openvino-int8", "--set", "openvino-int8.images=1", "--set", "openvino-int8.images=2"],
            "twice",
        ),
        (["--no-latency", "--toolchain", "onnxruntime"], "contradict"),
        (["--no-latency", "--command", "dpu-server:url=http://b/"], "contradict"),
    ],
)
def test_options_that_cannot_be_meant_are_told(given: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = call(capsys, "profile", "space.yaml", "--profile-dir", "out", *given)
    assert code == 2
    assert told in err


def test_settings_are_of_their_toolchain(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[TrainRequest, dict[str, object]]] = []

    def kept(config: Path, out: Path, asked: TrainRequest, **options: object) -> NoReturn:
        calls.append((asked, options))
        raise UsageError("not now", hint="")

    monkeypatch.setattr(job, "profile_space", kept)
    for words in (
        "--toolchain openvino-int8 --toolchain quark-xint8 --set openvino-int8.preset=a=b"
        " --set quark-xint8.packages=/q",
        "--runtime openvino --accuracy none",
        "--command dpu-server:url=http://b/",
    ):
        assert run(["space", "profile", "c.yaml", "--profile-dir", "p", *words.split()]) == 2
    (_, named), (_, runtime), (asked, sent) = calls
    assert named["toolchains"] == {"openvino-int8": {"preset": "a=b"}, "quark-xint8": {"packages": "/q"}}
    assert (runtime["toolchains"], runtime["method"]) == ({"openvino": {}}, None)
    assert (sent["toolchains"], sent["method"]) == ({"onnxruntime": {}}, "balanced")
    assert [one.choices["url"] for one in asked.request.settings.commands] == [("http://b/",)]
