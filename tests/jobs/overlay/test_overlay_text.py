"""The reports of overlays: golden texts, any width, what the answer claims, and names that want to steer a terminal."""

from __future__ import annotations

import io
from typing import Any

import pytest
from tests.report.tuning_kit import HOSTILE, LATE, analyze, chosen, collect, failure, proved, summary, text_of, words_of

from gnomon.jobs.documents import read_document
from gnomon.jobs.overlay.report import analyze_report, collect_report, collected_report
from gnomon.report.page import Page


def test_devices_with_hostile_keys_have_their_rows() -> None:
    times = {HOSTILE: 2e-5, "b": 3e-5}
    layer = chosen("conv", 1, 1.0, times, {HOSTILE: 1e-5, "b": 3e-5})
    document = analyze(devices=list(times), hosts=[HOSTILE], layers=[layer], own={HOSTILE: {"M": 1, "worst_regret": 1}})
    document["total"]["worst_regret"] = layer["worst_regret"]
    told = text_of(analyze_report, document)
    assert all(c == "\n" or c.isprintable() for c in told)
    assert "at worst 100 % (layer conv on a\\x1b[31m" in " ".join(told.split())


def one_layer(times: dict[str, float], theta: dict[str, float], **changes: Any) -> dict[str, Any]:
    layer = chosen("conv3", 1, 1.0, times, theta)
    total = {"M": layer["M"], "mean_regret": layer["mean_regret"], "worst_regret": layer["worst_regret"]}
    found = analyze(devices=list(times), layers=[layer], network=[], undecided=[])
    return {**found, "total": {**found["total"], **total, "layers": 1}, **changes}


@pytest.mark.parametrize(
    ("times", "told"),
    [
        (
            {"phone": 1.045, "tablet": 1.0},
            "One configuration per layer for 2 devices: the network loses 2.2 % on average compared with each device's "
            "own best, and a layer at worst 4.5 % (layer conv3 on phone).",
        ),
        ({"phone": 1.0, "tablet": 1.0}, "for 2 devices: each choice is the fastest configuration on every device."),
        ({"phone": 1.0}, "One configuration per layer for 1 device: each choice is the fastest configuration."),
    ],
)
def test_the_answer_says_what_is_lost(times: dict[str, float], told: str) -> None:
    assert told in words_of(analyze_report, one_layer(times, dict.fromkeys(times, 1.0)))


def test_nothing_decided_says_so_and_why() -> None:
    document = analyze(layers=[], network=[], own={}, portfolio=None)
    told = words_of(analyze_report, document)
    assert told.startswith("No layer could be decided for 2 devices.")
    assert "Layer odd has no choice: no configuration has a time on every device." in told
    assert "Layers with several configurations" not in told


def proof(overlay_s: float, own_s: float, spread: float | None, **changes: Any) -> dict[str, Any]:
    return {**analyze(), "network": proved("phone", {"overlay": overlay_s, "own:phone": own_s}, spread), **changes}


@pytest.mark.parametrize(
    ("overlay_s", "spread", "told"),
    [
        (1.05e-3, 0.01, "Measured on 1 device, the whole network takes 5.0 % longer than its own best on phone."),
        (
            1.01e-3,
            0.02,
            "the whole network is undecided against the own best on phone, where the 95 %",
        ),
        (
            1.5e-3,
            0.1,
            "undecided against the own best on phone, where the 95 % interval contains 0, is wider than 20 points or",
        ),
        (0.9e-3, 0.01, "the whole network takes 10.0 % less than its own best on phone."),
        (
            1.2e-3,
            None,
            "is undecided against the own best on phone, where the 95 % interval contains 0, is wider",
        ),
    ],
)
def test_the_proof_follows_the_interval_of_the_ratio(overlay_s: float, spread: float | None, told: str) -> None:
    assert told in words_of(analyze_report, proof(overlay_s, 1e-3, spread))


def test_what_is_paired_decides_and_not_the_times_by_themselves() -> None:
    document = proof(1.02e-3, 1e-3, 0.005)
    for row in document["network"]:
        row["time"] = summary(row["time"]["median_s"], 0.3)
    told = words_of(analyze_report, document)
    assert "the whole network takes 2.0 % longer than its own best on phone." in told
    assert "2.0 % [1.5, 2.5]" in told


def test_the_proof_of_several_devices_is_the_mean_and_the_worst() -> None:
    rows = proved("phone", {"overlay": 6.12e-4, "own:phone": 6e-4}, 0.005)
    rows += proved("tablet", {"overlay": 4.9e-4, "own:tablet": 4.5e-4})
    told = words_of(analyze_report, analyze(network=rows))
    assert (
        "Measured on 2 devices, the whole network takes 5.4 % longer than each device's own best on average: it "
        "takes 8.9 % longer than its own best on tablet and takes 2.0 % longer than its own best on phone." in told
    )


def test_where_a_device_is_undecided_there_is_no_mean() -> None:
    told = words_of(analyze_report, analyze())
    assert (
        "Measured on 2 devices, the whole network takes 8.9 % longer than its own best on tablet; undecided against "
        "the own best on phone, where" in told
    )
    assert "on average; " not in told.partition("The whole network")[0].partition("Measured on")[2]
    assert "the tuned network is 18.6 to 19.0 times as fast as untuned" in told
    assert "phone, the best of tablet: failed, error at build: no linker." in told


def test_a_device_without_a_proof_is_named_beside_one_that_has_one() -> None:
    rows = proved("phone", {"overlay": 1.04e-3, "own:phone": 1e-3}, 0.05)
    rows += proved("tablet", {"overlay": 1.01e-3, "own:tablet": 1e-3}, 0.005)
    told = words_of(analyze_report, {**analyze(), "network": rows})
    assert "1.0 % longer than its own best on tablet; undecided against the own best on phone, where the 95" in told


def test_a_network_without_its_own_best_and_wrong_outputs() -> None:
    document = proof(1e-3, 1e-3, 0.01)
    document["network"] = [{**document["network"][0], "max_error": 0.4, "to_own": None}]
    told = words_of(analyze_report, document)
    assert "but no device's own best was measured with it." in told
    assert "phone, the overlay: measured, but its outputs are off by up to 4.0e-01" in told
    assert "Do not deploy the network." in told


def test_everything_failed_on_the_devices() -> None:
    rows = proved("phone", dict.fromkeys(("overlay", "own:phone", "untuned")), dead=failure("run", "crash", ""))
    told = words_of(analyze_report, analyze(network=rows))
    assert "phone, its own best: failed, crash at run." in told


def test_many_devices_and_layers_are_cut() -> None:
    devices = [f"device{k}" for k in range(100)]
    times = {device: 1.0 + k / 100 for k, device in enumerate(devices)}
    layers = [chosen(f"conv{k}", 1, 0.01, times, dict.fromkeys(devices, 1.0)) for k in range(60)]
    rows = [row for d in devices for row in proved(d, {"overlay": times[d], f"own:{d}": 1.0})]
    own = {device: {"M": 1.0, "worst_regret": 1.0} for device in devices}
    told = words_of(analyze_report, analyze(devices=devices, hosts=devices, layers=layers, network=rows, own=own))
    assert "and 20 more layers with 20 % of the time" in told
    assert "and 84 more devices, where it loses less" in told
    assert "and 84 more devices, which lose less" in told
    assert "and 84 more, which lose more" in told
    assert len(told) < 30_000
    assert "device99 1.99 s" in told


def test_a_portfolio_says_what_is_proved() -> None:
    document = analyze()
    assert "the network loses 0.5 % on average; proven optimal." in words_of(analyze_report, document)
    document["portfolio"]["layers"][0].update(proven=False)
    told = words_of(analyze_report, document)
    assert "not proven optimal for fused_conv2d." in told


def test_what_was_left_out_is_counted() -> None:
    document = analyze()
    layer = document["layers"][0]
    layer["incomplete"] = [{"configuration": str(k), "host": "x", "missing": ["phone", "tv"]} for k in range(3)]
    late = {**LATE, "message": "slow"}
    layer["failed"] = [{"configuration": str(k), "device": "tv", **late} for k in range(4)]
    document["undecided"] = [{**document["undecided"][0], "name": f"odd{k}", "reason": "none"} for k in range(12)]
    told = words_of(analyze_report, document)
    assert "4 configurations are not ranked, because times are missing on phone (3), tv (3) and tablet (1), in " in told
    assert "On tv, in fused_dense, 4 times: hang at run: slow." in told
    assert "4 more layers have no choice." in told


def test_the_least_worst_loss_is_told_beside_that_of_least_m() -> None:
    document = analyze()
    told = words_of(analyze_report, document)
    assert "fused_conv2d 3.0 % 4.5 % 3.0 % 2.5 % phone" in told
    for layer in document["layers"]:
        layer["minimax"] = None
    told = words_of(analyze_report, document)
    assert "No configuration loses less on its worst device (minimax)" in told


def test_who_cannot_measure_again_is_not_sent_to_do_it() -> None:
    command = "again gnomon overlay collect --close my/records/a.json b.json --device phone --device tablet --out my"
    assert command in words_of(analyze_report, analyze(logs=["my/records/a.json", "b.json"]))
    told = words_of(analyze_report, analyze(replayable=False))
    assert "1 choice is not sure: fused_dense." in told
    assert "--close" not in told


def test_layers_without_any_bound_or_confidence_have_no_empty_columns() -> None:
    document = analyze()
    for layer in document["layers"]:
        layer.update(confidence=None, M_low=None, M_high=None)
    told = text_of(analyze_report, document, 120)
    assert "95 % interval  mean" not in told
    assert "  sure  " not in told
    assert "Sure:" not in told


def test_collecting_says_how_well_configurations_travel() -> None:
    told = words_of(collect_report, collect())
    assert "30.0 us 34.0 us 13.3 %" in told and "25.0 us 25.0 us 0.0 %" in told


def test_collecting_nothing_at_all() -> None:
    told = words_of(collect_report, collect(layers=[], failures=[]))
    assert told.startswith("0 configurations found on phone, tried on tablet: 0 measured, none failed, in 1 min 35 s.")


def test_layers_without_a_choice_have_no_row_and_do_not_dilute_the_answer() -> None:
    document = analyze()
    alone = {**document["layers"][0], "name": "pool", "configurations": 1, "share": 0.5, "M": 0.0}
    alone |= {"mean_regret": 0.0, "worst_regret": 0.0, "regret": dict.fromkeys(alone["regret"], 0.0)}
    document["layers"] = [alone, *document["layers"]]
    document["portfolio"]["layers"] += [{**document["portfolio"]["layers"][0], "name": "pool"}]
    told = words_of(analyze_report, document)
    assert "pool" not in told
    assert "1 more layer has only one configuration, with 50 % of the time." in told
    assert "layers with several configurations (2 of 3 layers," in told
    document["layers"] = [alone]
    assert "Layers with several configurations" not in words_of(analyze_report, document)


def test_layers_with_nothing_to_measure_have_no_row() -> None:
    document = collect()
    document["layers"][1] = {**document["layers"][1], "configurations": 0, "measured": 0, "failed": 0}
    told = words_of(collect_report, document)
    assert "fused_dense" not in told
    assert "1 more layer has no configuration to measure." in told


def test_the_next_step_names_all_files() -> None:
    documents = [collect(), collect(source="b.json", records="b_a.json"), collect(records="c d.json")]
    logs = ["my phone.mobile.float32.json", "b.json"]
    whole = {"format": "gnomon-overlay-collected", "version": 1, "logs": logs, "collected": documents}
    assert text_of(collected_report, whole).splitlines()[-1].split(maxsplit=1)[1] == (
        "gnomon overlay analyze 'my phone.mobile.float32.json' b.json tablet_phone.mobile.float32.json b_a.json "
        "'c d.json'"
    )
    there = {**whole, "collected": [collect(records="/my demo/records/b_a.json")]}
    assert text_of(collected_report, there).splitlines()[-1].endswith("/b_a.json' --out '/my demo'")
    assert words_of(collected_report, {**whole, "collected": []}).startswith("Every choice is sure")


def test_a_brief_report_says_that_nothing_was_compiled() -> None:
    file = io.StringIO()
    notes = ["No network was compiled: it is not here. Give --out.", "The times are old.", "So are the logs.", "Last."]
    analyze_report(read_document(analyze(notes=notes)), Page(file, width=120, brief=True))
    assert "No network was compiled: it is not here. Give --out." in file.getvalue()
    assert "So are the logs." in file.getvalue() and "Last." not in file.getvalue()


def test_a_device_that_is_not_compared_is_named() -> None:
    told = words_of(analyze_report, analyze(hosts=["phone", "tablet", "tv"]))
    assert "Not compared: tv, failed or not timed in some layer." in told
