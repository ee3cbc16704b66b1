"""What a runtime's trace says: times of operators and of whole runs, as the average, least and most of many."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Integer microseconds over the runs that a trace counted. A measured 0 is a value: less than a microsecond."""

    avg_us: int
    min_us: int
    max_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceOperator:
    """One operator in a trace: its index in its subgraph, onert's name of its type, where it ran, how long.

    `subgraph` is None in traces of the oldest layout ("$3 ADD"); `session` is None unless several sessions were
    open in the traced process ("$1 session $2 subgraph $3 ADD").
    """

    index: int
    type: str
    backend: str
    time: Spread
    subgraph: int | None = None
    session: int | None = None

    @property
    def name(self) -> str:
        """Its key in the file, such as "$0 subgraph $3 Conv2D"."""
        name = f"${self.index} {self.type}"
        if self.subgraph is not None:
            name = f"${self.subgraph} subgraph {name}"
            if self.session is not None:
                name = f"${self.session} session {name}"
        return name


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a trace comes from, as its writer noted it.

    `backend` is the one that the run was for; `model_sha256` the digest of the model file; `taken_at_s` seconds
    since 1970, UTC; `runs` how many calls the times are taken over.
    """

    model_sha256: str
    device: str
    backend: str
    threads: int
    runtime: str
    taken_at_s: float
    runs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """One trace file. `graph` is the time of whole runs, None where the file has none; `origin` None if not noted.

    `operators` are in order of session, subgraph, index and backend.
    """

    operators: tuple[TraceOperator, ...]
    graph: Spread | None
    version: str = "2"
    origin: Origin | None = None

    @property
    def sessions(self) -> tuple[int, ...]:
        """The numbers of the sessions that it holds; a trace that numbers none holds session 0."""
        return tuple(sorted({op.session or 0 for op in self.operators}))

    @property
    def main(self) -> tuple[TraceOperator, ...]:
        """The operators of the first session's main graph; those of other subgraphs run inside one of them."""
        first = min(self.sessions, default=0)
        return tuple(op for op in self.operators if (op.session or 0) == first and not op.subgraph)
