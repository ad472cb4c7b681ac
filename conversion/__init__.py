"""Published ELMo formats, converted to checkpoints of this package and back."""

from .checkpoint import add_remote_code, convert, convert_published, export, load

__all__ = ["add_remote_code", "convert", "convert_published", "export", "load"]
