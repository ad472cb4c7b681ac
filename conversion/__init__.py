"""Published ELMo formats, converted to checkpoints of this package and back, and export to ONNX."""

from hf_elmo.checkpoints.hub import add_remote_code

from .allennlp import export, load
from .convert import convert
from .onnx import export_onnx, exportable
from .published import all_names

__all__ = ["add_remote_code", "all_names", "convert", "export", "export_onnx", "exportable", "load"]
