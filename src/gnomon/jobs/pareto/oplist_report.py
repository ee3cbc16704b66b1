"""The report of `gnomon oplist`."""

from __future__ import annotations

from pathlib import Path

from gnomon.jobs.pareto.oplist import OplistDocument
from gnomon.report import units
from gnomon.report.page import Page, Table
from gnomon.report.plain import many

_MOST_SLOTS = 60
_DIGITS = {"type": "operator type", "group": "group of one type and data size", "operator": "operator"}


def oplist_report(document: OplistDocument, page: Page) -> None:
    """Write the slots, the number of codes, and the meaning of one code."""
    slots, model, example = document.slots, document.model, document.example
    what = _DIGITS[document.by] + ("" if len(slots) == 1 else "s")
    if document.by == "group" and len(slots) != 1:
        what = "groups of one type and data size"
    power = f"{len(document.backends)}^{len(slots)}"
    codes = "1 code" if document.codes == "1" else f"{document.codes if len(document.codes) <= 9 else power} codes"
    page.headline(f"{len(slots)} {what}, {many(len(document.backends), 'backend')}: {codes}.")
    page.line(f"{Path(model.path).name} ({model.format}, {many(model.operators, 'operator')}).")
    digits = ", ".join(f"{digit} {name}" for digit, name in enumerate(document.backends))
    page.line(f"Digits of a code: {digits}; the first slot is the least significant digit.")
    page.heading("Slots")
    page.table(
        Table(slots, most=_MOST_SLOTS)
        .number("digit", lambda slot: slot.digit)
        .text("slot", lambda slot: slot.name)
        .text("onert", lambda slot: ", ".join(opcode or "-" for opcode in slot.opcodes))
        .text("types", lambda slot: ", ".join(slot.types))
        .number("operators", lambda slot: len(slot.operators))
        .number("data of each", lambda slot: slot.data_bytes, units.mebibytes)
    )
    unknown = [name for name, opcode in document.opcodes.items() if opcode is None]
    page.heading("Example")
    rest = f" and all others on {example.others}" if len(slots) > 1 else ""
    page.line(f"Code {_short(example.code)} puts {example.slot} on {example.backend}{rest}.", indent=1)
    if example.config is not None and len(example.config) <= 400:
        page.path("settings", example.config)
    if unknown:
        page.heading("Warnings")
        loads = f"operators of type {', '.join(unknown)}" if model.format in ("tflite", "circle") else ""
        page.item(f"onert does not load {loads or f'{model.format} models'}.", "There is no oplist for this model.")
    elif document.file is None:
        page.note("To write the oplist: --out oplist.json")
    else:
        page.path("file", document.file)


def _short(code: str) -> str:
    return code if len(code) <= 40 else f"{code[:20]}..{code[-10:]} ({len(code)} digits)"
