"""The configuration of an ELMo model."""

import difflib
import math
from dataclasses import fields
from typing import Any

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig
from transformers.utils import logging

from .configuration_tasks_elmo import MOST_LAYERS, ElmoTaskFields

logger = logging.get_logger(f"transformers.{__name__}")

VERSION = "0.1.0"  # of hf_elmo; a checkpoint carries the code of the version that wrote it, and says which
# What `input_ids` hold besides bytes: the 256 bytes are 1 to 256, and 0 fills padded positions.
SENTENCE_BEGIN_ID, SENTENCE_END_ID, WORD_BEGIN_ID, WORD_END_ID, WORD_PADDING_ID = 257, 258, 259, 260, 261
TOKEN_IDS = {"pad_token_id": 0, "bos_token_id": SENTENCE_BEGIN_ID, "eos_token_id": SENTENCE_END_ID}  # of the format
SENTENCE_BEGIN_WORD_ID = 2  # where words have vectors of their own
IGNORE_INDEX = -100  # a label that is none, as torch.nn.CrossEntropyLoss has it
# Names in a config.json that are neither fields nor attributes.
NO_FIELDS = {"auto_map", "model_type", "torch_dtype", "transformers_version", "_commit_hash", "_name_or_path"}
NO_FIELDS |= {"use_cache", "hf_elmo_version"}  # Trainer sets the first on every configuration
# What scripts for every model give to from_pretrained, and transformers to the configuration.
NO_FIELDS |= {"attn_implementation", "experts_implementation", "return_unused_kwargs", "_from_auto", "_from_pipeline"}
# The tokenizer's, which AutoTokenizer gives to the configuration, too.
NO_FIELDS |= {"word_splitting", "words_file", "character_vocab_file", "vocab_file", "scripts", "split_special_tokens"}
NO_FIELDS |= {"bos_token", "eos_token", "unk_token", "pad_token", "padding_side", "truncation_side", "model_max_length"}
NO_FIELDS |= {"add_prefix_space", "clean_up_tokenization_spaces", "do_lower_case", "use_fast"}
# Fields by the names that AllenNLP gives them.
OF_ALLENNLP = {"do_layer_norm": "scalar_mix_layer_norm", "num_output_representations": "num_scalar_mixes"}
OF_ALLENNLP |= {"scalar_mix_parameters": "layer_weights", "dropout": "classifier_dropout"}
OF_ALLENNLP |= {"requires_grad": "freeze_bilm (the opposite)"}
OPTIONAL_SIZES = ("classifier_hidden_size", "vocab_size", "word_vocab_size", "word_embedding_size")
# The character filters of every model that was published: (width in characters, number of filters).
PUBLISHED_FILTERS = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))


@strict
class ElmoConfig(ElmoTaskFields, PreTrainedConfig):
    r"""
    The configuration of an [`ElmoModel`] (Peters et al. 2018, *Deep contextualized word representations*). The defaults
    are those of the published "original" model; a field that cannot be right raises an error that names it.

    Args:
        char_vocab_size (`int`, defaults to 262):
            Rows of the character embedding: 256 bytes, 5 markers (sentence begin and end, word begin and end, padding
            inside a word) and row 0, which is zero and marks a padded position.
        char_units (`str`, defaults to `"bytes"`):
            What a character is: `"bytes"` of UTF-8, or `"unicode"` for characters of a vocabulary that the tokenizer
            keeps (ELMoForManyLangs). A tokenizer of the other kind is refused where a model meets one.
        char_embedding_size (`int`, defaults to 16): Size of a character's vector.
        char_filters (`list[list[int]]`): One `[width, number]` for each convolution over the characters of a word.
        char_activation (`str`, defaults to `"relu"`): `"relu"` or `"tanh"`, applied after the maximum over positions.
        num_highway_layers (`int`, defaults to 2): Highway layers (up to 100) from the convolutions to the projection.
        char_projection (`bool`, *optional*):
            Whether a projection to half of `hidden_size` follows. By default it does unless the number of filters
            equals that size, as in the original code.
        max_word_length (`int`, defaults to 50): Characters of a word, the two word markers included.
        word_vocab_size (`int`, *optional*):
            Rows of an embedding of whole words beside the characters, as in ELMoForManyLangs; then each row of
            `input_ids` ends with the word's id. `None` for a model that reads characters alone.
        word_embedding_size (`int`, *optional*): Size of such a word's vector; `None` without `word_vocab_size`.
        hidden_size (`int`, defaults to 1024):
            Size of a word's vector, both directions together; one direction has half of it, the `projection_size`.
        cell_size (`int`, defaults to 4096): Size of an LSTM's cell.
        cell_projection (`bool`, *optional*):
            Whether the LSTM projects its output to `projection_size`. By default it does unless `cell_size` equals it.
        num_hidden_layers (`int`, defaults to 2): LSTM layers in each direction, up to 100.
        cell_clip (`float`, *optional*, defaults to 3.0): Bound on the absolute value of the cell; `None` for no bound.
        proj_clip (`float`, *optional*, defaults to 3.0): Bound on the projected output; no effect without a projection.
        use_skip_connections (`bool`, defaults to `True`): Whether a layer's input is added to its output from the
            second layer on.
        hidden_dropout (`float`, defaults to 0.0): Dropout on each LSTM layer's input while the biLM is trained.
        settled_start (`bool`, defaults to `False`): Whether a call starts from a state that is kept with the weights,
            the mean that other text leaves (`hf_elmo.settle`), instead of zeros, which bilm-tf's training meets once.
        layer_weights (`list[float]` or `int`, *optional*):
            A scalar mix that is fixed: one weight for each of the `num_hidden_layers + 1` layers (used as they are, no
            softmax), or the number of the only layer to take (negative from the top). `None` for a mix that is learned.
        num_scalar_mixes (`int`, defaults to 1): Learned mixes made in one pass, up to 100 (the paper uses two for
            question answering).
        scalar_mix_layer_norm (`bool`, defaults to `False`): Whether each layer is normalized before it is mixed.
        freeze_bilm (`bool`, defaults to `True`): Whether the character CNN and the biLM are left as they are: of an
            `ElmoModel` the scalar mix is trained, of a model with a head both. (`ElmoForPreTraining` trains the biLM.)
        vocab_size (`int`, *optional*): Words of the language model's softmax; `None` for a biLM without one. (A model
            reads characters: `tokenizer.vocab_size`, their number, is `char_vocab_size` here.)
        num_sampled (`int`, defaults to 8192): Negative words sampled for a training step of the language model.
        pad_token_id (`int`, defaults to 0): The character that fills a padded position. Part of the format, as are the
            next two: no other value is taken.
        bos_token_id (`int`, defaults to 257): The character that stands for the sentence's begin, `<S>`.
        eos_token_id (`int`, defaults to 258): The character that stands for the sentence's end, `</S>`.

    The fields of tasks' heads are those of [`ElmoTaskFields`].

    Raises:
        ValueError: a field has a value that no model can have. (A value of a wrong type raises huggingface_hub's
            `StrictDataclassFieldValidationError`, as in every configuration of transformers.)

    Example:

    ```python
    >>> from hf_elmo import ElmoConfig, ElmoModel

    >>> config = ElmoConfig(hidden_size=256, cell_size=1024, num_highway_layers=1)  # the published "small" model
    >>> model = ElmoModel(config)
    ```"""

    model_type = "elmo"
    _auto_class = "AutoConfig"
    keys_to_ignore_at_inference = ["hidden_states", "state"]  # noqa: RUF012, transformers reads it so

    char_vocab_size: int = WORD_PADDING_ID + 1
    char_units: str = "bytes"
    char_embedding_size: int = 16
    char_filters: list | tuple = PUBLISHED_FILTERS
    char_activation: str = "relu"
    num_highway_layers: int = 2
    char_projection: bool | None = None
    max_word_length: int = 50
    word_vocab_size: int | None = None
    word_embedding_size: int | None = None
    hidden_size: int = 1024
    cell_size: int = 4096
    cell_projection: bool | None = None
    num_hidden_layers: int = 2
    cell_clip: float | int | None = 3.0
    proj_clip: float | int | None = 3.0
    use_skip_connections: bool = True
    hidden_dropout: float | int = 0.0
    settled_start: bool = False
    layer_weights: list | tuple | int | None = None
    num_scalar_mixes: int = 1
    scalar_mix_layer_norm: bool = False
    freeze_bilm: bool = True
    vocab_size: int | None = None
    num_sampled: int = 8192
    pad_token_id: int | None = 0
    bos_token_id: int | None = SENTENCE_BEGIN_ID
    eos_token_id: int | None = SENTENCE_END_ID

    def __post_init__(self, **kwargs: Any) -> None:
        self._complete_labels()
        self._require_token_ids()
        self.complete()
        self.warn_of_unknown(kwargs)
        super().__post_init__(**kwargs | {"hf_elmo_version": VERSION})

    def complete(self) -> None:
        """Refuses fields that cannot be right (ValueError), and fills in those that follow from others: here, and once
        more where a model is made, as fields may be set in between. Ids that are part of the format are set back."""
        for field, number in TOKEN_IDS.items():
            if getattr(self, field) != number:
                logger.warning(f"ElmoConfig: {field} stays {number}, {getattr(self, field)!r} has no effect.")
                setattr(self, field, number)
        self.char_filters = [list(pair) if isinstance(pair, (list, tuple)) else pair for pair in self.char_filters]
        self._require_integers()
        self._require_filters()
        self._require_floats()
        self._require_choices()
        if self.char_projection is None:
            self.char_projection = self.num_filters != self.projection_size or self.word_vocab_size is not None
        if self.cell_projection is None:
            self.cell_projection = self.cell_size != self.projection_size
        self._require_sizes_that_fit()
        self._require_layer_weights()
        self._require_task_fields()

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        """As in transformers; what `kwargs` change is checked and completed like the rest."""
        changed = {field.name: kwargs.pop(field.name) for field in fields(cls) if field.name in kwargs}
        if not kwargs.get("return_unused_kwargs"):  # otherwise they are meant for a model, which refuses what it lacks
            cls.warn_of_unknown(kwargs)
        return super().from_dict({**cls._kept(config_dict, changed), **changed}, **kwargs)

    @property
    def projection_size(self) -> int:
        """Size of a word's vector in one direction."""
        return self.hidden_size // 2

    @property
    def num_filters(self) -> int:
        """Character filters of all widths together."""
        return sum(number for _, number in self.char_filters)

    @property
    def row_length(self) -> int:
        """Numbers in a row of `input_ids`: a word's characters, and its own id where words have vectors."""
        return self.max_word_length + (self.word_vocab_size is not None)

    def validate_token_ids(self) -> None:
        """Token ids are characters here, so `vocab_size` (words) says nothing about them."""

    def _refuse(self, field: str, remedy: str) -> None:
        raise ValueError(f"ElmoConfig: {field} is {getattr(self, field)!r}, but {remedy}.")

    @classmethod
    def warn_of_unknown(cls, given: dict[str, Any]) -> None:
        """A field that has no effect is most likely a misspelled one."""
        known = {field.name for field in fields(cls)} | set(dir(PreTrainedConfig)) | NO_FIELDS
        for name in sorted(given.keys() - known):
            others = [one for one in known - NO_FIELDS if one[0] != "_"]
            nearest = OF_ALLENNLP.get(name) or "".join(difflib.get_close_matches(name, others, n=1, cutoff=0.5))
            meant = f"; did you mean {nearest}?" if nearest else "."
            logger.warning(f"ElmoConfig has no field {name} ({given[name]!r} has no effect){meant}")

    def _require_integers(self) -> None:
        positive = ["char_vocab_size", "char_embedding_size", "max_word_length", "hidden_size", "cell_size"]
        positive += ["num_sampled", *(field for field in OPTIONAL_SIZES if getattr(self, field) is not None)]
        for field in positive:
            if getattr(self, field) < 1:
                self._refuse(field, "must be 1 or more")
        for field, least in (("num_hidden_layers", 1), ("num_highway_layers", 0), ("num_scalar_mixes", 1)):
            if not least <= getattr(self, field) <= MOST_LAYERS:
                self._refuse(field, f"must be {least} to {MOST_LAYERS}")
        if self.max_word_length < 3:
            self._refuse("max_word_length", "must be 3 or more: two word markers and a byte")
        if self.hidden_size % 2:
            self._refuse("hidden_size", "must be even: it holds a forward and a backward half")
        if self.char_vocab_size <= WORD_PADDING_ID:
            self._refuse("char_vocab_size", "must be 262 or more: 256 bytes, 5 markers and a row for padded positions")

    def _require_token_ids(self) -> None:
        if self.pad_token_id != 0:
            self._refuse("pad_token_id", "must be 0: a padded position is a row of zeros")
        for field, number in (("bos_token_id", SENTENCE_BEGIN_ID), ("eos_token_id", SENTENCE_END_ID)):
            if getattr(self, field) != number:
                self._refuse(field, f"must be {number}: the tokenizer writes no other, which would be read as a word")

    def _require_filters(self) -> None:
        if not self.char_filters:
            self._refuse("char_filters", "at least one [width, number] is needed")
        for pair in self.char_filters:
            if not (isinstance(pair, list) and len(pair) == 2 and all(type(n) is int and n > 0 for n in pair)):
                self._refuse("char_filters", f"each entry must be [width, number], two positive integers, not {pair!r}")
            if pair[0] > self.max_word_length:
                self._refuse("char_filters", f"no width may be over max_word_length, {self.max_word_length}")

    def _require_floats(self) -> None:
        for field in ("cell_clip", "proj_clip"):
            value = getattr(self, field)
            if value is not None and not value > 0:
                self._refuse(field, "must be over 0, or None for no clipping")
        if not 0 <= self.hidden_dropout < 1:
            self._refuse("hidden_dropout", "must be a probability, 0 or more and less than 1")

    def _require_choices(self) -> None:
        if self.char_activation not in ("relu", "tanh"):
            self._refuse("char_activation", 'must be "relu" or "tanh"')
        if self.char_units not in ("bytes", "unicode"):
            self._refuse("char_units", 'must be "bytes" or "unicode"')

    def _require_sizes_that_fit(self) -> None:
        if (self.word_vocab_size is None) != (self.word_embedding_size is None):
            self._refuse("word_embedding_size", f"word_vocab_size is {self.word_vocab_size}: give both or neither")
        if not self.char_projection and self.word_vocab_size is not None:
            self._refuse("char_projection", "words with vectors of their own need a projection: use True or None")
        if not self.char_projection and self.num_filters != self.projection_size:
            self._refuse(
                "char_projection",
                f"the {self.num_filters} char_filters can go without a projection only where half of hidden_size, "
                f"{self.projection_size}, is their number: use True or None",
            )
        if not self.cell_projection and self.cell_size != self.projection_size:
            self._refuse(
                "cell_projection",
                f"a cell_size of {self.cell_size} can go without a projection only where half of hidden_size, "
                f"{self.projection_size}, equals it: use True or None",
            )

    def _require_layer_weights(self) -> None:
        if self.layer_weights is None:
            return
        layers = self.num_hidden_layers + 1
        if isinstance(self.layer_weights, int):
            if not -layers <= self.layer_weights < layers:
                self._refuse("layer_weights", f"a single layer must be one of 0 to {layers - 1}")
            self.layer_weights = [float(layer == self.layer_weights % layers) for layer in range(layers)]
        if len(self.layer_weights) != layers:
            self._refuse("layer_weights", f"one weight for each of the {layers} layers is needed")
        numbers = all(type(weight) in (int, float) and math.isfinite(weight) for weight in self.layer_weights)
        if not numbers or not any(self.layer_weights):
            self._refuse("layer_weights", "the weights must be finite numbers, and not all 0")
        if self.num_scalar_mixes != 1:
            self._refuse("num_scalar_mixes", "only learned mixes come in numbers: use 1 with layer_weights")


__all__ = ["ElmoConfig"]
