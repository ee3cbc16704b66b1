"""Profiling on a real Dask cluster: the same rows as by processes here."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.jobs.space.kits.daskkit import dask_cluster
from tests.jobs.space.kits.spacekit import CONFIG, write_config, write_images

from gnomon.api import space as api
from gnomon.jobs.space.profiling.folder import AccuracyRow, read_accuracy

pytest.importorskip("torch", reason="PyTorch is not installed: pip install '.[space]'")
pytest.importorskip("yaml", reason="PyYAML is not installed: pip install '.[space]'")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning")
def test_a_cluster_trains_what_processes_here_do(tmp_path: Path) -> None:
    config = write_config(tmp_path)
    config.write_text(CONFIG.replace("VGGblock_1, VGGblock_2, Mobileblock_0, Mobileblock_1", "VGGblock_1"))
    source = write_images(tmp_path)

    def trained(name: str, cluster: str | None) -> dict[str, AccuracyRow]:
        api.profile_space(
            config,
            tmp_path / name,
            latency=False,
            data=source,
            method="fair",
            epochs=1,
            workers=1,
            cluster=cluster,
        )
        return {row.key: row for row in read_accuracy(tmp_path / name)}

    with dask_cluster(tmp_path, workers=1) as address:
        far = trained("far", address)
    here = trained("here", None)
    assert far.keys() == here.keys() and len(far) == 5
    assert all(far[key].curve == here[key].curve and not far[key].reason for key in far)
    weights = [sorted(p.name for p in (tmp_path / n / "checkpoints").rglob("*.safetensors")) for n in ("far", "here")]
    assert weights[0] == weights[1] and len(weights[0]) == 5
