"""The house rules that no linter holds: docstrings, forbidden ways, honest skips, a light import."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "gnomon"
PACKAGE = sorted(SOURCE.rglob("*.py"))
BESIDE = sorted((ROOT / "packages").glob("*/src/**/*.py"))
"""The packages beside gnomon."""
TESTS = sorted([*(ROOT / "tests").rglob("*.py"), *(ROOT / "packages").glob("*/tests/**/*.py")])

UNSAFE = {"pickle", "dill", "shelve", "marshal", "joblib", "requests", "urllib.request", "http.client", "ftplib"}
LIGHT = {"PYTHONPATH": str(ROOT / "src")}
HEAVY = {"numpy", "highspy", "click", "rich", "onnx", "sqlite3", "subprocess", "logging", "importlib.metadata"}

_COMPARED = "such|more|less|longer|larger|smaller|higher|lower|older|newer|nearer|faster|slower|further|better|worse"
RETIRED = {
    r"\banew\b": "again",
    r"\bto be had\b": "available",
    r"\bbe meant\b": "valid, invalid",
    r"\blest\b": "so that .. not",
    r"\bcomes? to an end\b": "terminate",
    rf"(?<!here )\b(is|are) no (?!{_COMPARED})\b\w": "is not a, are not",
    r"\btold nothing\b": "reported nothing",
    r"\b(is|are|was) not told\b(?! apart| from)": "is not reported",
    r"\bratio is told\b": "reported",
    r"\btells no\b": "reports no",
    r"\bwould tell\b": "would decide",
    r"\bneeds nothing else\b": "self-contained",
    r"\bnoise (that|which) has a memory\b": "autocorrelated noise",
    r"\bown account\b": "as reported by the runtime",
    r"\boutputs off by\b": "max abs error",
    r"\bbest single (one|way|contender)\b": "best single backend",
    r"\b(perhaps|surely) behind\b": "possibly dominated, dominated",
    r"\bempty graph\b": "no-op model",
    r"\bundisturbed calls?\b|\blower fifth\b": "the fastest 20 % of the calls",
    r"\bceiling of noise\b": "measurement-noise limit",
    r"\bsingle swaps?\b": "one-change variant",
    r"\bin worlds\b": "posterior samples",
    r"\bvirtual machines took\b": "CPU steal",
    r"\bwaiting included\b": "without waiting",
}
"""Phrases that readers did not understand, as patterns, and what to write instead; docs/glossary.md has the words."""

_ANY_RETIRED = re.compile("|".join(RETIRED))

Function = ast.FunctionDef | ast.AsyncFunctionDef


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@functools.cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def functions(module: ast.Module) -> Iterator[Function]:
    for node in ast.walk(module):
        if isinstance(node, Function):
            yield node


def dotted(node: ast.expr) -> str:
    """A name with its dots; empty if it is more than a name."""
    if isinstance(node, ast.Attribute):
        return f"{before}.{node.attr}" if (before := dotted(node.value)) else ""
    return node.id if isinstance(node, ast.Name) else ""


def decorators(function: Function) -> set[str]:
    """The last part of the name of each decorator."""
    bare = (d.func if isinstance(d, ast.Call) else d for d in function.decorator_list)
    return {d.attr if isinstance(d, ast.Attribute) else d.id for d in bare if isinstance(d, ast.Attribute | ast.Name)}


def public_without_docstring(module: ast.Module) -> Iterator[str]:
    """Public classes and functions of a module, and public methods of its public classes, without a docstring."""

    def visit(body: list[ast.stmt], prefix: str) -> Iterator[str]:
        for node in body:
            if not isinstance(node, Function | ast.ClassDef) or node.name.startswith("_"):
                continue
            inherited = isinstance(node, Function) and decorators(node) & {"override", "overload", "setter"}
            if ast.get_docstring(node) is None and not inherited:
                yield f"{prefix}{node.name}"
            if isinstance(node, ast.ClassDef):
                yield from visit(node.body, f"{prefix}{node.name}.")

    yield from visit(module.body, "")


def forbidden(module: ast.Module) -> Iterator[str]:
    """What no code of the package may do, each with its line."""
    for node in ast.walk(module):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            for name in UNSAFE.intersection(names):
                yield f"line {node.lineno}: imports {name}"
        if isinstance(node, ast.ExceptHandler) and node.type is None:
            yield f"line {node.lineno}: a bare except"
        if isinstance(node, ast.Call):
            for keyword in node.keywords:
                if keyword.arg == "shell" and not (
                    isinstance(keyword.value, ast.Constant) and keyword.value.value is False
                ):
                    yield f"line {node.lineno}: shell=True"
            if isinstance(node.func, ast.Name) and node.func.id in {"eval", "exec", "__import__"}:
                yield f"line {node.lineno}: {node.func.id}()"
            if dotted(node.func) in {"os.system", "os.popen"}:
                yield f"line {node.lineno}: {dotted(node.func)}()"


def silent_skips(module: ast.Module) -> Iterator[str]:
    """Skips and expected failures that do not say what is missing, each with its line."""
    for node in ast.walk(module):
        if isinstance(node, ast.Attribute) and dotted(node) in {"pytest.mark.skip", "pytest.mark.xfail"}:
            yield f"line {node.lineno}: {dotted(node)} never runs; say on what it depends with skipif"
        if isinstance(node, ast.Call) and dotted(node.func) in {"pytest.skip", "pytest.mark.skipif"}:
            first = node.args if dotted(node.func) == "pytest.skip" else []
            reasons = [*first, *(k.value for k in node.keywords if k.arg == "reason")]
            if not any(not isinstance(r, ast.Constant) or len(str(r.value)) >= 10 for r in reasons):
                yield f"line {node.lineno}: a skip without a reason"


def retired(text: str) -> Iterator[str]:
    """The phrases in a text that have been replaced, each with what to write instead."""
    words = " ".join(text.split())
    for phrase, instead in RETIRED.items() if _ANY_RETIRED.search(words) else ():
        for found in re.finditer(phrase, words):
            yield f"{found[0]!r}: write {instead!r}, in {words[max(0, found.start() - 40) : found.end() + 40]!r}"


def retired_in_strings(module: ast.Module) -> Iterator[str]:
    """The same of all strings of a module, documentation included, each with its line."""
    for node in ast.walk(module):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from (f"line {node.lineno}: {found}" for found in retired(node.value))


def offences(paths: list[Path], check: Callable[[ast.Module], Iterator[str]]) -> list[str]:
    """What the check finds in all files, each with its file."""
    return [f"{name_of(path)}: {found}" for path in paths for found in check(tree(path))]


def test_what_is_public_is_documented() -> None:
    assert [name_of(path) for path in [*PACKAGE, *BESIDE] if not ast.get_docstring(tree(path))] == []
    # Tests that ship as a contract are documented by their names.
    suites = [path for path in PACKAGE if "testing" in path.parts]
    others = [path for path in [*PACKAGE, *BESIDE] if path not in suites]
    in_suites = [o for o in offences(suites, public_without_docstring) if ".test_" not in o and ": test_" not in o]
    assert offences(others, public_without_docstring) + in_suites == []


def test_nothing_forbidden_is_done() -> None:
    assert offences([*PACKAGE, *BESIDE], forbidden) == []


def test_skips_say_what_is_missing() -> None:
    skipping = [path for path in TESTS if re.search("skip|xfail", path.read_text(encoding="utf-8"))]
    assert offences(skipping, silent_skips) == []


def test_retired_phrases_stay_retired() -> None:
    documents = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    texts = [f"{name_of(path)}: {found}" for path in documents for found in retired(path.read_text(encoding="utf-8"))]
    assert offences([*PACKAGE, *BESIDE], retired_in_strings) + texts == []


def test_the_agents_files_are_read_in_one_place() -> None:
    readers = [name_of(p) for p in PACKAGE if "agent" not in p.parent.name and '"gnomon.agent"' in p.read_text()]
    assert readers == ["src/gnomon/measure/link.py"]


def test_test_files_have_names_of_their_own() -> None:
    names = [p.name for p in TESTS if p.name.startswith("test_")]
    assert sorted(names) == sorted(set(names))


def test_the_package_is_typed() -> None:
    assert (SOURCE / "py.typed").is_file()


def test_importing_gnomon_is_light() -> None:
    code = "import sys; import gnomon; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, env=LIGHT, check=True)
    loaded = set(done.stdout.split())
    assert "gnomon" in loaded
    assert loaded & HEAVY == set()


def test_the_checks_find_what_they_look_for() -> None:
    code = "import pickle\ntry:\n  f()\nexcept:\n  pass\nsubprocess.run('ls', shell=yes)\neval('1')\nos.system('ls')"
    assert len(list(forbidden(ast.parse(code)))) == 5
    assert list(forbidden(ast.parse("subprocess.run(['ls'], shell=False)"))) == []
    skips = "pytest.skip()\npytest.skip('')\npytest.mark.skip\npytest.mark.skipif(True)"
    assert len(list(silent_skips(ast.parse(skips)))) == 4
    honest = "pytest.skip('onert is not there')\npytest.skip(f'{e}')\npytest.mark.skipif(True, reason='no adb here')"
    assert list(silent_skips(ast.parse(honest))) == []
    assert len(list(retired("It is no regular\nfile. Measure it anew, lest it be wrong."))) == 3
    assert list(retired("There is no file here, and the table is no larger: 'x' is not a number.")) == []
    code = "class A:\n    def b(self): ...\n    def _c(self): ...\ndef d():\n    '''D.'''\n    def e(): ..."
    assert list(public_without_docstring(ast.parse(code))) == ["A", "A.b"]


EXTRAS = (
    "aiohttp",
    "datasets",
    "distributed",
    "onnx",
    "PIL",
    "sklearn",
    "torch",
    "torchvision",
    "vl_convert",
    "yaml",
)
ADAPTERS = (
    ".agent",
    ".templates.runtime.driver",
    ".children",
    ".testing",
    ".models.onnx.fix",
    ".formats.yaml_nodes",
    ".serving.handlers",
)
"""What only runs elsewhere, and the modules that are imported once an extra is seen to be there."""


def test_without_the_extras_every_module_but_an_adapter_can_be_imported() -> None:
    names = [".".join(p.relative_to(SOURCE.parent).with_suffix("").parts) for p in PACKAGE]
    names = [n.removesuffix(".__init__") for n in names if not any(part in n for part in ADAPTERS)]
    code = (
        "import importlib, sys\n"
        f"sys.modules.update(dict.fromkeys({EXTRAS!r}))\n"
        f"for name in {names!r}:\n"
        "    try:\n        importlib.import_module(name)\n"
        "    except ImportError as error:\n        print(name, error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == ""
