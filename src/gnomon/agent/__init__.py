"""The agent: a single file that is pushed to a device and drives runtimes there.

It imports nothing else from gnomon (only the standard library, numpy, and the runtime that it drives), is packed into
one zip application by `gnomon.measure.link`, and exchanges JSON lines over its standard streams. The protocol is
described in docs/agent.md. The agent can be started in three ways:

``supervise``
    reads requests from standard input, one per line, starts a fresh worker process for each candidate, visits the
    candidates in random order in rounds, and writes one event per line.
``work``
    a worker: holds jobs (each a chain of one or more loaded models) and answers its supervisor.
``run``
    runs a deployed plan, times it, and saves its outputs on request.
"""
