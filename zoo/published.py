"""ONNX models that wheels contain, with their input shapes fixed and their constants folded.

PP-OCRv4 detection and recognition and the PP-OCRv2 text-angle classifier come from rapidocr-onnxruntime (Apache-2.0).
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx

from gnomon.models.onnx.fix import fix_shapes
from zoo.wheels import WheelFile, Wheels


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A model in a wheel, and the shape [1, channels, height, width] to which its single input is fixed."""

    file: WheelFile
    shape: tuple[int, int, int, int]


def _rapidocr(member: str, sha256: str) -> WheelFile:
    return WheelFile(
        distribution="rapidocr-onnxruntime",
        version="1.4.4",
        member=f"rapidocr_onnxruntime/models/{member}",
        sha256=sha256,
    )


PUBLISHED = {
    "ppocr-det": Published(
        file=_rapidocr(
            "ch_PP-OCRv4_det_infer.onnx", "d2a7720d45a54257208b1e13e36a8479894cb74155a5efe29462512d42f49da9"
        ),
        shape=(1, 3, 480, 480),
    ),
    "ppocr-rec": Published(
        file=_rapidocr(
            "ch_PP-OCRv4_rec_infer.onnx", "48fc40f24f6d2a207a2b1091d3437eb3cc3eb6b676dc3ef9c37384005483683b"
        ),
        shape=(1, 3, 48, 320),
    ),
    "ppocr-cls": Published(
        file=_rapidocr(
            "ch_ppocr_mobile_v2.0_cls_infer.onnx",
            "e47acedf663230f8863ff1ab0e64dd2d82b838fceb5957146dab185a89d6215c",
        ),
        shape=(1, 3, 48, 192),
    ),
}


def published_onnx(wheels: Wheels, stem: str) -> bytes:
    """The bytes of a published model after `fix_shapes`. Raises ZooError."""
    published = PUBLISHED[stem]
    model = onnx.load_from_string(wheels.read(published.file))
    fix_shapes(model, {model.graph.input[0].name: published.shape})
    return bytes(model.SerializeToString())
