"""The operators of TFLite and Circle models: their codes and tensor types, and the onert IR opcode of each.

The names of IR opcodes are those in ``OP_BACKEND_<IrOpcode>``.

Sources: ``loadOperation`` in ``BaseLoader.h`` and ``CircleLoader.cc`` of Samsung ONE, under
``runtime/onert/core/src/loader``, for the opcodes; ``tensorflow/compiler/mlir/lite/schema/schema.fbs`` of TensorFlow
and ``circle_schema.fbs`` 0.10 of Samsung ONE, whose codes below zero are Circle's own, for the codes.
"""

from __future__ import annotations

import re

from gnomon.core.graph import element_bits

_ALIKE = """
    AddN BatchToSpaceND Conv2D Custom DepthToSpace DepthwiseConv2D EmbeddingLookup ExpandDims Fill
    FullyConnected Gather HashtableLookup If InstanceNorm LogSoftmax OneHot Pack Pow Range Rank Reshape
    ResizeBilinear ResizeNearestNeighbor RmsNorm Shape Slice Softmax SpaceToBatchND SpaceToDepth Split SplitV
    SquaredDifference Squeeze StridedSlice Tile Transpose TransposeConv Unpack While
""".split()  # noqa: SIM905
"""The IR opcodes that stand for a single operator with the same name, as Conv2D does for CONV_2D."""

_SOURCES: dict[str, str] = {
    "ArgMinMax": "ARG_MAX ARG_MIN",
    "BCQFullyConnected": "BCQ_FULLY_CONNECTED",
    "BCQGather": "BCQ_GATHER",
    "BatchMatMul": "BATCH_MATMUL",
    "BinaryArithmetic": "ADD SUB MUL DIV",
    "Comparison": "EQUAL NOT_EQUAL GREATER_EQUAL GREATER LESS_EQUAL LESS",
    "Concat": "CONCATENATION",
    "ElementwiseActivation": "ELU GELU LEAKY_RELU LOGISTIC RELU RELU6 RELU_N1_TO_1 TANH",
    "ElementwiseBinary": "FLOOR_DIV FLOOR_MOD LOGICAL_AND LOGICAL_OR MAXIMUM MINIMUM",
    "ElementwiseUnary": (
        "ABS CAST COS DEQUANTIZE EXP FLOOR LOG LOGICAL_NOT NEG QUANTIZE ROUND RSQRT SIN SQRT SQUARE ZEROS_LIKE"
    ),
    "L2Normalization": "L2_NORMALIZATION",
    "LSTM": "UNIDIRECTIONAL_SEQUENCE_LSTM",
    "PReLU": "PRELU",
    "Pad": "PAD PADV2",
    "Pool2D": "AVERAGE_POOL_2D MAX_POOL_2D",
    "Reduce": "MEAN REDUCE_ANY REDUCE_MAX REDUCE_PROD SUM",
    "Reverse": "REVERSE_V2",
    "RoPE": "ROPE",
    "Select": "SELECT SELECT_V2",
}

_WORDS = re.compile(r"(?<=[a-z])(?=[A-Z]|[0-9]D)")

IR_OPCODES: dict[str, str] = {_WORDS.sub("_", opcode).upper(): opcode for opcode in _ALIKE}
IR_OPCODES |= {name: opcode for opcode, names in _SOURCES.items() for name in names.split()}
"""The IR opcode of each operator type that onert loads, by the file format's name ("CONV_2D" -> "Conv2D")."""
_TFLITE_OPERATORS = """
    ADD AVERAGE_POOL_2D CONCATENATION CONV_2D DEPTHWISE_CONV_2D DEPTH_TO_SPACE DEQUANTIZE EMBEDDING_LOOKUP
    FLOOR FULLY_CONNECTED HASHTABLE_LOOKUP L2_NORMALIZATION L2_POOL_2D LOCAL_RESPONSE_NORMALIZATION LOGISTIC
    LSH_PROJECTION LSTM MAX_POOL_2D MUL RELU RELU_N1_TO_1 RELU6 RESHAPE RESIZE_BILINEAR RNN SOFTMAX
    SPACE_TO_DEPTH SVDF TANH CONCAT_EMBEDDINGS SKIP_GRAM CALL CUSTOM EMBEDDING_LOOKUP_SPARSE PAD
    UNIDIRECTIONAL_SEQUENCE_RNN GATHER BATCH_TO_SPACE_ND SPACE_TO_BATCH_ND TRANSPOSE MEAN SUB DIV SQUEEZE
    UNIDIRECTIONAL_SEQUENCE_LSTM STRIDED_SLICE BIDIRECTIONAL_SEQUENCE_RNN EXP TOPK_V2 SPLIT LOG_SOFTMAX
    DELEGATE BIDIRECTIONAL_SEQUENCE_LSTM CAST PRELU MAXIMUM ARG_MAX MINIMUM LESS NEG PADV2 GREATER
    GREATER_EQUAL LESS_EQUAL SELECT SLICE SIN TRANSPOSE_CONV SPARSE_TO_DENSE TILE EXPAND_DIMS EQUAL
    NOT_EQUAL LOG SUM SQRT RSQRT SHAPE POW ARG_MIN FAKE_QUANT REDUCE_PROD REDUCE_MAX PACK LOGICAL_OR ONE_HOT
    LOGICAL_AND LOGICAL_NOT UNPACK REDUCE_MIN FLOOR_DIV REDUCE_ANY SQUARE ZEROS_LIKE FILL FLOOR_MOD RANGE
    RESIZE_NEAREST_NEIGHBOR LEAKY_RELU SQUARED_DIFFERENCE MIRROR_PAD ABS SPLIT_V UNIQUE CEIL REVERSE_V2
    ADD_N GATHER_ND COS WHERE RANK ELU REVERSE_SEQUENCE MATRIX_DIAG QUANTIZE MATRIX_SET_DIAG ROUND
    HARD_SWISH IF WHILE NON_MAX_SUPPRESSION_V4 NON_MAX_SUPPRESSION_V5 SCATTER_ND SELECT_V2 DENSIFY
    SEGMENT_SUM BATCH_MATMUL PLACEHOLDER_FOR_GREATER_OP_CODES CUMSUM CALL_ONCE BROADCAST_TO RFFT2D CONV_3D
    IMAG REAL COMPLEX_ABS HASHTABLE HASHTABLE_FIND HASHTABLE_IMPORT HASHTABLE_SIZE REDUCE_ALL
    CONV_3D_TRANSPOSE VAR_HANDLE READ_VARIABLE ASSIGN_VARIABLE BROADCAST_ARGS RANDOM_STANDARD_NORMAL
    BUCKETIZE RANDOM_UNIFORM MULTINOMIAL GELU DYNAMIC_UPDATE_SLICE RELU_0_TO_1 UNSORTED_SEGMENT_PROD
    UNSORTED_SEGMENT_MAX UNSORTED_SEGMENT_SUM ATAN2 UNSORTED_SEGMENT_MIN SIGN BITCAST BITWISE_XOR
    RIGHT_SHIFT STABLEHLO_LOGISTIC STABLEHLO_ADD STABLEHLO_DIVIDE STABLEHLO_MULTIPLY STABLEHLO_MAXIMUM
    STABLEHLO_RESHAPE STABLEHLO_CLAMP STABLEHLO_CONCATENATE STABLEHLO_BROADCAST_IN_DIM STABLEHLO_CONVOLUTION
    STABLEHLO_SLICE STABLEHLO_CUSTOM_CALL STABLEHLO_REDUCE STABLEHLO_ABS STABLEHLO_AND STABLEHLO_COSINE
    STABLEHLO_EXPONENTIAL STABLEHLO_FLOOR STABLEHLO_LOG STABLEHLO_MINIMUM STABLEHLO_NEGATE STABLEHLO_OR
    STABLEHLO_POWER STABLEHLO_REMAINDER STABLEHLO_RSQRT STABLEHLO_SELECT STABLEHLO_SUBTRACT STABLEHLO_TANH
    STABLEHLO_SCATTER STABLEHLO_COMPARE STABLEHLO_CONVERT STABLEHLO_DYNAMIC_SLICE
    STABLEHLO_DYNAMIC_UPDATE_SLICE STABLEHLO_PAD STABLEHLO_IOTA STABLEHLO_DOT_GENERAL
    STABLEHLO_REDUCE_WINDOW STABLEHLO_SORT STABLEHLO_WHILE STABLEHLO_GATHER STABLEHLO_TRANSPOSE DILATE
    STABLEHLO_RNG_BIT_GENERATOR REDUCE_WINDOW STABLEHLO_COMPOSITE STABLEHLO_SHIFT_LEFT STABLEHLO_CBRT
    STABLEHLO_CASE
""".split()  # noqa: SIM905
_CIRCLE_OPERATORS = "ATTENTION RUN_MODEL ROPE RMS_NORM GRU BCQ_GATHER BCQ_FULLY_CONNECTED INSTANCE_NORM"
OPERATOR_NAMES = {**dict(enumerate(_TFLITE_OPERATORS)), **dict(enumerate(_CIRCLE_OPERATORS.split(), -9))}
"""The name of each builtin operator code. An operator with the code CUSTOM has a name of its own."""
CUSTOM = 32
_BLOCKS = {"ggml_q4_0": 18, "ggml_q4_1": 20, "ggml_q8_0": 34, "ggml_q8_1": 36, "mxfp4": 17, "mxint8": 33}
"""The types whose elements are stored in blocks of 32, and the bytes per block."""
_NAMES = ["float32", "float16", "int32", "uint8", "int64", "string", "bool", "int16", "complex64", "int8", "float64"]
_NAMES += ["complex128", "uint64", "resource", "variant", "uint32", "uint16", "int4", "bfloat16"]
_TYPES = {**dict(enumerate(_NAMES)), -1: "uint4"} | {-2 - place: name for place, name in enumerate(_BLOCKS)}
"""The name of each type code, as in numpy or ml_dtypes."""


def ir_opcode(operator_type: str) -> str | None:
    """The IR opcode of an operator type, or None if onert does not load the type."""
    return IR_OPCODES.get(operator_type)


def type_name(code: int) -> str:
    """The name of a tensor type, such as "float32"; "type_99" for an unknown one."""
    return _TYPES.get(code, f"type_{code}")


def size_bytes(code: int, elements: int) -> int | None:
    """The bytes that this many elements of a tensor type take; None if the type has no fixed size."""
    name = _TYPES.get(code, "")
    if name in _BLOCKS:
        return -(-elements // 32) * _BLOCKS[name]
    bits = element_bits(name)
    return -(-elements * bits // 8) if bits else None
