"""Accuracies by weight sharing: one training of all networks of a family together, then each with its part of it."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path

from gnomon.jobs.space_folder import AccuracyRow, writing
from gnomon.jobs.space_methods import Budget
from gnomon.jobs.space_study import Family, Network
from gnomon.jobs.space_training import Trainer, done_row
from gnomon.jobs.space_workers import run_all
from gnomon.jobs.steps import Steps
from gnomon.spaces.weights import State, shared
from gnomon.training.state_files import read_state, write_state
from gnomon.training.supernet import Supernet, SupernetJob
from gnomon.training.worker import Evaluated, PathJob, run_path, run_supernet

METHOD = "supernet"


def supernet_rows(trainer: Trainer, budget: Budget) -> list[AccuracyRow]:
    """Train a supernet of each family, and evaluate its single swaps with it; what the journal has is not done again.

    A family whose supernet fails has a row for each network that says so.
    """
    steps = Steps("networks evaluated", trainer.watch)
    families = list(trainer.study.families.values())
    steps.expect(sum(len(family.swaps()) for family in families))
    found: list[AccuracyRow] = []
    for family in families:
        known = {n.id: done_row(trainer.folder, _key(budget, n)) for n in family.swaps()}
        todo = [n for n in family.swaps() if known[n.id] is None]
        found += [row for row in known.values() if row is not None]
        steps.step(len(family.swaps()) - len(todo))
        if todo:
            found += _evaluated(trainer, budget, family, todo, steps)
    return found


def _evaluated(
    trainer: Trainer, budget: Budget, family: Family, todo: list[Network], steps: Steps
) -> list[AccuracyRow]:
    state, reason = _state(trainer, budget, family)
    rows = []
    if state is None:
        for network in todo:
            rows.append(_row(budget, network, reason=reason))
            trainer.folder.add(rows[-1])
            steps.step(1)
        return rows
    jobs = {}
    for network in todo:
        tagged = trainer.study.tagged(network)
        job = PathJob(
            key=network.id,
            tagged=tagged,
            pool=shared(state, tagged),
            data=trainer.data,
            seed=budget.seed,
            device=trainer.device,
        )
        jobs[network.id] = (job,)
    by_id = {network.id: network for network in todo}
    for key, done in run_all(trainer.workers, trainer.cluster, run_path, jobs):
        if isinstance(done, Evaluated) and done.correct is not None:
            share, images = float(done.correct.mean()), len(done.correct)
            row = _row(budget, by_id[key], validation=share, images=images)
        else:
            failure = done.failure if isinstance(done, Evaluated) else done
            row = _row(budget, by_id[key], reason=f"{failure.kind}: {failure.message}" if failure else "")
        trainer.folder.add(row)
        rows.append(row)
        steps.step(1)
    return rows


def _state(trainer: Trainer, budget: Budget, family: Family) -> tuple[State | None, str]:
    """The weights of a family's supernet, trained unless they are there; None and the reason where it failed."""
    where = trainer.folder.path / "checkpoints" / METHOD
    with writing(trainer.folder.path):
        where.mkdir(parents=True, exist_ok=True)
    path = where / f"{family.name}-{budget.recipe.epochs}-{budget.seed}.state_dict.pth"
    if path.exists():
        return read_state(path), ""
    job = SupernetJob(
        spaces=(family.space,), recipe=budget.recipe, data=trainer.data, seed=budget.seed, device=trainer.device
    )
    name = hashlib.sha256(f"{METHOD}/{family.name}/{budget.recipe.epochs}/{budget.seed}".encode()).hexdigest()[:24]
    partial = None if trainer.cluster else str((where.parent / "partial" / f"{name}.pt").absolute())
    trainer.tell(f"training the supernet of {family.name}: {budget.recipe.epochs} epochs")
    for _, done in run_all(1, trainer.cluster, run_supernet, {family.name: (job, partial)}):
        if not isinstance(done, Supernet):
            return None, f"{done.kind}: {done.message}"
        if done.state is None or done.failure is not None:
            return None, f"{done.failure.kind}: {done.failure.message}" if done.failure else "it has no weights"
        with writing(trainer.folder.path):
            write_state(path, done.state)
        if partial:
            Path(partial).unlink(missing_ok=True)
        return done.state, ""
    return None, "nothing came back"


def _key(budget: Budget, network: Network) -> str:
    return f"{METHOD}/path/{budget.recipe.epochs}/{budget.seed}/{network.id}"


def _row(
    budget: Budget, network: Network, *, validation: float | None = None, images: int = 0, reason: str = ""
) -> AccuracyRow:
    return AccuracyRow(
        key=_key(budget, network),
        network=network.id,
        primitives=network.primitives,
        method=METHOD,
        stage="path",
        seed=budget.seed,
        epochs=budget.recipe.epochs,
        validation=validation,
        images=images,
        at_s=time.time(),
        reason=reason,
    )
