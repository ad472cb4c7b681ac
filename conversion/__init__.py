"""Published ELMo formats, converted to checkpoints of this package and back, and export to ONNX."""

from hf_elmo.remote_code import add_remote_code

from .bilm_tf import convert_bilm_tf, find_checkpoint
from .checkpoint import convert, convert_published, export, load
from .onnx import export_onnx
from .recognize import Recognized, recognize

__all__ = [
    "Recognized",
    "add_remote_code",
    "convert",
    "convert_bilm_tf",
    "convert_published",
    "export",
    "export_onnx",
    "find_checkpoint",
    "load",
    "recognize",
]
