"""A config of aw_nas as a space whose units are priced: the nets that are trained, by slots that `export` names too."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.jobs.space.kits.spacekit import write_images
from tests.jobs.space.kits.studykit import LAYERS, study
from tests.jobs.table.table_kit import asked

from gnomon.errors import UsageError
from gnomon.jobs.estimator.job import described
from gnomon.jobs.table.job import build_table
from gnomon.spaces import SearchSpace, from_aw_nas, load_space
from gnomon.testing.search_space import SearchSpaceContract

pytest.importorskip("yaml", reason="PyYAML is not installed: pip install '.[space]'")


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("configs")
    (folder / "cells.yaml").write_text(
        LAYERS.replace("gnomon_cfg: {", f"gnomon_cfg: {{data: '{write_images(folder)}', ")
    )
    return folder / "cells.yaml"


class TestConfig(SearchSpaceContract):
    @pytest.fixture
    def search_space(self, config: Path) -> SearchSpace:
        return load_space(str(config))


def test_its_nets_are_those_that_are_trained(config: Path) -> None:
    space, own = load_space(str(config)), study(LAYERS)
    assert (space.name, space.space) == ("cells", own.space)
    for assignment in np.random.default_rng(0).integers(0, 5, (5, 2)).tolist():
        assert space.net(assignment) == own.tagged(own.at(assignment)).net


def test_a_table_of_it_is_found_again_by_its_config(config: Path) -> None:
    pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    small = config.with_name("small.yaml")
    small.write_text(config.read_text().replace("VGGblock_2, Mobileblock_0, Mobileblock_1]", "VGGblock_2]"))
    built = build_table(replace(asked(config.parent, config.parent / "t"), space=load_space(str(small))))
    assert built.units and described(config.parent / "t", str(small)).space.name == "small"


def test_its_python_runs_only_where_it_is_given(config: Path) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed: pip install '.[space]'")
    modules = "docs/examples/modules.py"
    text = config.read_text().replace("gnomon_cfg: {", f"gnomon_cfg: {{stem: '{Path(modules).resolve()}:stem', ")
    stemmed = config.with_name("stemmed.yaml")
    stemmed.write_text(text)
    with pytest.raises(UsageError, match="gnomon runs only if you name it") as refused:
        load_space(str(stemmed))
    assert "from_aw_nas" in refused.value.hint
    assert from_aw_nas(stemmed, blocks=[f"{Path(modules).resolve()}:stem"]).space.size == 25
