"""Estimators of a space's nets: from a table and whole nets, on disk and back; what is given by mistake is told."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.jobs.estimator.estimator_kit import OVERHEAD_S, kit, made_table, measured, price_s, save, small_space

from gnomon.errors import GnomonError, ProblemError, UsageError
from gnomon.estimate.columns import Unknown
from gnomon.estimate.export import export_estimator
from gnomon.formats.nets_csv import NetRow
from gnomon.jobs.estimator import job as estimators
from gnomon.jobs.estimator.evaluation import evaluate
from gnomon.jobs.estimator.job import (
    REFERENCE,
    SpaceEstimator,
    described,
    described_space,
    fit_estimator,
    load_estimator,
    read_samples,
    save_estimator,
    space_document,
    suggest_nets,
)
from gnomon.jobs.table.folder import write_table
from gnomon.spaces import BlockSpace, Choice, known_spaces
from gnomon.spaces.fuse import rules
from gnomon.spaces.loading import draw, load_space


def fitted(folder: Path, count: int = 12) -> SpaceEstimator:
    found, _, _ = kit(folder)
    return fit_estimator(found, measured(found, count))


def test_without_samples_it_is_the_tables_sum(tmp_path: Path) -> None:
    found, _, _ = kit(tmp_path)
    made = fit_estimator(found, ())
    nets = draw(found.tables, 40, seed=3)
    prices = np.array([price_s(unit) for unit in found.tables.units])
    np.testing.assert_allclose(made.predict(nets).mean_s, OVERHEAD_S + found.tables.counts(nets) @ prices, rtol=1e-9)


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    made, nets = fitted(tmp_path), draw(small_space().tables(rules(("Conv+Relu",))), 30, seed=5)
    save_estimator(made, tmp_path / "e.json")
    again = load_estimator(tmp_path / "e.json", f"{tmp_path}/space.py:space")
    assert again.document() == made.document()
    for name in ("mean_s", "low_s", "high_s"):
        np.testing.assert_array_equal(getattr(again.predict(nets), name), getattr(made.predict(nets), name))


def test_one_net_the_batch_and_the_quick_sums_agree(tmp_path: Path) -> None:
    made = fitted(tmp_path)
    space = made.described.space.space
    nets = draw(made.described.tables, 25, seed=2)
    mean = made.predict(nets).mean_s
    np.testing.assert_allclose(made.mean_s(nets), mean, rtol=1e-12)
    names = dict(zip((slot.name for slot in space.slots), space.names(nets[0]), strict=True))
    assert made(nets[0]) == pytest.approx(mean[0])
    assert made(names) == pytest.approx(mean[0])
    with pytest.raises(ProblemError, match="has no choice ''"):
        made({"a": "wide"})


def test_a_sum_far_below_all_samples_is_left_to_the_model(tmp_path: Path) -> None:
    made = fitted(tmp_path)
    shift = replace(made.estimator.coefficients, mean=made.estimator.coefficients.mean * np.array([-1e3] + [1.0] * 20))
    odd = replace(made, estimator=replace(made.estimator, coefficients=shift, level_s=made.estimator.level_s * 1e3))
    nets = draw(made.described.tables, 10, seed=2)
    np.testing.assert_allclose(odd.mean_s(nets), odd.predict(nets).mean_s)


def test_a_unit_that_nothing_is_known_of_is_refused_by_name_or_widens(tmp_path: Path) -> None:
    found, _, _ = kit(tmp_path, lacking=True)
    strange = [
        unit
        for unit, price in zip(found.tables.units, np.asarray(found.columns.prior_s)[1:], strict=True)
        if np.isnan(price)
    ]
    nets = draw(found.tables, 84, seed=0)
    counts = found.tables.counts(nets)
    has = counts[:, [found.tables.units.index(unit) for unit in strange]].any(axis=1)
    made = fit_estimator(found, ())
    assert len(strange) == 2
    assert made.predict(nets[~has]).mean_s.min() > 0
    with pytest.raises(ProblemError, match="there is neither a sample nor a price for") as told:
        made.predict(nets[has])
    assert any(unit.id in str(told.value) for unit in strange)
    with pytest.raises(ProblemError, match="neither a sample nor a price"):
        made.mean_s(nets[has])
    with pytest.raises(ProblemError):
        made.mean_s(nets[has], unknown="refuse")  # type: ignore[arg-type]  # by its word, as documents have it
    wide = made.predict(nets[has], unknown=Unknown.WIDEN)
    assert np.isfinite(wide.high_s).all()


def names_of(made: SpaceEstimator, net: list[int]) -> dict[str, str]:
    space = made.described.space.space
    return dict(zip((slot.name for slot in space.slots), space.names(net), strict=True))


def exported(made: SpaceEstimator) -> dict[str, Any]:
    found: dict[str, Any] = {"__name__": "exported"}
    exec(export_estimator(made.estimator, space_document(made.described)), found)  # noqa: S102 - what is tested
    return found


@pytest.mark.parametrize("space", sorted(known_spaces()))
def test_what_is_exported_counts_the_nets_of_any_shipped_space(space: str) -> None:
    found = described(None, space)
    nets = draw(found.tables, min(40, found.tables.nets()), seed=0)
    rows = found.rows(nets)
    samples = [
        NetRow(assignment=tuple(n), latency_s=1e-5 * float(r.sum())) for n, r in zip(nets.tolist(), rows, strict=True)
    ]
    made = fit_estimator(found, samples)
    alone = exported(made)
    for net, row in zip(nets.tolist(), rows, strict=True):
        given_ = names_of(made, net)
        assert alone["count"](given_) == {n: c for n, c in zip(found.columns.names, row.tolist(), strict=True) if c}
        assert alone["get_estimation"](given_) == pytest.approx(made(given_), rel=1e-9)
    net = names_of(made, nets[0].tolist())
    first = next(iter(net))
    for wrong, told in (
        ({}, "the net is empty"),
        ({**net, first: "other"}, f"the slot {first!r} has no choice 'other'"),
        ({**net, "more": "x"}, "unknown slot 'more'"),
        # Without its only slot a net is no net, but no units either.
        *([({n: choice for n, choice in net.items() if n != first}, f"no slot {first!r}")] if len(net) > 1 else []),
    ):
        with pytest.raises(KeyError, match=re.escape(told)):
            alone["get_estimation"](wrong)


def test_what_is_exported_knows_units_by_label_and_by_the_replaced_tools_uid() -> None:
    found = described(None, "mobilenetv2-cifar10")
    nets = draw(found.tables, 40, seed=0)
    times = 1e-5 * found.rows(nets).sum(axis=1)
    samples = [NetRow(assignment=tuple(n), latency_s=float(t)) for n, t in zip(nets.tolist(), times, strict=True)]
    made = fit_estimator(found, samples)
    alone = exported(made)
    by_id = alone["count"](names_of(made, nets[0].tolist()))
    for names in (alone["LABELS"], alone["UIDS"]):
        other = {names.get(unit, unit): often for unit, often in by_id.items()}
        assert other != by_id
        assert alone["get_estimation"](other) == pytest.approx(made(nets[0]), rel=1e-9)
    assert "ReLU6[][[1,32,16,16]]" in alone["UIDS"].values()


def test_suggestions_are_nets_that_are_not_given_and_the_same_each_time(tmp_path: Path) -> None:
    found, _, _ = kit(tmp_path)
    first = suggest_nets(found, 6)
    more = suggest_nets(found, 6, given=[NetRow(assignment=net) for net in first])
    assert first == suggest_nets(found, 6)
    assert len({*first, *more}) == 12
    with pytest.raises(GnomonError):
        suggest_nets(found, 100)


def test_a_space_of_one_net_has_a_suggestion_and_one_without_a_slot_none() -> None:
    block = {"relu": lambda x: x.relu()}
    one = BlockSpace(name="one", inputs=((1, 3, 8, 8),), parts=(Choice("a", block),))
    assert suggest_nets(described_space(one)) == ((0,),)
    none = BlockSpace(name="none", inputs=((1, 3, 8, 8),), parts=(lambda x: x.relu(),))
    with pytest.raises(UsageError, match="has no slot"):
        suggest_nets(described_space(none))


def test_a_large_space_is_told_of_before_its_units_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, path, name = kit(tmp_path)
    told: list[str] = []
    described(path, name, tell=told.append)
    assert told == []
    monkeypatch.setattr(estimators, "_MANY", 14)
    described(path, name, tell=told.append)
    assert told == ["the space small has 14 choices: finding their units takes a while"]


def test_suggestions_come_from_the_pool_and_know_other_devices(tmp_path: Path) -> None:
    found, _, _ = kit(tmp_path)
    pool = draw(found.tables, 9, seed=4)
    assert set(suggest_nets(found, 4, pool=pool)) < {tuple(net) for net in pool.tolist()}
    with pytest.raises(UsageError, match="10 of 9 nets cannot be chosen"):
        suggest_nets(found, 10, pool=[*pool, *pool])
    assert set(suggest_nets(found, pool=[*pool, *pool])) == {tuple(net) for net in pool.tolist()}
    assert len(suggest_nets(found)) == 10
    with pytest.raises(UsageError, match="every net of the pool is already in --given"):
        suggest_nets(found, pool=pool, given=[NetRow(assignment=tuple(net)) for net in pool.tolist()])
    others = {"a": measured(found, 12), "b": [replace(r, latency_s=2 * (r.latency_s or 0)) for r in measured(found, 9)]}
    assert len(set(suggest_nets(found, 5, others=others))) == 5
    with pytest.raises(UsageError, match="the other device 'a' has fewer than two samples"):
        suggest_nets(found, 5, others={"a": measured(found, 1)})


def test_without_a_table_units_cost_what_their_work_does(tmp_path: Path) -> None:
    """A net with units that no sample has is predicted: their work is known."""
    from gnomon.jobs.estimator.job import described_space
    from gnomon.spaces.loading import load_space
    from gnomon.spaces.work import WORK, work

    found = described_space(load_space("mobilenetv2-cifar10"))
    dense = work(found.tables.units)[:, [WORK.index("pointwise"), WORK.index("bytes")]] @ np.array([2e-11, 1e-9])
    nets = draw(found.tables, 140, seed=1)
    times = 1e-4 + found.tables.counts(nets) @ dense
    rows = [NetRow(assignment=tuple(n), latency_s=t) for n, t in zip(nets.tolist(), times.tolist(), strict=True)]
    made = fit_estimator(found, rows[:12])
    assert made.estimator.known.all()
    assert np.abs(made.predict(nets[40:]).mean_s / times[40:] - 1).max() < 0.02
    # Tables of what choices cost say the same as the columns.
    np.testing.assert_allclose(made.mean_s(nets), made.predict(nets).mean_s, rtol=1e-9)
    save_estimator(made, tmp_path / "e.json")
    again = load_estimator(tmp_path / "e.json")
    assert again.described.rules == made.described.rules == ("Conv+BatchNormalization",)
    np.testing.assert_array_equal(again.predict(nets).high_s, made.predict(nets).high_s)


def test_a_user_says_what_else_units_work(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "def work(unit):\n    return {'channels': unit.output[1]}\n\n\ndef wrong(unit):\n    return 3\n"
    )
    found = described(None, "mobilenetv2-cifar10", work=f"{tmp_path}/own.py:work")
    assert found.columns.shared is not None
    assert found.columns.shared[1:, -1].tolist() == [unit.output[1] for unit in found.tables.units]
    with pytest.raises(ProblemError, match="cannot be computed: AttributeError"):
        described(None, "mobilenetv2-cifar10", work=f"{tmp_path}/own.py:wrong")
    _, path, name = kit(tmp_path)
    with pytest.raises(UsageError, match="a table has the cost of units"):
        described(path, name, work=f"{tmp_path}/own.py:work")


def test_a_table_of_another_or_a_changed_space(tmp_path: Path) -> None:
    _, path, name = kit(tmp_path)
    with pytest.raises(UsageError, match="belongs to the space 'small', not to other") as told:
        described(path, name.replace(":space", ":other"))
    assert told.value.hint is not None and "--space" in told.value.hint
    with pytest.raises(UsageError, match="no unit of the space small"):
        described(path, name.replace(":space", ":changed"))
    with pytest.raises(UsageError, match="neither a table nor a space"):
        described(None, None)


def test_an_estimator_of_another_or_a_changed_space(tmp_path: Path) -> None:
    made, name = fitted(tmp_path), f"{tmp_path}/space.py"
    save_estimator(made, tmp_path / "e.json")
    with pytest.raises(UsageError, match="belongs to the space 'small', not to other"):
        load_estimator(tmp_path / "e.json", f"{name}:other")
    with pytest.raises(ProblemError, match="the space small no longer has the units of"):
        load_estimator(tmp_path / "e.json", f"{name}:changed")
    with pytest.raises(UsageError, match="to the space 'small', which gnomon does not know"):
        described(tmp_path / "t.table", None)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"format": "x"}, "gnomon-space-estimator"),
        ({"version": 2}, r"\$\.version: 1 expected, 2 found"),
        ({"space": 3}, r"\$\.space: a text expected, 3 found"),
        ({"rules": ["Conv+Nonsense"]}, "Nonsense"),
        ({"fitted": [[99, 0, 0, 0, 0, 0]]}, "fitted.0.: the number of a choice"),
        ({"estimator": {}}, "malformed"),
    ],
)
def test_malformed_estimators_are_told(tmp_path: Path, change: dict[str, object], told: str) -> None:
    made = fitted(tmp_path)
    (tmp_path / "e.json").write_text(json.dumps({**made.document(), **change}), encoding="utf-8")
    with pytest.raises(ProblemError, match=told):
        load_estimator(tmp_path / "e.json", f"{tmp_path}/space.py:space")


def test_a_table_and_an_estimator_remember_their_space(tmp_path: Path) -> None:
    made, name = fitted(tmp_path), f"{tmp_path}/space.py:space"
    write_table(made_table(small_space()), tmp_path / "own.table", load_space(name))
    (tmp_path / "space.py").unlink()
    found = described(tmp_path / "own.table", None)
    nets = draw(found.tables, 9, seed=1)
    save_estimator(made, tmp_path / "e.json")
    again = load_estimator(tmp_path / "e.json")
    assert np.array_equal(again.predict(nets).mean_s, made.predict(nets).mean_s)
    assert np.array_equal(found.rows(nets), made.described.rows(nets))
    older = {key: value for key, value in made.document().items() if key != "own_space"}
    (tmp_path / "e.json").write_text(json.dumps(older), encoding="utf-8")
    with pytest.raises(UsageError, match="to the space 'small', which gnomon does not know"):
        load_estimator(tmp_path / "e.json")


def test_files_that_cannot_be_read_or_written(tmp_path: Path) -> None:
    made = fitted(tmp_path)
    with pytest.raises(UsageError, match="cannot be read"):
        load_estimator(tmp_path / "none.json")
    with pytest.raises(UsageError, match="cannot be read"):
        read_samples(tmp_path / "none.csv", made.described, measured=True)
    with pytest.raises(GnomonError, match="cannot be written"):
        save_estimator(made, tmp_path / "no" / "e.json")


def test_samples_without_a_latency_are_nets_but_no_samples(tmp_path: Path) -> None:
    found, _, _ = kit(tmp_path)
    rows = [NetRow(assignment=tuple(net)) for net in draw(found.tables, 3, seed=0).tolist()]
    path = save(rows, found, tmp_path / "n.csv")
    assert len(read_samples(path, found, measured=False)) == 3
    with pytest.raises(ProblemError, match="no net with a latency"):
        read_samples(path, found, measured=True)
    mixed = save([*rows, *measured(found, 2)], found, tmp_path / "m.csv")
    assert len(read_samples(mixed, found, measured=True)) == 2


def test_spaces_with_the_same_name_and_other_rules_do_not_mix(tmp_path: Path) -> None:
    _, _, name = kit(tmp_path)
    single = made_table(small_space(), chains=())
    write_table(single, tmp_path / "single.table")
    found = described(tmp_path / "single.table", name)
    assert len(found.tables.units) > len(described(tmp_path / "t.table", name).tables.units)
    save_estimator(fit_estimator(found, ()), tmp_path / "e.json")
    again = load_estimator(tmp_path / "e.json", name)
    assert again.estimator.columns.names == found.columns.names


def beside(rows: Sequence[NetRow], reference_s: float, slower: float = 1.0) -> list[NetRow]:
    """The same nets, measured when the reference net took that long and all took longer."""
    return [
        replace(
            row,
            latency_s=slower * (row.latency_s or 0),
            low_s=slower * (row.low_s or 0),
            high_s=slower * (row.high_s or 0),
            reference_s=reference_s * slower,
        )
        for row in rows
    ]


def test_the_speed_of_the_machine_is_told_by_the_reference_net(tmp_path: Path) -> None:
    found, _, _ = kit(tmp_path)
    rows = measured(found, 40, noise=0.003)
    mixed = [*beside(rows[:14], 1e-3), *beside(rows[14:20], 1e-3, slower=1.2)]
    made = fit_estimator(found, mixed)
    assert made.context[REFERENCE] == pytest.approx(1e-3)
    assert made.estimator.weights[14:].max() < made.estimator.weights[:14].min()  # what is corrected is in doubt
    told = made.predict([row.assignment for row in rows[20:]])
    truth = np.array([row.latency_s for row in rows[20:]])
    error = np.abs(told.mean_s / truth - 1).mean()
    assert error < 0.02
    plain = fit_estimator(found, [replace(row, reference_s=None) for row in mixed])
    assert REFERENCE not in plain.context
    assert np.abs(plain.mean_s([row.assignment for row in rows[20:]]) / truth - 1).mean() > 1.3 * error


def test_nets_of_a_slower_hour_are_compared_at_the_speed_of_the_fit(tmp_path: Path) -> None:
    found, _, name = kit(tmp_path)
    rows = measured(found, 40, noise=0.003)
    made = fit_estimator(found, beside(rows[:20], 1e-3))
    save_estimator(made, tmp_path / "e.json")
    again = load_estimator(tmp_path / "e.json", name)
    assert evaluate(again, rows[20:]).scores.mean_error < 0.02
    later = evaluate(again, beside(rows[20:], 1e-3, slower=1.2))
    assert later.scores.mean_error < 0.03
    assert "the reference net took 20.0% more time" in later.how
    assert "reference" not in evaluate(again, beside(rows[20:], 1e-3)).how
    with pytest.raises(UsageError, match=r"the reference net took 0\.002 s next to these nets, but 0\.001 s") as other:
        evaluate(again, beside(rows[20:], 1e-3, slower=2.0))
    assert "another device" in other.value.hint
