"""The structs and block sizes of `csrc/elmo.h`; all sizes are compared when the library is loaded."""

import ctypes

_POINTER, _LONG, _FLOAT, _INT = ctypes.c_void_p, ctypes.c_long, ctypes.c_float, ctypes.c_int


class Layer(ctypes.Structure):
    """A layer of the biLM over many rows: `struct layer`."""

    _fields_ = (
        *((name, _POINTER) for name in ("inputs", "weights", "weight_hr", "biases", "outputs")),
        *((name, _POINTER) for name in ("hidden", "cell", "sizes", "scratch")),
        *((name, _LONG) for name in ("scratch_bytes", "steps", "directions", "rows", "group")),
        *((name, _LONG) for name in ("input", "size", "cells")),
        *((name, _FLOAT) for name in ("cell_clip", "proj_clip")),
        ("threads", _INT),
    )


class SmallBatch(ctypes.Structure):
    """The same for a small batch: `struct small_batch`."""

    _fields_ = (
        *((name, _POINTER) for name in ("gates", "weight_hh", "weight_hr", "outputs")),
        *((name, _POINTER) for name in ("hidden", "cell", "cell_outputs", "sizes")),
        *((name, _LONG) for name in ("steps", "directions", "rows", "cells", "size")),
        *((name, _FLOAT) for name in ("before_clip", "cell_clip", "proj_clip")),
        ("threads", _INT),
    )


class Work(ctypes.Structure):
    """Words and the filters of all convolutions: `struct work`."""

    _fields_ = (
        *((name, _POINTER) for name in ("words", "lengths")),
        *((name, _LONG) for name in ("n", "characters", "vocabulary", "filters", "blocks")),
        *((name, _POINTER) for name in ("firsts", "counts", "widths")),
    )


STRUCTS = {"layer": Layer, "small_batch": SmallBatch, "work": Work}

LANES = 16
FUSED_ROWS, FUSED_COLUMNS, FUSED_DEPTH = 16, 64, 32
PRODUCT_COLUMNS = 64
CONSTANTS = {
    "lanes": LANES,
    "fused_rows": FUSED_ROWS,
    "fused_columns": FUSED_COLUMNS,
    "fused_depth": FUSED_DEPTH,
    "product_columns": PRODUCT_COLUMNS,
}
