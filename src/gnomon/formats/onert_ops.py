"""Which onert IR opcode a TFLite or Circle operator becomes: the names in ``OP_BACKEND_<IrOpcode>``.

Source: ``loadOperation`` in ``BaseLoader.h`` and ``CircleLoader.cc`` of Samsung ONE, under
``runtime/onert/core/src/loader``.
"""

from __future__ import annotations

_SOURCES: dict[str, str] = {
    "AddN": "ADD_N",
    "ArgMinMax": "ARG_MAX ARG_MIN",
    "BCQFullyConnected": "BCQ_FULLY_CONNECTED",
    "BCQGather": "BCQ_GATHER",
    "BatchMatMul": "BATCH_MATMUL",
    "BatchToSpaceND": "BATCH_TO_SPACE_ND",
    "BinaryArithmetic": "ADD SUB MUL DIV",
    "Comparison": "EQUAL NOT_EQUAL GREATER_EQUAL GREATER LESS_EQUAL LESS",
    "Concat": "CONCATENATION",
    "Conv2D": "CONV_2D",
    "Custom": "CUSTOM",
    "DepthToSpace": "DEPTH_TO_SPACE",
    "DepthwiseConv2D": "DEPTHWISE_CONV_2D",
    "ElementwiseActivation": "ELU GELU LEAKY_RELU LOGISTIC RELU RELU6 RELU_N1_TO_1 TANH",
    "ElementwiseBinary": "FLOOR_DIV FLOOR_MOD LOGICAL_AND LOGICAL_OR MAXIMUM MINIMUM",
    "ElementwiseUnary": (
        "ABS CAST COS DEQUANTIZE EXP FLOOR LOG LOGICAL_NOT NEG QUANTIZE ROUND RSQRT SIN SQRT SQUARE ZEROS_LIKE"
    ),
    "EmbeddingLookup": "EMBEDDING_LOOKUP",
    "ExpandDims": "EXPAND_DIMS",
    "Fill": "FILL",
    "FullyConnected": "FULLY_CONNECTED",
    "Gather": "GATHER",
    "HashtableLookup": "HASHTABLE_LOOKUP",
    "If": "IF",
    "InstanceNorm": "INSTANCE_NORM",
    "L2Normalization": "L2_NORMALIZATION",
    "LSTM": "UNIDIRECTIONAL_SEQUENCE_LSTM",
    "LogSoftmax": "LOG_SOFTMAX",
    "OneHot": "ONE_HOT",
    "PReLU": "PRELU",
    "Pack": "PACK",
    "Pad": "PAD PADV2",
    "Pool2D": "AVERAGE_POOL_2D MAX_POOL_2D",
    "Pow": "POW",
    "Range": "RANGE",
    "Rank": "RANK",
    "Reduce": "MEAN REDUCE_ANY REDUCE_MAX REDUCE_PROD SUM",
    "Reshape": "RESHAPE",
    "ResizeBilinear": "RESIZE_BILINEAR",
    "ResizeNearestNeighbor": "RESIZE_NEAREST_NEIGHBOR",
    "Reverse": "REVERSE_V2",
    "RmsNorm": "RMS_NORM",
    "RoPE": "ROPE",
    "Select": "SELECT SELECT_V2",
    "Shape": "SHAPE",
    "Slice": "SLICE",
    "Softmax": "SOFTMAX",
    "SpaceToBatchND": "SPACE_TO_BATCH_ND",
    "SpaceToDepth": "SPACE_TO_DEPTH",
    "Split": "SPLIT",
    "SplitV": "SPLIT_V",
    "SquaredDifference": "SQUARED_DIFFERENCE",
    "Squeeze": "SQUEEZE",
    "StridedSlice": "STRIDED_SLICE",
    "Tile": "TILE",
    "Transpose": "TRANSPOSE",
    "TransposeConv": "TRANSPOSE_CONV",
    "Unpack": "UNPACK",
    "While": "WHILE",
}

IR_OPCODES: dict[str, str] = {name: opcode for opcode, names in _SOURCES.items() for name in names.split()}
"""IR opcode of each operator type that onert loads, by the file format's name ("CONV_2D" -> "Conv2D")."""


def ir_opcode(operator_type: str) -> str | None:
    """The IR opcode of an operator type, or None where onert does not load the type."""
    return IR_OPCODES.get(operator_type)
