"""What the configuration says of a task's head: word vectors beside ELMo, the encoder, the classifier, the tagger, the
resolver of coreference."""

from dataclasses import dataclass
from typing import Any

ENCODERS = ("bilstm", "alternating", "biattentive", "esim", "attention_flow")
POOLINGS = ("mean", "max", "last", "attention")
TAGGING_SCHEMES = ("IOB1", "IOB2", "BIOES")
PROBLEM_TYPES = ("regression", "single_label_classification", "multi_label_classification")
MOST_LAYERS = 100  # of what is made one by one: a config.json with a billion of them would never end
# What `word_vector_ids` hold besides words: padding, the sentence boundaries, and words that have no vector.
BOUNDARY_ID, UNKNOWN_ID, FIRST_VECTOR_ID = 1, 2, 3


@dataclass(kw_only=True)
class ElmoTaskFields:
    """
    The fields of [`ElmoConfig`] that heads read. The biLM knows none of them: one checkpoint of it serves every head. A
    head refuses those that have no effect on it.

    Args:
        use_elmo (`bool`, defaults to `True`): Whether a head reads ELMo. `False`: word vectors alone, the same head
            without a biLM in it, to compare with.
        word_vectors_vocab_size (`int`, *optional*):
            Rows of an embedding of words that is put beside ELMo, `[x; ELMo]` (paper, section 3.3): the words of the
            tokenizer and three more (padding, boundaries, unknown words). `None` for ELMo alone.
        word_vectors_size (`int`, defaults to 100): Size of such a vector.
        freeze_word_vectors (`bool`, defaults to `False`): Whether these vectors are left as they are.
        elmo_at_output (`bool`, defaults to `False`): Whether ELMo is put in again beside the encoder's output, by a
            mix of its own (paper, section 3.3). Needs an `encoder_type`.
        scalar_mix_l2 (`float`, defaults to 0.0): lambda: while training, lambda * sum(s * s) over the weights s of all
            learned mixes, before their softmax, is added to the loss (paper, section 3.3).
        encoder_type (`str`, *optional*):
            What a head reads words with: `None`, nothing; `"bilstm"`; of taggers `"alternating"`, layers that read
            forward and backward in turn, with highways (He et al. 2017); of classifiers `"biattentive"` (McCann et al.
            2017) and, for pairs of texts, `"esim"` (Chen et al. 2017), which pool in their own way. Questions are
            answered by `"attention_flow"` (Clark and Gardner 2018), which there `None` stands for, too.
        encoder_hidden_size (`int`, defaults to 256): Size of each direction of the encoder's LSTMs.
        encoder_num_layers (`int`, defaults to 1): Layers of the LSTM that reads the word vectors, up to 100.
        encoder_dropout (`float`, defaults to 0.5): Dropout on what the encoder's LSTMs read, and on ELMo at its output
            (paper, section 3.3).
        encoder_recurrent_dropout (`float`, defaults to 0.0): Dropout on the outputs of each layer of an alternating
            encoder, the same numbers at all words of a text (Gal and Ghahramani 2016).
        classifier_pooling (`str`, defaults to `"mean"`): `"mean"`, `"max"`, `"last"` (each direction's final state) or
            `"attention"` (a mean by learned weights).
        classifier_hidden_size (`int`, *optional*): Size of a hidden layer in front of the classifier; `None` for none.
        classifier_dropout (`float`, defaults to 0.5): Dropout on the classifier's input (paper, section 3.3).
        classifier_text_pairs (`bool`, defaults to `False`): Whether the classifier reads pairs of texts: each by
            itself, their vectors u and v together as `[u; v; |u - v|; u * v]` (Mou et al. 2016).
        allow_no_answer (`bool`, defaults to `False`): Whether a question may have no answer in its passage.
        tagging_crf (`bool`, defaults to `False`): Whether a tagger scores sequences of labels, by a CRF.
        tagging_scheme (`str`, *optional*): `"IOB1"`, `"IOB2"` or `"BIOES"`: a tagger gives only sequences that the
            scheme allows, by its CRF or, without one, the most probable of them. The names of the labels (`id2label`)
            must be of the scheme.
        tagging_indicator_size (`int`, *optional*): Size of an embedding, beside a word's vector, of whether it is the
            word that the labels are about, such as the predicate of semantic roles (He et al. 2017): the words that
            have `token_type_ids` 1. `None` for no such words.
        coreference_max_width (`int`, defaults to 30): Words of the widest span that may be a mention (Lee et al. 2017).
        coreference_spans_per_word (`float`, defaults to 0.4): lambda: of a document's spans so many for each of its
            words are kept as mentions.
        coreference_max_antecedents (`int`, defaults to 50): Antecedents that are scored for each of these (Lee et al.
            2018, section 4).
        coreference_refinements (`int`, defaults to 1): How often a span takes in what its antecedents are (Lee et al.
            2018, section 3), up to 100; 0 for Lee et al. 2017.
        coreference_hidden_size (`int`, defaults to 150): Size of the two hidden layers that score mentions and pairs.
        coreference_feature_size (`int`, defaults to 20): Size of the vectors of widths, distances, speakers, genres.
        coreference_speakers (`bool`, defaults to `False`): Whether pairs know if their speakers are the same.
        coreference_num_genres (`int`, *optional*): Genres of documents; `None` for a resolver that knows none.
    """

    use_elmo: bool = True
    word_vectors_vocab_size: int | None = None
    word_vectors_size: int = 100
    freeze_word_vectors: bool = False
    elmo_at_output: bool = False
    scalar_mix_l2: float | int = 0.0
    encoder_type: str | None = None
    encoder_hidden_size: int = 256
    encoder_num_layers: int = 1
    encoder_dropout: float | int = 0.5
    encoder_recurrent_dropout: float | int = 0.0
    classifier_pooling: str = "mean"
    classifier_hidden_size: int | None = None
    classifier_dropout: float | int = 0.5
    classifier_text_pairs: bool = False
    allow_no_answer: bool = False
    tagging_crf: bool = False
    tagging_scheme: str | None = None
    tagging_indicator_size: int | None = None
    coreference_max_width: int = 30
    coreference_spans_per_word: float | int = 0.4
    coreference_max_antecedents: int = 50
    coreference_refinements: int = 1
    coreference_hidden_size: int = 150
    coreference_feature_size: int = 20
    coreference_speakers: bool = False
    coreference_num_genres: int | None = None

    @staticmethod
    def _kept(saved: dict[str, Any], changed: dict[str, Any]) -> dict[str, Any]:
        """What stays of a file's fields where some are changed: names of labels by number replace those by name, too,
        and the other way around. In a file the former count: who changes `config.id2label` saves the latter as they
        were."""
        labels = {"id2label", "label2id"}
        left_out = labels if labels & changed.keys() else {"label2id"} if saved.get("id2label") is not None else set()
        return {field: value for field, value in saved.items() if field not in left_out}

    def _complete_labels(self) -> None:
        """Makes `id2label` and `label2id` of each other, and refuses those that say different things (ValueError)."""
        if self.id2label is None and self.label2id is not None:
            self.id2label = {int(number): name for name, number in self.label2id.items()}
        if self.id2label is None:
            return
        numbers = {name: int(number) for number, name in self.id2label.items()}
        if len(numbers) < len(self.id2label):
            self._refuse("id2label", "each label must have a name of its own")
        if self.label2id is not None and {name: int(number) for name, number in self.label2id.items()} != numbers:
            self._refuse("label2id", f"id2label is {self.id2label!r}: give both alike, or one of them alone")
        self.label2id = numbers

    def _require_task_fields(self) -> None:
        sizes = "word_vectors_size", "encoder_hidden_size", "classifier_hidden_size"
        for field in (*sizes, "tagging_indicator_size"):
            if getattr(self, field) is not None and getattr(self, field) < 1:
                self._refuse(field, "must be 1 or more")
        for field, least in (("encoder_num_layers", 1), ("coreference_refinements", 0)):
            if not least <= getattr(self, field) <= MOST_LAYERS:
                self._refuse(field, f"must be {least} to {MOST_LAYERS}")
        if self.word_vectors_vocab_size is not None and self.word_vectors_vocab_size <= FIRST_VECTOR_ID:
            self._refuse(
                "word_vectors_vocab_size", f"must be over {FIRST_VECTOR_ID}: rows that are no words come first"
            )
        for field in ("encoder_dropout", "encoder_recurrent_dropout", "classifier_dropout"):
            if not 0 <= getattr(self, field) < 1:
                self._refuse(field, "must be a probability, 0 or more and less than 1")
        if not 0 <= self.scalar_mix_l2 < float("inf"):
            self._refuse("scalar_mix_l2", "must be 0 or more")
        choices = {"classifier_pooling": POOLINGS, "encoder_type": (*ENCODERS, None)}
        choices["problem_type"] = (*PROBLEM_TYPES, None)  # of transformers, which takes any
        for field, known in choices.items():
            if getattr(self, field) not in known:
                self._refuse(field, f"must be one of {', '.join(map(repr, known))}")
        if self.tagging_scheme not in (*TAGGING_SCHEMES, None):
            self._refuse("tagging_scheme", f"must be one of {', '.join(TAGGING_SCHEMES)}, or None for no scheme")
        self._require_coreference()
        self._require_tasks_that_fit()

    def _require_coreference(self) -> None:
        for field in ("max_width", "max_antecedents", "hidden_size", "feature_size", "num_genres"):
            if getattr(self, f"coreference_{field}") is not None and getattr(self, f"coreference_{field}") < 1:
                self._refuse(f"coreference_{field}", "must be 1 or more")
        if not 0 < self.coreference_spans_per_word < float("inf"):
            self._refuse("coreference_spans_per_word", "must be over 0")

    def _require_tasks_that_fit(self) -> None:
        if not self.use_elmo and self.word_vectors_vocab_size is None:
            self._refuse("use_elmo", "word_vectors_vocab_size is None: without either there are no word vectors")
        if self.elmo_at_output and self.encoder_type is None:
            self._refuse("elmo_at_output", "encoder_type is None: name the encoder to put ELMo beside the output of")
        if self.elmo_at_output and self.num_scalar_mixes != 1:
            self._refuse("num_scalar_mixes", "elmo_at_output has a mix of its own: use 1")
        if self.encoder_type == "esim" and not self.classifier_text_pairs:
            self._refuse("encoder_type", "it reads pairs of texts: use classifier_text_pairs=True")
        if self.encoder_recurrent_dropout and self.encoder_type != "alternating":
            self._refuse("encoder_recurrent_dropout", "only encoder_type='alternating' has it")
        if self.classifier_pooling != "mean" and self.encoder_type in ("biattentive", "esim"):
            self._refuse("classifier_pooling", f"encoder_type={self.encoder_type!r} pools in its own way: use 'mean'")
        if self.scalar_mix_l2 and self.layer_weights is not None:
            self._refuse("scalar_mix_l2", "layer_weights are fixed, and only learned mixes have a lambda: use 0")
        if self.freeze_word_vectors and self.word_vectors_vocab_size is None:
            self._refuse("freeze_word_vectors", "word_vectors_vocab_size is None: there are no word vectors to freeze")
        if self.classifier_pooling == "last" and not self.encoder_type and self.word_vectors_vocab_size is not None:
            self._refuse("classifier_pooling", "word vectors have no final state: use an encoder_type")


__all__ = ["ElmoTaskFields"]
