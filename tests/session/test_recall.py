"""What a lab found, kept with its campaign: which campaign is recalled, and that it comes back as it was."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gnomon.core.sample import FINISHED, Campaign, Context, Event, Failure
from gnomon.devices.address import Address
from gnomon.devices.base import DeviceInfo
from gnomon.devices.config import DeviceConfig
from gnomon.errors import MeasurementError
from gnomon.runtimes.base import Probe, Support
from gnomon.session import replay as recall
from gnomon.session.model_session import options_of
from gnomon.session.request import ModelRequest
from gnomon.store.sqlite import SqliteStore

BOARD = DeviceConfig(name="board", address=Address(kind="ssh", user="me", host="10.0.0.7", port=None))
REQUEST = ModelRequest(model=Path("m.onnx"), device=BOARD)
INFO = DeviceInfo(name="board", fingerprint={"kernel": "6.1"}, python="/usr/bin/python3")
DETAILS: Any = {"build": {"threads": [1, 2]}}
PROBES = {"onnxruntime": Probe(version="1.23", backends=("cpu",), details=DETAILS)}
FAILURE = Failure(stage="probe", kind="crash", transient=False, message="crashed with SIGSEGV")
SUPPORTS = {"onnxruntime": Support(operators={"cpu": frozenset({2, 0, 1})}, failures={"gpu": FAILURE})}
OPTIONS: Mapping[str, Any] = {"threads": 1, "backends": [], "precisions": [], "feeds": {}}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    with SqliteStore.open(tmp_path / "record.sqlite") as opened:
        yield opened


def campaign(
    store: SqliteStore,
    name: str,
    *,
    finished: bool = True,
    note: Mapping[str, Any] | None = None,
    kind: str = "place",
    digest: str = "d",
    options: Mapping[str, Any] = OPTIONS,
    request: ModelRequest = REQUEST,
    runtimes: tuple[str, ...] = ("onnxruntime",),
) -> Campaign:
    """A campaign in the record, with its lab's note unless `note` is empty; later ones are newer."""
    count = len(name) + 1e9
    context = Context(
        device=INFO.fingerprint,
        versions={"onnxruntime": "1.23"},
        model_digest=digest,
        model_name="m.onnx",
        options=options,
        seed=0,
        gnomon_version="0.1.0",
    )
    made = Campaign(id=name, kind=kind, key=f"key of {name}", context=context, started_at_s=count)
    store.open_campaign(made)
    found = DeviceInfo(name=request.device.name, fingerprint=INFO.fingerprint, python=INFO.python)
    probed = dict.fromkeys(runtimes, PROBES["onnxruntime"])
    data = recall.noted(request, found, probed, SUPPORTS) if note is None else note
    if data:
        store.append(name, Event(name=recall.NOTE, at_s=count, data=data))
    if finished:
        store.append(name, Event(name=FINISHED, at_s=count, data={}))
    return made


def latest(
    store: SqliteStore,
    request: ModelRequest = REQUEST,
    runtimes: tuple[str, ...] = ("onnxruntime", "mnn"),
    **options: Any,
) -> recall.Recalled:
    return recall.latest(store, request, "place", "d", {**OPTIONS, **options}, runtimes)


def test_it_comes_back_as_it_was(store: SqliteStore) -> None:
    made = campaign(store, "a")
    found = latest(store)
    assert found.campaign == made
    assert found.device == INFO
    assert found.probes == PROBES
    assert found.supports == SUPPORTS


def test_the_newest_is_taken_but_a_finished_one_before_an_interrupted_one(store: SqliteStore) -> None:
    campaign(store, "a", finished=False)
    assert latest(store).campaign.id == "a"  # better than nothing
    campaign(store, "aa")
    campaign(store, "aaa")
    campaign(store, "aaaa", finished=False)  # stopped after a second, it may hold no run at all
    campaign(store, "aaaaa", note={})  # by an older gnomon
    assert latest(store).campaign.id == "aaa"


def test_the_newest_that_measured_most_of_the_wished_runtimes_is_taken(store: SqliteStore) -> None:
    campaign(store, "a", runtimes=("onnxruntime", "mnn"))
    campaign(store, "aa", runtimes=("onnxruntime", "ncnn"))
    campaign(store, "aaa", runtimes=("mnn",))
    campaign(store, "aaaa", runtimes=("openvino",), finished=False)
    requested = {
        ("onnxruntime",): "aa",
        ("mnn",): "aaa",
        ("onnxruntime", "mnn"): "a",
        ("openvino",): "aaaa",
        ("ncnn", "tvm"): "aa",  # tvm was wished there too, and was not installed
        ("tvm",): "aaa",  # of which the lab says that tvm was not measured there
    }
    assert {names: latest(store, runtimes=names).campaign.id for names in requested} == requested


def test_a_device_is_known_by_its_name_and_by_its_address(store: SqliteStore) -> None:
    campaign(store, "a")
    by_address = DeviceConfig(name="ssh://me@10.0.0.7", address=BOARD.address)
    assert latest(store, replace(REQUEST, device=by_address)).campaign.id == "a"


PHONE = DeviceConfig(name="phone", address=Address(kind="ssh", user="me", host="10.0.0.8", port=None))


@pytest.mark.parametrize(
    ("device", "options", "message"),
    [
        (PHONE, {}, r"(?m)on phone with these options; it was measured on board$"),
        (replace(PHONE, name="board"), {}, r"(?m)measured on board when its address was ssh://me@10\.0\.0\.7$"),
        (BOARD, {"threads": 4}, r"(?m)it was measured on board with other options$"),
        (BOARD, {"feeds": {"x": "0" * 64}}, r"(?m)it was measured on board with other options$"),
        (BOARD, {"shapes": {"x": [1, 8]}}, r"(?m)it was measured on board with other options$"),
        (BOARD, {"precisions": ["f16"]}, r"(?m)it was measured on board with other options$"),
    ],
)
def test_another_device_and_other_options_are_told(
    store: SqliteStore, device: DeviceConfig, options: dict[str, Any], message: str
) -> None:
    campaign(store, "a")
    with pytest.raises(MeasurementError, match=message) as refused:
        latest(store, replace(REQUEST, device=device), **options)
    assert "--no-profile" in refused.value.hint


@pytest.mark.parametrize("setting", [{"pin": (4, 5)}, {"governor": "performance"}, {"environment": {"OMP": "s3cret"}}])
def test_a_device_that_was_set_otherwise_is_told(store: SqliteStore, setting: dict[str, Any]) -> None:
    other = replace(REQUEST, device=replace(BOARD, **setting))
    campaign(store, "a")
    with pytest.raises(MeasurementError, match="board with other settings"):
        latest(store, other)
    campaign(store, "aa", request=other)
    assert latest(store, other).campaign.id == "aa"
    assert latest(store).campaign.id == "a"
    assert "s3cret" not in json.dumps(recall.noted(other, INFO, PROBES, SUPPORTS))


@pytest.mark.parametrize(
    ("measured", "wanted", "answers"),
    [
        ([], ["cpu"], True),  # all there are were measured
        (["cpu", "ruy"], ["ruy"], True),
        (["cpu", "ruy"], ["ruy", "cpu"], True),
        (["cpu", "ruy"], ["cpu", "gpu"], False),
        (["cpu"], [], False),  # there may be more
    ],
)
def test_fewer_backends_but_not_more(store: SqliteStore, measured: list[str], wanted: list[str], answers: bool) -> None:
    campaign(store, "a", options={**OPTIONS, "backends": measured})
    if answers:
        assert latest(store, backends=wanted).campaign.id == "a"
    else:
        with pytest.raises(MeasurementError, match="with other options"):
            latest(store, backends=wanted)


def test_precisions_are_those_that_were_asked_for(store: SqliteStore) -> None:
    campaign(store, "a", options={**OPTIONS, "precisions": ["bf16"]})
    campaign(store, "aa")
    assert latest(store).campaign.id == "aa"
    assert latest(store, precisions=["bf16"]).campaign.id == "a"


def test_nothing_at_all(store: SqliteStore) -> None:
    campaign(store, "a", digest="of another model")
    campaign(store, "aa", kind="profile")
    campaign(store, "aaa", note={})
    with pytest.raises(MeasurementError, match=r"(?m)these options$"):
        latest(store)


def test_the_last_note_of_a_campaign_that_was_taken_up_again_counts(store: SqliteStore) -> None:
    campaign(store, "a")
    again = recall.noted(REQUEST, INFO, PROBES, {"onnxruntime": Support(operators={"cpu": frozenset({0})})})
    store.append("a", Event(name=recall.NOTE, at_s=2e9, data=again))
    assert latest(store).supports["onnxruntime"].operators == {"cpu": frozenset({0})}


def test_a_feed_of_any_size_is_known_by_its_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    feed = tmp_path / "x.npy"
    feed.write_bytes(b"abc")
    known = hashlib.sha256(b"abc").hexdigest()
    monkeypatch.setattr(Path, "read_bytes", lambda path: pytest.fail("it is read as a whole"))
    assert options_of(ModelRequest(model=tmp_path / "m.onnx", feeds={"x": feed}))["feeds"] == {"x": known}
