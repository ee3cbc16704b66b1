"""The decision space of `pareto`: slots of operators over backends, the configurations, and options of the runtime.

Assignments are priced by whole runs, each in one fresh process.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gnomon.core.graph import By, Grouping, grouped
from gnomon.core.sample import Failure
from gnomon.core.space import Slot, Space
from gnomon.errors import ProblemError, UsageError
from gnomon.formats.onert.operators import ir_opcode
from gnomon.jobs.place.inside import InsidePlacer
from gnomon.measure.campaign import Measured
from gnomon.measure.effort import Clock, Effort, cpu_tells
from gnomon.measure.energy import ENERGY, untold
from gnomon.report.plain import untaken
from gnomon.runtimes.tunings import THREADS, Tuning, tuned, tunings
from gnomon.search.base import Assignment, Cost, Evaluation
from gnomon.search.hlps import Coarse
from gnomon.search.hlps import grouped as by_label
from gnomon.session.contender import Contender, choose_clock
from gnomon.session.model_session import ModelSession
from gnomon.session.objectives import GOALS, LATENCY, MEMORY, Goal, cost_of
from gnomon.session.targets import Missing, Target, describe

CONFIGURATION = "configuration"
"""The name of the slot for the configuration, if there are several configurations."""

_CONVERSIONS = {"precision"}
"""Options whose values are separate configurations, which are requested before the device is inspected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionSpace:
    """The choices: slots of operators (none for a runtime with one backend), then configuration and options.

    `targets` are the choices of the configuration, which has a slot only if there are several. `options` are the
    tunings that have a slot or a fixed value, with their values. `kinds` are the operators' types, as the runtime calls
    them. Codes are those of `published`, with the slots of operators as the least significant digits.
    """

    space: Space
    grouping: Grouping | None
    by: By
    backends: tuple[str, ...]
    kinds: tuple[str, ...]
    targets: tuple[Target, ...]
    options: Mapping[str, tuple[str, ...]]

    @property
    def operator_slots(self) -> int:
        """The number of slots of operators, which come first."""
        return len(self.grouping.groups) if self.grouping else 0

    @property
    def parallel(self) -> bool:
        """Return True if some choice lets several threads work, so that CPU time is not the time of a call."""
        return any(self._parallel(name, value) for name, values in self.options.items() for value in values)

    def threaded(self, assignment: Assignment, threads: int) -> bool:
        """Return True if several threads work on an assignment; `threads` is their number if no setting chooses one."""
        chosen = self._values(assignment)
        if "threads" not in chosen and threads != 1:
            return True
        return any(self._parallel(name, value) for name, value in chosen.items())

    def _parallel(self, name: str, value: str) -> bool:
        """Return True if this value of a setting lets several threads work."""
        alone = {"threads": "1", "executor": "Linear"}
        return tunings(self.targets[0].runtime)[name].parallel and value != alone.get(name)

    def coarse(self) -> Coarse | None:
        """The space by operator type, which is searched before this finer space; None if it would not be coarser."""
        if self.grouping is None or self.by == "type":
            return None
        labels = [f"type {self.kinds[group.operators[0]]}" for group in self.grouping.groups]
        return space_by_type(self.space, [*labels, *(slot.name for slot in self.space.slots[self.operator_slots :])])

    @property
    def published(self) -> Space:
        """The space of the codes that are shown: pareto_profiler's space, in which all backends are choices of each
        slot of operators.
        """
        own = self.space.slots[: self.operator_slots]
        wide = [Slot(slot.name, self.backends) for slot in own]
        return Space((*wide, *self.space.slots[self.operator_slots :]))

    def code(self, assignment: Assignment) -> int:
        """The published code of an assignment."""
        published = self.published
        return published.encode(published.indices(self.space.names(assignment)))

    def chosen_target(self, assignment: Assignment) -> Target:
        """The target of an assignment, with its configuration tuned."""
        target = self.targets[self._configuration(assignment)]
        return replace(target, configuration=tuned(target.runtime, target.configuration, self._values(assignment)))

    def _configuration(self, assignment: Assignment) -> int:
        """The index in `targets` of the target of an assignment."""
        return assignment[self.operator_slots] if len(self.targets) > 1 else 0

    def _values(self, assignment: Assignment) -> dict[str, str]:
        """The value of each option, in the order of the options."""
        names = self.space.names(assignment)[self.operator_slots + (len(self.targets) > 1) :]
        several = [name for name, values in self.options.items() if len(values) > 1]
        chosen = dict(zip(several, names, strict=True))
        return {name: chosen.get(name, values[0]) for name, values in self.options.items()}

    def contender(self, session: ModelSession, assignment: Assignment) -> Contender:
        """The contender of an assignment, to be measured or deployed."""
        placer = InsidePlacer(session, self.chosen_target(assignment))
        chosen = self.space.names(assignment)[: self.operator_slots]
        if self.grouping is None:
            backends = [0] * len(placer.graph.operators)
        else:
            backends = [placer.backends.index(chosen[slot]) for slot in self.grouping.slot_of]
        return placer.contender("plan", self.label(assignment), backends, None)

    def singles(self) -> tuple[Assignment, ...]:
        """For each backend, the assignment in which each slot of operators takes it if possible, or else its own first
        choice.
        """
        own = self.space.slots[: self.operator_slots]
        assignments = (tuple(s.choices.index(b) if b in s.choices else 0 for s in own) for b in self.backends)
        return tuple(dict.fromkeys(assignments)) if own else ()

    def single(self, assignment: Assignment) -> Hashable | None:
        """A key for the single backend of an assignment in its configuration, whatever the options; None for a mix."""
        own = tuple(assignment[: self.operator_slots])
        return None if own and own not in self.singles() else (own, self._configuration(assignment))

    def label(self, assignment: Assignment) -> str:
        """The choices in words: the backend of most operators first, then the other backends, then the rest."""
        names = self.space.names(assignment)
        slots = self.space.slots
        own, rest = names[: self.operator_slots], names[self.operator_slots :]
        words: list[str] = []
        if own and self.grouping is not None:
            counts = dict.fromkeys(own, 0)
            for group, backend in zip(self.grouping.groups, own, strict=True):
                counts[backend] += len(group.operators)
            words = mix_in_words(max(counts, key=lambda b: counts[b]), slots[: self.operator_slots], own)
        for slot, name in zip(slots[self.operator_slots :], rest, strict=True):
            words.append(name if slot.name == CONFIGURATION else f"{slot.name} {name}")
        return "; ".join(words) or self.targets[0].configuration.name


def space_by_type(space: Space, labels: Sequence[str]) -> Coarse | None:
    """The space in which slots with the same label take the same choice.

    None if no label has two slots, or if the slots of a label have no choice in common.
    """
    try:
        return None if len(set(labels)) == len(labels) else by_label(space, labels)
    except ProblemError:
        return None


_MOST_NAMED = 3


def mix_in_words(most: str, slots: Sequence[Slot], names: Sequence[str]) -> list[str]:
    """The backend of most slots, then each other backend with the first few of its slots."""
    others: dict[str, list[str]] = {}
    for slot, name in zip(slots, names, strict=True):
        if name != most:
            others.setdefault(name, []).append(slot.name)
    words = [most]
    for name, members in others.items():
        more = f" and {len(members) - _MOST_NAMED} more" if len(members) > _MOST_NAMED else ""
        words.append(f"{name}: {', '.join(members[:_MOST_NAMED])}{more}")
    return words


def wished_precisions(options: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """The precisions that the option `precision` requests besides float32, as separate configurations."""
    if "precision" not in options:
        return ()
    return tuple(p for p in options["precision"] or ("bfloat16", "float16") if p != "float32")


def decision_space(
    session: ModelSession, by: By, options: Mapping[str, tuple[str, ...]], *, all_cores: bool = False
) -> DecisionSpace:
    """The space of a session's model: of its runtime with several backends, or of its configurations.

    `options` are tunings by name with the values to try; no values mean the usual ones. With `all_cores`, the option
    `threads` gets two values, 1 and the number of usable cores, if all runtimes have this option. Targets that are not
    in the space are added to the session's `missing`. UsageError for an ambiguous request, with a hint about what to
    name.
    """
    targets = _targets(session)
    runtime = targets[0].runtime.name
    chosen = {name: values for name, values in options.items() if name not in _CONVERSIONS}
    if all_cores and (session.cores or 1) > 1 and all(THREADS.name in tunings(target.runtime) for target in targets):
        chosen[THREADS.name] = ("1", str(session.cores))
    values = {name: _tuning(name, targets).checked(named) for name, named in chosen.items()}
    graph = targets[0].placed.graph
    kinds = tuple((ir_opcode(op.type) if runtime == "onert" else None) or op.type for op in graph.operators)
    grouping, backends = None, InsidePlacer(session, targets[0]).backends
    slots: list[Slot] = []
    if len(backends) > 1:
        grouping = grouped(graph, by, kinds)
        slots = _operator_slots(grouping, targets[0], backends)
    if len(targets) > 1:
        slots.append(Slot(CONFIGURATION, tuple(t.configuration.name for t in targets)))
    slots += [Slot(name, tried) for name, tried in values.items() if len(tried) > 1]
    names: set[str] = set()  # operators may have any names, even the names of other slots
    return DecisionSpace(
        space=Space(tuple(replace(slot, name=untaken(slot.name, names, " #")) for slot in slots)),
        grouping=grouping,
        by=by,
        backends=backends,
        kinds=kinds,
        targets=targets,
        options=values,
    )


def _targets(session: ModelSession) -> tuple[Target, ...]:
    """The targets to search: those of the only runtime with several backends, or else all that take whole models."""
    several = [t for t in session.targets if len(InsidePlacer(session, t).backends) > 1]
    runtimes = list(dict.fromkeys(t.runtime.name for t in several))
    if len(runtimes) > 1:
        raise UsageError(
            f"{' and '.join(runtimes)} have several backends each, but a search covers only one such runtime",
            hint=f"Choose one: --runtime {runtimes[0]}.",
        )
    if not several:
        return session.targets
    for target in session.targets:
        if target not in several:
            reason = f"the search covers only {runtimes[0]}, which has several backends"
            hint = f"To search it instead: --runtime {target.runtime.name}."
            session.missing.append(Missing(name=target.configuration.name, reason=reason, hint=hint))
    return tuple(several)


def _tuning(name: str, targets: Sequence[Target]) -> Tuning:
    """The tuning with this name, which the runtimes of all targets must have."""
    for runtime in {t.runtime.name: t.runtime for t in targets}.values():
        settings = tunings(runtime)
        if name not in settings:
            has = ", ".join(settings) or "none"
            raise UsageError(
                f"{runtime.name} has no setting {name!r}",
                hint=f"Its settings: {has}. If several runtimes take the model, choose one with --runtime.",
            )
    return tunings(targets[0].runtime)[name]


def _operator_slots(grouping: Grouping, target: Target, backends: tuple[str, ...]) -> list[Slot]:
    """A slot for each group, with the backends that can run all of its operators."""
    taken = target.support.operators
    slots = []
    for group in grouping.groups:
        choices = tuple(b for b in backends if taken[b].issuperset(group.operators))
        if not choices:
            raise UsageError(
                f"no backend of {target.configuration.name} takes all operators of '{group.name}'",
                hint="Choose finer slots: --by operator.",
            )
        slots.append(Slot(group.name, choices))
    return slots


_VISITS = 3
_UNKNOWN = "it ran, but does not report {}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The cost of an assignment by wall time, and by CPU time if that is the time of its calls.

    `single` is the key of the assignment's single backend, or None for a mix.
    """

    assignment: Assignment
    wall: Cost
    cpu: Cost | None = None
    single: Hashable | None = None


@dataclass(slots=True, kw_only=True)
class Evaluator:
    """Runs assignments of a space in a session. Assignments in the results database are not run again.

    Returned costs are measured with `clock`, or as wall time if an assignment's CPU time is incomplete. The first run
    that succeeds decides `clock` (None until then); if some choice lets several threads work, it is wall time.
    `failures` has the reasons why assignments failed; `replayed` counts the assignments that were in the database.
    `unmeasured` are the assignments in `failures` about which nothing is known, because they were never run to the end.
    """

    session: ModelSession
    space: DecisionSpace
    goals: Sequence[Goal]
    clock: Clock | None = None
    failures: dict[Assignment, str] = field(default_factory=dict)
    measured: dict[Assignment, Measured] = field(default_factory=dict)
    replayed: int = 0
    unmeasured: set[Assignment] = field(default_factory=set)

    def __call__(self, assignment: Assignment) -> Cost | None:
        """The cost of an assignment in each objective; None if the assignment failed or does not report all of them."""
        contender = self.space.contender(self.session, assignment)
        candidate = replace(contender.candidate, key=f"search/{contender.key}")
        before = len(self.session.runner.known(candidate.key).runs)
        measured = self.session.runner.measure("search", [candidate], self.effort())[candidate.key]
        self.replayed += before > 0 and len(measured.runs) == before
        self.measured[assignment] = measured
        if not measured.ok:
            vanished = Failure(stage="run", kind="unmeasured", transient=True, message="no run of it succeeded")
            failure = measured.failure or vanished
            self.failures[assignment] = describe(failure)
            if failure.kind == "unmeasured" or measured.may_work:
                self.unmeasured.add(assignment)
            return None
        cost = cost_of(self.goals, measured, self._clock(measured))
        if cost is None:
            lacking = [g.name for g in self.goals if g.value(measured, self._clock(measured)) is None]
            why = untold(measured.runs) if ENERGY in lacking else ""
            self.failures[assignment] = _UNKNOWN.format(" and ".join(lacking)) + (f": {why}" if why else "")
        return cost

    def samples(self, trials: Sequence[Evaluation]) -> tuple[Sample, ...]:
        """The results that did not fail, with their costs by each clock, or with their predicted costs if they were not
        run.
        """
        return tuple(self._sample(t, self.measured.get(t.assignment)) for t in trials if t.cost is not None)

    def again(self, samples: Sequence[Sample]) -> dict[Assignment, Sample]:
        """Samples of the same assignments, each from one more fresh process, without the assignments that fail this
        time.
        """
        contenders = {s.assignment: self.space.contender(self.session, s.assignment) for s in samples}
        candidates = {a: replace(c.candidate, key=f"again/{c.key}") for a, c in contenders.items()}
        # Slow assignments get all their visits, because their noise is the question.
        effort = replace(self.effort(), laggard=1e9)
        measured = self.session.runner.measure("sample again", list(candidates.values()), effort)
        runs = {a: measured[c.key] for a, c in candidates.items()}
        costs = {a: cost_of(self.goals, m, self.clock_of(a, m)) for a, m in runs.items()}
        return {
            a: self._sample(Evaluation(assignment=a, cost=costs[a]), m) for a, m in runs.items() if costs[a] is not None
        }

    def clock_of(self, assignment: Assignment, measured: Measured) -> Clock:
        """The clock for a single assignment: CPU time if only one thread works and it is reported, or else wall
        time.
        """
        threaded = self.space.threaded(assignment, self.session.request.settings.threads)
        return "cpu" if not threaded and cpu_tells(measured.runs) else "wall"

    def _sample(self, trial: Evaluation, measured: Measured | None) -> Sample:
        cost, cpu = trial.cost or (), None
        if measured is not None:
            wall = cost_of(self.goals, measured, "wall")
            if self.clock_of(trial.assignment, measured) == "cpu":
                cpu = cost_of(self.goals, measured, "cpu")
            cost = cost if wall is None else wall
        return Sample(assignment=trial.assignment, wall=cost, cpu=cpu, single=self.space.single(trial.assignment))

    def effort(self) -> Effort:
        """One fresh process with few visits; promising assignments are measured again in the proof."""
        effort = self.session.request.effort
        return replace(effort, processes_least=1, processes_most=1, rounds=min(effort.rounds, _VISITS))

    def dump_rows(self) -> list[tuple[Assignment, float, int]]:
        """The latency in seconds and the peak memory in bytes of each assignment that reports both, in order."""
        rows = []
        for assignment, measured in self.measured.items():
            if measured.ok:
                cost = cost_of((GOALS[LATENCY], GOALS[MEMORY]), measured, self._clock(measured))
                if cost is not None:
                    rows.append((assignment, cost[0], int(cost[1])))
        return rows

    def _clock(self, measured: Measured) -> Clock:
        if self.clock is None:
            self.clock = "wall" if self.space.parallel else choose_clock(self.session, [measured])
        # If the CPU time of a later assignment is incomplete, its wall time is used instead.
        return self.clock if cpu_tells(measured.runs) else "wall"
