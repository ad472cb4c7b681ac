"""AllenNLP's names, for code whose imports change from `allennlp.modules.elmo` to `hf_elmo.allennlp`."""

from .integrations.allennlp import Elmo, ElmoEmbedder, ScalarMix, batch_to_ids

__all__ = ["Elmo", "ElmoEmbedder", "ScalarMix", "batch_to_ids"]
