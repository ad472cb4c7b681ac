"""The former place of `hf_elmo.pretraining.vocabulary`, for scripts that import from here."""

from .pretraining.vocabulary import Vocabulary, build_vocabulary

__all__ = ["Vocabulary", "build_vocabulary"]
