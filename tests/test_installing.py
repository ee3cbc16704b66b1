"""The lines that install what is missing: they name packages, as pyproject.toml does, and never gnomon."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from gnomon.errors import RuntimeMissingError
from gnomon.installing import extras, install_line, needed, pip_line

ROOT = Path(__file__).resolve().parents[1]
BY_NAME = re.compile(r"""pip install (?:-\S+ )*['"]?gnomon\b|(?<![\w.])gnomon\[[a-z]+\]""")


def test_extras_are_those_that_gnomon_was_installed_with() -> None:
    assert {"onnxruntime", "space", "tvm"} <= set(extras())
    assert extras()["ncnn"] == {"ncnn": "ncnn>=1.0.20250503", "onnx": "onnx>=1.17"}
    assert extras()["onnxruntime"].items() <= extras()["tvm"].items()


def test_a_line_names_packages_for_the_python_that_is_asked() -> None:
    assert install_line("plot", python="/a b/python") == "'/a b/python' -m pip install 'vl-convert-python<2,>=1.9'"
    assert install_line("pillow", "mlxtend", python="py") == "py -m pip install 'pillow>=10' mlxtend"
    assert install_line("onnx", "onnxruntime", python="py") == "py -m pip install 'onnx>=1.17' 'onnxruntime>=1.23'"
    assert install_line("xgboost-cpu", python="py") == "py -m pip install 'xgboost-cpu>=2.1'"
    assert "xgboost-cpu" in install_line("tvm", python="py") or sys.platform != "linux"
    assert pip_line(["a==1"]) == "python -m pip install a==1"
    assert pip_line(["a"], "py", options=["--target", "/a b"]) == "py -m pip install --target '/a b' a"


@pytest.mark.parametrize("error", [ImportError, OSError])  # OSError: a shared library that does not load
def test_a_package_that_does_not_load_is_told_with_the_line_that_installs_it(error: type[Exception]) -> None:
    with pytest.raises(RuntimeMissingError) as found, needed("no", "onnx", python="py", instead="; or"):
        raise error("libx.so")
    assert (found.value.message, found.value.hint) == ("no: libx.so", "py -m pip install 'onnx>=1.17'; or")


def test_nothing_tells_users_to_install_gnomon_by_its_name() -> None:
    files = [path for folder in ("src", "docs", "benchmarks", "scripts", "zoo") for path in (ROOT / folder).rglob("*")]
    files += [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
    texts = {path: path.read_text(encoding="utf-8") for path in files if path.suffix in {".py", ".md", ".sh", ".pyi"}}
    assert len(texts) > 100
    assert all(map(BY_NAME.search, ("pip install gnomon", "pip install -U 'gnomon[x]'", "needs gnomon[x]")))
    assert [str(path) for path, text in texts.items() if BY_NAME.search(text)] == []


def test_child_programs_which_import_nothing_of_gnomon_name_the_same_versions() -> None:
    text = (ROOT / "src/gnomon/children/tvm/model.py").read_text(encoding="utf-8")
    told = set(re.findall(r"\{_PIP\} '([^']+)'", text))
    assert len(told) == 3
    assert told <= {text for packages in extras().values() for text in packages.values()}
