"""Small models of every kind, batches for them, and comparisons of what they return."""

import torch
from torch import Tensor

import hf_elmo
from hf_elmo import CoreferenceCollator, ElmoForPreTraining, ElmoModel, encode_document
from hf_elmo.modeling_heads_elmo import ElmoInputs
from hf_elmo.modeling_pretraining_elmo import neighbor_labels
from tests.factories import SENTENCES, small_model

CLASSIFIER, TAGGER = hf_elmo.ElmoForSequenceClassification, hf_elmo.ElmoForTokenClassification
READER, RESOLVER = hf_elmo.ElmoForQuestionAnswering, hf_elmo.ElmoForCoreferenceResolution
WORDS = ["the", "cat", "rain", "on"]
VECTORS = {"word_vectors_vocab_size": len(WORDS) + 3, "word_vectors_size": 6}
SECOND = ["A mat .", "the", "the dog ran far away", "no rain at all fell ."]
QUESTIONS = ["Who ran ?", "What", "Where did the 日本 cat sit ?", "Is it so"]
PASSAGES = ["The cat ran far away .", "A", "The cat sat on the mat , not in it .", "No rain at all"]
STARTS, ENDS = torch.tensor([7, 4, 14, 6]), torch.tensor([8, 4, 15, 9])  # cat ran; A; the mat; No rain at all
DOCUMENTS = [
    [["Ann", "saw", "a", "big", "dog", "."], ["She", "called", "it", "!"], ["The", "big", "dog", "came", "."]],
    [["He", "slept", "."]],
    [["Rain", "fell", "on", "the", "old", "town", "and", "its", "roofs", "."], ["It", "stopped", "."]],
]
CLUSTERS = [[[(0, 0), (6, 6)], [(2, 4), (8, 8), (10, 12)], [(9, 9)]], [], [[(3, 5), (7, 7)], [(0, 0), (10, 10)]]]
SPEAKERS = [["Eve", None, "Tom"], ["Tom"], ["Eve", "Eve"]]

TAGS = {"id2label": dict(enumerate(["O", "B-x", "I-x", "B-y", "I-y"]))}
BILSTM = {"encoder_type": "bilstm", "encoder_hidden_size": 7}
CRF = {**BILSTM, "encoder_num_layers": 2, "tagging_crf": True, "tagging_scheme": "IOB2", "elmo_at_output": True}
ROLES = {"encoder_type": "alternating", "encoder_num_layers": 3, "encoder_hidden_size": 7, "tagging_indicator_size": 5}
CHARACTERS = {"word_characters": "theca日r", "word_characters_size": 4, "word_characters_filters": [[2, 3], [5, 6]]}
HIGHWAY = {"encoder_type": "highway", "encoder_num_layers": 2, "encoder_hidden_size": 7, "tagging_scheme": "IOB2"}
HIGHWAY |= {"classifier_hidden_size": 9, "classifier_activation": "tanh", "tagging_sums_probabilities": True}
FLOW = {"encoder_type": "attention_flow", "encoder_hidden_size": 5}
MENTIONS = {"coreference_max_width": 4, "coreference_max_antecedents": 3, "coreference_spans_per_word": 0.6}
MENTIONS |= {"coreference_hidden_size": 9, "coreference_feature_size": 5}
FEATURES = {"coreference_speakers": True, "coreference_num_genres": 3}
PAIRS = {"classifier_text_pairs": True}
ATTENTION = {"encoder_type": "decomposable", "decomposable_attend_sizes": [7, 5], "decomposable_compare_sizes": [6, 8]}
ATTENTION |= {"carry_state": True}
TWICE = {"elmo_at_output": True}
CLASSIFIERS = {
    "pooled": {},
    "layer norm": {"scalar_mix_layer_norm": True, "classifier_pooling": "max"},
    "pairs": PAIRS,
    "last": {**BILSTM, **TWICE, "classifier_pooling": "last"},
    "biattentive": {**BILSTM, "encoder_type": "biattentive", "classifier_hidden_size": 13},
    "spelled": {**CHARACTERS, "word_characters_hidden_size": 5},
    "maxout": {**BILSTM, "encoder_type": "biattentive", "classifier_maxout_sizes": [9, 6], "classifier_maxout_pool": 3},
    "decomposable": {**PAIRS, **ATTENTION, "classifier_hidden_size": 9, "classifier_activation": "tanh"},
    "esim": {**BILSTM, **TWICE, **PAIRS, "encoder_type": "esim"},
}
HEADS = {
    **{name: (CLASSIFIER, {"num_labels": 3, **fields}) for name, fields in CLASSIFIERS.items()},
    "tagger": (TAGGER, TAGS),
    "crf": (TAGGER, {**TAGS, **CRF}),
    "roles": (TAGGER, {**TAGS, **ROLES, "tagging_scheme": "IOB2"}),
    "highway": (TAGGER, {**TAGS, **HIGHWAY, **CHARACTERS}),
    "answers": (READER, {"encoder_hidden_size": 5}),
    "no answer": (READER, {**FLOW, **TWICE, "allow_no_answer": True, "encoder_num_layers": 2}),
    "bidaf": (READER, {**FLOW, **TWICE, "encoder_type": "bidaf", "bidaf_modeling_size": 4, "bidaf_end_size": 3}),
    "resolver": (RESOLVER, {**MENTIONS, "coreference_refinements": 0}),
    "resolver 2018": (RESOLVER, {**MENTIONS, **BILSTM, **FEATURES, "coreference_refinements": 2}),
}
MODELS = {"no head": (ElmoModel, {}), "words": (ElmoModel, {"char_filters": [], "word_vocab_size": len(WORDS) + 4})}
MODELS |= {"language models": (ElmoForPreTraining, {"vocab_size": 31}), **HEADS}
# A head of each network.
NETWORKS = ["spelled", "biattentive", "esim", "decomposable", "crf", "roles", "highway", "no answer", "bidaf"]
NETWORKS += ["resolver 2018"]
NO_DROPOUT = {"encoder_dropout": 0.0, "classifier_dropout": 0.0}


def make(head: str, seed: int = 0, **changes: object) -> torch.nn.Module:
    model_class, fields = MODELS[head]
    return small_model(model_class, seed, **{**fields, **changes})


def make_new(head: str, seed: int = 0, **changes: object) -> torch.nn.Module:
    """A model of initial weights, whose gates are not at their limits, where a small error becomes a large one."""
    model = make(head, **changes)
    torch.manual_seed(seed)
    return type(model)(model.config).eval()


def word_positions(batch: dict[str, Tensor]) -> Tensor:
    return batch["attention_mask"].bool() & (batch["input_ids"][:, :, 1] < 257)


def batch_of(tokenizer, head: str, side: str = "right", rows: slice = slice(None), words: bool = False) -> dict:
    """What a head reads, with labels: four texts or pairs, or three documents; with `words`, ids of word vectors."""
    model_class, fields = MODELS[head]
    tokenizer.word_characters = "word_characters" in fields
    tokenizer.padding_side, tokenizer.words = side, WORDS if words else None
    tokenizer.embeds_words, tokenizer.vocabulary = head == "words", ["<S>", "</S>", "<UNK>", *WORDS]
    if model_class is RESOLVER:
        documents = [encode_document(tokenizer, *each) for each in zip(DOCUMENTS, CLUSTERS, SPEAKERS, strict=True)]
        return dict(CoreferenceCollator(tokenizer)([{**row, "genre_ids": i} for i, row in enumerate(documents)][rows]))
    texts = (SENTENCES, SECOND) if "classifier_text_pairs" in fields else (SENTENCES,)
    texts = (QUESTIONS, PASSAGES) if model_class is READER else texts
    batch = dict(tokenizer(*(each[rows] for each in texts), padding=True, return_tensors="pt"))
    if model_class is ElmoModel:
        return batch
    if model_class is ElmoForPreTraining:
        mask = batch["attention_mask"]
        return {**batch, "labels": neighbor_labels(torch.arange(mask.numel()).view_as(mask) % 31, mask)}
    if model_class is READER:
        return {**batch, "start_positions": STARTS[rows], "end_positions": ENDS[rows]}
    if model_class is CLASSIFIER:
        return {**batch, "labels": torch.tensor([2, 0, 1, 1])[rows]}
    if "tagging_indicator_size" in fields:  # the second word is the predicate, or the only one
        place = word_positions(batch).cumsum(1)
        predicate = place == place.amax(1, keepdim=True).clamp(max=2)
        batch["token_type_ids"] = (word_positions(batch) & predicate).long()
    labels = torch.tensor([1, 2, 0, 3, 4])[(word_positions(batch).cumsum(1) - 1) % 5]  # as IOB2 allows them
    return {**batch, "labels": labels.masked_fill(~word_positions(batch), -100)}


def tensors_of(output: dict) -> dict[str, Tensor]:
    return {name: value for name, value in output.items() if isinstance(value, Tensor) and name != "loss"}


def labels_of(batch: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: batch[name] for name in ("labels", "start_positions", "end_positions") if name in batch}


def without_labels(batch: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value for name, value in batch.items() if name not in labels_of(batch)}


def loss_of(model: torch.nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """Of a model without a head a number that depends on every output."""
    torch.manual_seed(0)
    if not isinstance(model, ElmoModel):
        return model(**batch).loss
    output = model(**batch, use_cache=True)
    return sum(part.square().sum() for part in (output.last_hidden_state, output.pooler_output, *output.state))


def gradients_of(model: torch.nn.Module, batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """Those of the loss, for the parameters that have one."""
    model.zero_grad()
    loss_of(model, batch).backward()
    return {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}


def stored(model: torch.nn.Module, batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """The batch with the layers of the biLM in place of `input_ids`."""
    marker = batch["input_ids"][:, :, 1]
    inputs = ElmoInputs(batch["input_ids"], batch["attention_mask"], output_hidden_states=True)
    layers = torch.stack(model.read_words(inputs).hidden_states, dim=2).detach()
    others = {name: value for name, value in batch.items() if name != "input_ids"}
    return {**others, "bilm_layers": layers, "special_tokens_mask": ((marker == 257) | (marker == 258)).long()}
