"""A package goes to a device with what it holds, and with nothing else of this machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.bad_days.livekit import add_circle

from gnomon.errors import ModelError
from gnomon.models.load import load
from gnomon.models.model import Model
from gnomon.models.nnpackage import write_nnpackage
from gnomon.session.model import place_model


@pytest.fixture
def package(tmp_path: Path) -> Model:
    (tmp_path / "a.circle").write_bytes(add_circle())
    write_nnpackage(load(tmp_path / "a.circle"), tmp_path / "package", {})
    return load(tmp_path / "package")


def pushed(model: Model) -> list[Path]:
    sent: list[Path] = []

    def push(path: Path, name: str) -> str:
        sent.append(path)
        return f"/there/{name}"

    place_model(model, model.path, push)
    return sent


def test_a_link_within_it_is_part_of_it(package: Model) -> None:
    (package.path / "again").symlink_to("metadata")
    assert pushed(package) == [package.path]


@pytest.mark.parametrize("lead", ["../keys", "../keys/id", "/", "ring"])
def test_what_a_link_leads_to_outside_of_it_stays_here(package: Model, tmp_path: Path, lead: str) -> None:
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / "id").write_text("secret", encoding="utf-8")
    (package.path / "ring").symlink_to("ring") if lead == "ring" else (package.path / "more").symlink_to(lead)
    with pytest.raises(ModelError, match="leads out of the package") as told:
        pushed(package)
    assert told.value.hint
