"""The reference moved: tests/reference.py."""

from tests.reference import NumpyELMo

__all__ = ["NumpyELMo"]
