"""The configuration of ELMo models: the fields of task heads, then those of the biLM (bidirectional language model)."""

from dataclasses import dataclass, fields
from difflib import get_close_matches
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig
from transformers.utils import logging

logger = logging.get_logger(f"transformers.{__name__}")

VERSION = "0.1.0"  # of hf_elmo; config.json stores the version whose source files are saved with a checkpoint
# The numbers in `input_ids`: 0 fills padded positions, 1 to 256 are the bytes 0 to 255, and five markers follow.
BOS_ID = 257
EOS_ID = 258
WORD_BEGIN_ID = 259
WORD_END_ID = 260
WORD_PADDING_ID = 261
# In `word_vector_ids`, 0 is padding, 1 a sentence boundary, 2 a word without a vector; words with a vector follow.
BOUNDARY_ID = 1
UNKNOWN_ID = 2
FIRST_VECTOR_ID = 3
# The ends of the names of numbers that may be 0; with 0 in another field, the model would be another one, silently.
MAY_BE_ZERO = ("dropout", "token_id", "highway_layers", "coreference_refinements", "scalar_mix_l2", "layer_weights")
# Files that make sentence-transformers use `pooler_output` as the vector of a sentence.
SENTENCE_TRANSFORMERS = {
    "modules.json": '[{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}]',
    "sentence_bert_config.json": '{"module_output_name": "sentence_embedding", '
    '"modality_config": {"text": {"method": "forward", "method_output_name": "pooler_output"}}}',
}
IGNORE_INDEX = -100  # in place of a label at positions without a label, as in torch.nn.CrossEntropyLoss


@dataclass(kw_only=True, repr=False)
class ElmoTaskFields:
    """The fields of [`ElmoConfig`] that task heads read. The biLM does not read them, so one biLM serves every head.

    Args:
        use_elmo: Whether a head reads ELMo; if not, it reads word vectors alone.
        word_vectors_vocab_size: Number of rows of a word embedding x that is concatenated to ELMo, `[x; ELMo]` (Peters
            et al. 2018, section 3.3): the tokenizer's words plus 3 (padding, boundary, unknown). `None`: ELMo alone.
        word_vectors_size, freeze_word_vectors: Size of each word vector; whether they are kept fixed in training.
        word_characters: Characters with an embedding, of size `word_characters_size`, from which further features of
            words are computed, beside ELMo: by convolutions, `word_characters_filters` as `char_filters`, or by an
            LSTM of `word_characters_hidden_size` (Ma and Hovy 2016; Lample et al. 2016). `None`: no such features.
        elmo_at_output: Whether a second scalar mix of ELMo is concatenated to the output of the encoder (Peters et al.
            2018, section 3.3), which is then required.
        scalar_mix_l2: Factor of a penalty: in training, `scalar_mix_l2 * sum(s * s)` is added to the loss, where s are
            the weights of all learned mixes before the softmax (Peters et al. 2018).
        encoder_type: The encoder between word vectors and head: `None`, no encoder; `"bilstm"`; for taggers
            `"alternating"`, highway LSTMs that read forward and backward in turn (He et al. 2017), and `"highway"`,
            each layer in both directions; for classifiers `"biattentive"` (McCann et al. 2017) and, for pairs of texts,
            `"esim"` (Chen et al. 2017) and `"decomposable"` (Parikh et al. 2016), which ignore `classifier_pooling`;
            for questions `"attention_flow"` (Clark and Gardner 2018), also by `None`, and `"bidaf"` (Seo et al. 2017).
        encoder_hidden_size, encoder_num_layers: Size of each direction, and number of layers, of the encoder's LSTM.
        encoder_dropout: Dropout on the input of the encoder's LSTMs, and on the second mix of ELMo (`elmo_at_output`).
        encoder_recurrent_dropout: Dropout on the output of each layer of highway LSTMs, with one mask for all words of
            a text (Gal and Ghahramani 2016).
        bidaf_highway_layers, bidaf_modeling_layers: Numbers of highway layers, and of layers of the LSTM over the flow.
        bidaf_modeling_size, bidaf_end_size: Sizes of this LSTM and of that for the ends of answers, in each direction.
        classifier_pooling: How the words of a text are pooled: `"mean"`, `"max"`, `"last"` (each direction's final
            state) or `"attention"` (a mean weighted by the softmax of learned scores).
        classifier_hidden_size, classifier_activation: Of a layer before the classifier or tagger; `None` for no layer.
        classifier_dropout: Dropout on the classifier's input.
        classifier_maxout_sizes, classifier_maxout_pool: Of a biattentive network whose classifier is a maxout layer
            (Goodfellow et al. 2013), the sizes of the maxout layers before it, and the number of linear maps of each.
        decomposable_attend_sizes, decomposable_compare_sizes: Of the layers of two networks of decomposable attention.
        carry_state: Whether the biLM reads the second text of each row from the state after the first, as AllenNLP's.
        classifier_text_pairs: Whether the classifier reads pairs of texts. Their vectors u, v are combined as
            `[u; v; |u - v|; u * v]` (Mou et al. 2016), except by `"biattentive"` and `"esim"`.
        allow_no_answer: Whether a question may have no answer in its passage. With `"bidaf"`, each has one.
        tagging_crf: Whether a tagger scores whole sequences of labels, by a CRF.
        tagging_scheme: The tagger predicts the most probable sequence that the scheme allows. The names of the labels
            (`id2label`) must follow it. `None`: no scheme.
        tagging_sums_probabilities: Whether it is that with the highest sum of probabilities, as in AllenNLP's `srl`.
        tagging_indicator_size: Size of an embedding of `token_type_ids` that is concatenated to each word's vector: 1
            marks the word that the labels refer to, such as the predicate of semantic roles (He et al. 2017).
        coreference_max_width: Maximum number of words in a predicted mention (Lee et al. 2017).
        coreference_spans_per_word: Number of spans kept as mentions, for each word (lambda in Lee et al. 2017).
        coreference_max_antecedents: Maximum number of antecedents scored for a mention (Lee et al. 2018, section 4).
        coreference_refinements: Number of times that a span's vector is updated from its expected antecedent (Lee et
            al. 2018, section 3); 0 for the model of Lee et al. 2017.
        coreference_hidden_size: Size of both hidden layers of the mention and pair scorers.
        coreference_feature_size: Size of the embeddings of width, distance, speakers, genre.
        coreference_speakers: Whether pair scores depend on the speakers (same or other).
        coreference_num_genres: Number of document genres; `None` to use no genres.
    """

    use_elmo: bool = True
    word_vectors_vocab_size: int | None = None
    word_vectors_size: int = 100
    freeze_word_vectors: bool = False
    word_characters: str | None = None
    word_characters_size: int = 16
    word_characters_filters: list | tuple = ((3, 128),)
    word_characters_hidden_size: int | None = None
    elmo_at_output: bool = False
    scalar_mix_l2: float | int = 0.0
    encoder_type: str | None = None
    encoder_hidden_size: int = 256
    encoder_num_layers: int = 1
    encoder_dropout: float | int = 0.5
    encoder_recurrent_dropout: float | int = 0.0
    bidaf_highway_layers: int = 2
    bidaf_modeling_layers: int = 2
    bidaf_modeling_size: int = 100
    bidaf_end_size: int = 100
    classifier_pooling: Literal["mean", "max", "last", "attention"] = "mean"
    classifier_hidden_size: int | None = None
    classifier_activation: Literal["relu", "tanh"] = "relu"
    classifier_dropout: float | int = 0.2
    classifier_text_pairs: bool = False
    classifier_maxout_sizes: list | tuple | None = None
    classifier_maxout_pool: int = 4
    decomposable_attend_sizes: list | tuple = (200, 200)
    decomposable_compare_sizes: list | tuple = (200, 200)
    carry_state: bool = False
    allow_no_answer: bool = False
    tagging_crf: bool = False
    tagging_scheme: Literal["IOB1", "IOB2", "BIOES", "BIOUL"] | None = None
    tagging_sums_probabilities: bool = False
    tagging_indicator_size: int | None = None
    coreference_max_width: int = 30
    coreference_spans_per_word: float | int = 0.4
    coreference_max_antecedents: int = 50
    coreference_refinements: int = 1
    coreference_hidden_size: int = 150
    coreference_feature_size: int = 20
    coreference_speakers: bool = False
    coreference_num_genres: int | None = None


@strict
class ElmoConfig(ElmoTaskFields, PreTrainedConfig):
    """The configuration of an [`ElmoModel`] (Peters et al. 2018, *Deep contextualized word representations*). The
    defaults are those of the published "original" model. The fields that heads read are those of [`ElmoTaskFields`].

    Args:
        char_vocab_size: Number of rows of the character embedding: row 0 (zeros, for padded positions), 256 bytes, and
            5 markers (begin and end of a sentence and of a word, padding inside a word).
        char_units: What a character is: `"bytes"` for the bytes of UTF-8, or `"unicode"` for the Unicode characters in
            the tokenizer's vocabulary, as in ELMoForManyLangs.
        char_embedding_size: Size of a character's vector.
        char_filters: `[width, number of filters]` for each convolution over a word's characters; `[]` for a word-level
            model, which reads the embedding of whole words (`word_vocab_size`) alone.
        char_activation: Applied after the maximum over positions.
        num_highway_layers: Number of highway layers before the projection.
        char_projection: Whether the character encoder ends with a projection to `projection_size`. By default it does,
            unless the vector before it has this size already.
        max_word_length: Length to which words are cut and padded, including the two markers.
        word_vocab_size: Number of rows of an embedding of whole words beside the characters, as in ELMoForManyLangs, or
            in place of them (`char_filters=[]`). Each row of `input_ids` then ends with the word's id.
        word_embedding_size: Size of a vector of this embedding; half of `hidden_size` by default in a word-level model.
        hidden_size: Size of a word's vector: `projection_size` for each direction.
        cell_size: Size of the cell state of each LSTM layer.
        cell_projection: Whether the LSTM projects its output to `projection_size`. By default it does, unless
            `cell_size` equals it.
        num_hidden_layers: Number of LSTM layers in each direction.
        cell_clip, proj_clip: Bounds on the absolute cell state and the absolute projected output; `None` for no bound.
        use_skip_connections: Whether each layer from the second on adds its input to its output.
        hidden_dropout: Dropout on the inputs of the LSTM layers and of the softmax.
        settled_start: Whether a call without `state` starts from the state that `hf_elmo.settle` saved, not from zeros.
        layer_weights: A fixed scalar mix: one weight for each of the `num_hidden_layers + 1` layers, used without a
            softmax, or the index of one layer (a negative index counts from the top). `None` for a learned mix.
        num_scalar_mixes: Number of learned mixes (the paper uses two for question answering).
        scalar_mix_layer_norm: Whether each layer is normalized before it is mixed.
        scalar_mix_alignment: Whether mixes are multiplied by a fixed matrix, saved with the weights, that maps them to
            the vectors of another language's model (Schuster et al. 2019).
        freeze_bilm: Whether the character CNN and the biLM are frozen; `ElmoForPreTraining` trains them in any case.
        vocab_size: Number of words in the language model's softmax (not of characters); `None` for no softmax.
        num_sampled: Number of negative words that are sampled in each training step.
        pad_token_id, bos_token_id, eos_token_id: The ids of padding and of the one character of `<S>` and of `</S>`.

    Raises:
        ValueError: fields contradict each other, or a value is out of its range.
        TypeError: an argument is almost the name of a field. (Others are kept; in a file, this is a warning.)
        huggingface_hub.errors.StrictDataclassFieldValidationError: a value has a wrong type or is no allowed choice.
    """

    model_type = "elmo"
    _auto_class = "AutoConfig"
    keys_to_ignore_at_inference = ["hidden_states", "scalar_mixes", "state"]  # noqa: RUF012, transformers expects a list

    char_vocab_size: int = WORD_PADDING_ID + 1
    char_units: Literal["bytes", "unicode"] = "bytes"
    char_embedding_size: int = 16
    char_filters: list | tuple = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))
    char_activation: Literal["relu", "tanh"] = "relu"
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
    scalar_mix_alignment: bool = False
    freeze_bilm: bool = True
    vocab_size: int | None = None
    num_sampled: int = 8192
    pad_token_id: int | None = 0
    bos_token_id: int | None = BOS_ID
    eos_token_id: int | None = EOS_ID

    def __post_init__(self, **kwargs: Any) -> None:
        for name in kwargs:  # other unknown names are transformers', of its other versions or of files on the Hub
            if close := get_close_matches(name, [field.name for field in fields(self)], n=1, cutoff=0.85):
                message = f"ElmoConfig has no field {name!r}: did you mean {close[0]!r}?"
                if "hf_elmo_version" not in kwargs:
                    raise TypeError(message)
                logger.warning(message)  # of a file, which a later version of hf_elmo may have written
        self.char_filters = [list(pair) for pair in self.char_filters]
        if not self.char_filters:
            self.num_highway_layers = 0
            self.word_embedding_size = self.word_embedding_size or self.projection_size
        if self.char_projection is None:
            size = self.num_filters + (self.word_embedding_size or 0)
            has_both = self.num_filters > 0 and self.word_vocab_size is not None  # characters and whole words
            self.char_projection = has_both or size != self.projection_size
        if self.cell_projection is None:
            self.cell_projection = self.cell_size != self.projection_size
        layers = range(self.num_hidden_layers + 1)
        if isinstance(self.layer_weights, int) and self.layer_weights in range(-len(layers), len(layers)):
            self.layer_weights = [float(layer == layers[self.layer_weights]) for layer in layers]
        if self.id2label is not None:
            self.label2id = {name: int(number) for number, name in self.id2label.items()}
        elif self.label2id is not None:
            self.id2label = {int(number): name for name, number in self.label2id.items()}
        super().__post_init__(**kwargs | {"hf_elmo_version": VERSION})
        self.validate_architecture()  # here, so that it raises ValueError itself; transformers calls it on saving, too

    def validate_architecture(self) -> None:
        """Raises ValueError for fields that contradict each other, or that are out of their range."""
        weights = self.layer_weights  # still an integer if it is the index of no layer
        lacks_weights = isinstance(weights, int) or len(weights or ()) not in (0, self.num_hidden_layers + 1)
        word_sizes = self.word_vocab_size, self.word_embedding_size
        broken = {
            "hidden_size": self.hidden_size % 2 and "must be even: each direction has half of it",
            "char_filters": any(w > self.max_word_length for w, _ in self.char_filters) and "max_word_length is less",
            "layer_weights": lacks_weights and "must be the index of a layer, or num_hidden_layers + 1 weights",
            "id2label": len({*self.id2label.values()}) < len(self.id2label) and "each class needs a name of its own",
            "label2id": len({*self.label2id.values()}) < len(self.label2id) and "each class needs a number of its own",
            "word_embedding_size": word_sizes.count(None) == 1 and "must be given together with word_vocab_size",
        }
        for name in ElmoTaskFields.__annotations__ | ElmoConfig.__annotations__ | broken:
            value = getattr(self, name)
            is_too_small = type(value) in (int, float) and value <= 0 and not name.endswith(MAY_BE_ZERO)
            rule = "must be more than 0" if is_too_small else broken.get(name)
            if rule:
                raise ValueError(f"{name} is {value!r}, but {rule}.")

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        """As in transformers, except that fields in `kwargs` replace those of `config_dict` before other fields are
        derived from them, and that either of `id2label` and `label2id` in `kwargs` replaces both."""
        names = {field.name for field in fields(cls)} - {"dtype"}  # transformers reads "auto"
        changed = {name: kwargs.pop(name) for name in names & kwargs.keys()}
        if changed.keys() & {"id2label", "label2id"}:
            config_dict = {name: value for name, value in config_dict.items() if name not in ("id2label", "label2id")}
        return super().from_dict({"hf_elmo_version": VERSION, **config_dict, **changed}, **kwargs)

    def save_pretrained(self, save_directory: str | PathLike, **kwargs: Any) -> None:
        """As in transformers, and beside a biLM the files for sentence-transformers, unless they exist."""
        super().save_pretrained(save_directory, **kwargs)
        is_bilm = (self.architectures or [None])[0] in ("ElmoModel", "ElmoForPreTraining")
        for name, content in SENTENCE_TRANSFORMERS.items() if is_bilm else ():
            if not (file := Path(save_directory, name)).exists():
                file.write_text(content + "\n", encoding="utf-8")

    @property
    def projection_size(self) -> int:
        """Size of a word's vector in one direction."""
        return self.hidden_size // 2

    @property
    def num_filters(self) -> int:
        """The total number of character filters, over all widths."""
        return sum(number for _, number in self.char_filters)

    @property
    def row_length(self) -> int:
        """Length of a row of `input_ids`: a word's characters, and the word's id if `word_vocab_size` is set."""
        return self.max_word_length + (self.word_vocab_size is not None)

    def validate_token_ids(self) -> None:
        """Turns off the check of transformers: token ids are ids of characters, but `vocab_size` counts words."""
