"""The report of `gnomon check`."""

from __future__ import annotations

import shlex
from pathlib import Path

from gnomon.jobs.check.document import CheckDocument
from gnomon.models.gguf import Decoder
from gnomon.models.model import FORMATS, named_shape
from gnomon.report import units
from gnomon.report.page import Page
from gnomon.report.plain import listed, many


def check_report(document: CheckDocument, page: Page) -> None:
    """Write the findings, each with its next step; then the kind of file and the runtimes that can read it."""
    model, answer = document.model, document.headline()[1]
    page.headline(f"{answer[:1].upper()}{answer[1:]}.")
    for finding in document.findings:
        page.item(f"{finding.message[:1].upper()}{finding.message[1:]}.", finding.hint)
    if document.decoder is not None:
        _decoder(document.decoder, page)
        page.path("next", f"gnomon profile {shlex.quote(model.path)} --command llama-bench")
        return
    size = units.mebibytes(document.size_bytes)
    page.line(f"{Path(model.path).name}: {FORMATS[model.format]}, {many(model.operators, 'operator')}, {size}.")
    inputs = [f"{tensor.name} {named_shape(tensor)} {tensor.dtype}" for tensor in document.inputs]
    page.line(f"Inputs: {listed(inputs) or 'none'}.")
    page.line(f"Runtimes that read it: {listed(document.runtimes, len(document.runtimes))}.")
    page.path("next", f"gnomon place {shlex.quote(model.path)}")


def _decoder(decoder: Decoder, page: Page) -> None:
    """Write what a language model is: its size and types, its attention, and the memory that its context needs."""
    width = f" of width {decoder.width}" if decoder.width else ""
    experts = f", {decoder.experts_used} of {decoder.experts} experts per token" if decoder.experts else ""
    page.line(
        f"{decoder.architecture}: {many(decoder.layers, 'layer')}{width}{experts}, "
        f"{units.count(decoder.parameters)} parameters."
    )
    sizes = [f"{units.mebibytes(size)} in {name}" for name, size in decoder.bytes_by_type.items()]
    page.line(f"Weights: {listed(sizes) or 'none'}.")
    heads = " or ".join(str(count) for count in sorted(set(decoder.heads)))
    shared = " or ".join(str(count) for count in sorted(set(decoder.kv_heads)))
    if heads and decoder.head_size:
        page.line(f"Attention: {heads} heads with {decoder.head_size[0]} numbers, {shared} for keys and values.")
    context = f"Context: up to {decoder.context} tokens" if decoder.context else "Context: of unstated length"
    if (per_token := decoder.kv_bytes_per_token) is None:
        page.line(f"{context}; its memory is not known for this architecture.")
    else:
        most = f", at most {units.mebibytes(per_token * decoder.context)} in all" if decoder.context else ""
        window = f"; with a window of {decoder.window}, some layers keep less" if decoder.window else ""
        page.line(f"{context}; each takes {units.digits(per_token / 1024)} KiB in f16{most}{window}.")
    words = f", {many(decoder.vocabulary, 'token')}" if decoder.vocabulary else ""
    page.line(f"Tokenizer: {decoder.tokenizer or 'none'}{words}.")
