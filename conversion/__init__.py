"""Published ELMo formats, converted to checkpoints of this package and back, and export to ONNX."""

from hf_elmo.remote_code import add_remote_code

from .allennlp_archive import convert_archive
from .bilm_tf import convert_bilm_tf, find_checkpoint
from .by_name import CONVERTERS, convert_named, convert_source
from .checkpoint import convert, convert_published, export, load
from .manylangs import convert_manylangs
from .onnx import export_onnx
from .published import all_names
from .recognize import Recognized, recognize
from .repository import convert_repository
from .tf_hub import convert_saved_model

__all__ = [
    "CONVERTERS",
    "Recognized",
    "add_remote_code",
    "all_names",
    "convert",
    "convert_archive",
    "convert_bilm_tf",
    "convert_manylangs",
    "convert_named",
    "convert_published",
    "convert_repository",
    "convert_saved_model",
    "convert_source",
    "export",
    "export_onnx",
    "find_checkpoint",
    "load",
    "recognize",
]
