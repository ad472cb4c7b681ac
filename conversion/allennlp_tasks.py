"""Reads the head of a task's model of AllenNLP: the encoder, the labels, and what stands beside ELMo.

There is one function for each `type` of AllenNLP's models. It takes the tensors and the settings that it knows; one
that is left, or whose value it does not know, is an error, because the predictions might be others. Sizes are compared
when the model loads the tensors.
"""

import re
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from hf_elmo import names
from hf_elmo.configuration_elmo import FIRST_VECTOR_ID, UNKNOWN_ID, WORD_BEGIN_ID, WORD_END_ID, ElmoConfig
from hf_elmo.modeling_tagging_elmo import allowed_transitions

from .checkpoint import SCALAR_MIX, NamedArrays, Source

# Settings of any part that change only its training, or only how a model is made or evaluated.
UNREAD = ["calculate_span_f1", "dropout", "embedding_dropout", "ignore_loss_on_o_tags", "ignore_span_metric"]
UNREAD += ["initializer", "integrator_dropout", "label_smoothing", "layer_dropout_probability", "pretrained_file"]
UNREAD += ["recurrent_dropout_probability", "regularizer", "sparse", "srl_eval_path", "trainable", "verbose_metrics"]
UNREAD += ["options_file", "scalar_mix_parameters", "weight_file"]  # of an ELMo, which `read_elmo` reads
UNREAD += ["mask_lstms", "min_padding_length", "namespace_to_cache", "vocab_to_cache"]  # without effect on vectors
# What the names and the shapes of the tensors tell.
UNREAD += ["bidirectional", "embedding_dim", "hidden_dims", "hidden_size", "include_start_end_transitions", "input_dim"]
UNREAD += ["input_size", "num_embeddings", "num_layers", "tensor_1_dim", "tensor_2_dim", "use_highway"]
UNREAD += ["use_input_projection_bias"]
SCHEMES = {None: None, "BIO": "IOB2", "BIOUL": "BIOUL", "IOB1": "IOB1"}
EMBEDDERS = {"embedding": "words", "character_encoding": "characters", "elmo_token_embedder": "elmo"}
BYTES = {"byte_encoding": "utf-8", "start_tokens": [WORD_BEGIN_ID], "end_tokens": [WORD_END_ID]}
PARTS = (*EMBEDDERS.values(), "indicator")  # in the order in which heads here concatenate them
Columns = dict[str, int]  # the sizes of these parts in AllenNLP's order
ONLY_BILM = "convert its biLM alone with bilm_only=True"


class Settings(dict):
    """A part of `config.json`, whose settings are taken by name. One left at the end of a `with` block is an error, if
    it is not null, which asks for nothing."""

    def __init__(self, values: Any, where: str) -> None:
        super().__init__(values if isinstance(values, dict) else {"type": values})
        self.where = where

    def part(self, name: str) -> "Settings":
        return Settings(self.pop(name, {}), f"{self.where}.{name}")

    def only(self, name: str, **allowed: Any) -> None:
        """Takes a part that has only these settings, as in [`expect`]."""
        with self.part(name) as part:
            part.expect(**allowed)

    def expect(self, **allowed: Any) -> Any:
        """Takes settings, each of which must have, or if missing has, the value given, or one of a tuple of values."""
        for name, values in allowed.items():
            values = values if isinstance(values, tuple) else (values,)
            if (found := self.pop(name, values[0])) not in values:
                raise self.unknown(name, found)
        return found

    def unknown(self, name: str, value: Any) -> ValueError:
        return ValueError(f"config.json: {self.where}.{name} is {value!r}, which no head here has: {ONLY_BILM}.")

    def __enter__(self) -> "Settings":
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        left = [name for name, value in self.items() if value is not None and name not in UNREAD]
        if left and kind is None:
            raise self.unknown(left[0], self[left[0]])


class Archive:
    """The tensors that no function has taken yet, the `source` to which the others are added, and the `fields` of its
    configuration."""

    def __init__(self, folder: Path, tensors: NamedArrays, reader: Settings, source: Source) -> None:
        self.folder = folder
        self.source = source
        self.fields = source.config.to_dict()
        self.arrays = source.arrays
        # Without the names of wrappers, and as before AllenNLP 1.0.
        self.tensors = {re.sub(r"\.(_module|cell|_similarity\w+)(?=\.)", "", name): x for name, x in tensors.items()}
        self.indexers = reader.part("token_indexers")
        reader.expect(max_sequence_length=None, passage_length_limit=None, question_length_limit=None)
        if reader.get("type") == "squad2":  # which puts a word for no answer after each passage
            raise reader.unknown("type", "squad2")
        with reader.part("tokenizer") as tokenizer:
            for name in ("type", "language", "pos_tags", "split_on_spaces", "word_splitter"):
                tokenizer.pop(name, None)  # how texts are split: heads here are given words
            words = tokenizer.pop("end_tokens", None) or [None]
            if len(words) > 1:
                raise tokenizer.unknown("end_tokens", words)
        source.tokenizer["null_word"] = words[0]

    def move(self, names: dict[str, str]) -> None:
        """Takes tensors, or all tensors of modules, which have the names of PyTorch. (The model that loads them names
        those that it lacks or does not have.)"""
        for theirs, ours in names.items():
            for name in [name for name in self.tensors if f"{name}.".startswith(f"{theirs}.")]:
                self.arrays[ours + name.removeprefix(theirs)] = self.tensors.pop(name)

    def vocabulary(self, namespace: str) -> list[str]:
        """The entries of a vocabulary, which may hold other line breaks; of a padded one, those from id 2 on."""
        file = self.folder / "vocabulary" / f"{namespace}.txt"
        entries = file.read_bytes().decode("utf-8").replace("\r\n", "\n").removesuffix("\n").split("\n")
        if namespace != "labels" and entries.pop(0) != "@@UNKNOWN@@":
            raise ValueError(f"{file} does not begin with @@UNKNOWN@@.")
        return entries

    def embed(self, part: Settings, name: str) -> Columns:
        """Takes a text field embedder, the module `name`: word vectors, features of characters and ELMo, each once."""
        with part:
            part.expect(type=(None, "basic"), allow_unmatched_keys=(False, True))
            if "token_embedders" not in part:  # before AllenNLP 1.0
                part["token_embedders"] = {name: part.pop(name) for name in list(part)}
            embedders = part.pop("token_embedders")
        columns: Columns = {}
        for key in sorted(embedders):
            with Settings(embedders[key], f"{part.where}.{key}") as embedder, self.indexers.part(key) as indexer:
                indexer.expect(token_min_padding_length=0)
                kind = EMBEDDERS[embedder.expect(type=tuple(EMBEDDERS))]
                read = {"words": self.read_words, "characters": self.read_characters, "elmo": self.read_elmo}[kind]
                columns[kind] = read(embedder, indexer, f"{name}.token_embedder_{key}")
        return columns

    def read_elmo(self, embedder: Settings, indexer: Settings, name: str) -> int:
        if embedder.pop("do_layer_norm", None) in (True, "true") and self.fields["carry_state"]:  # of both texts
            raise embedder.unknown("do_layer_norm", True)
        indexer.expect(type="elmo_characters", namespace="elmo_characters")
        self.fields["freeze_bilm"] = embedder.pop("requires_grad", None) in (None, False, "false")
        return self.fields["hidden_size"]

    def read_words(self, embedder: Settings, indexer: Settings, name: str) -> int:
        embedder.expect(vocab_namespace="tokens")
        indexer.expect(type="single_id", namespace="tokens")
        self.source.tokenizer["word_case"] = "lower" if indexer.pop("lowercase_tokens", None) else "cased"
        self.source.words = words = self.vocabulary("tokens")
        table = self.tensors.pop(f"{name}.weight")[1 : len(words) + 2]
        size = table.shape[1]
        # Before the unknown word, padding and boundaries, which have no vector.
        self.arrays["head.word_vectors.weight"] = np.pad(table, ((UNKNOWN_ID, 0), (0, 0)))
        self.fields |= {"word_vectors_vocab_size": len(words) + FIRST_VECTOR_ID, "word_vectors_size": size}
        self.fields["freeze_word_vectors"] = embedder.pop("trainable", None) in (False, "false")
        return size

    def read_characters(self, embedder: Settings, indexer: Settings, name: str) -> int:
        indexer.expect(type="characters", namespace="token_characters")
        of_bytes = indexer.expect(character_tokenizer=(None, BYTES)) is not None
        characters = [chr(i) for i in range(2, WORD_END_ID + 1)] if of_bytes else self.vocabulary("token_characters")
        embedder.only("embedding", type="embedding", vocab_namespace=("tokens", "token_characters"))
        # Most often the table has the rows of a vocabulary of words, of which the characters' are read.
        kept = [row for row, character in enumerate(characters, 2) if len(character) == 1]
        table = self.tensors.pop(f"{name}._embedding.weight")[[1, *kept]]
        ours = "head.word_characters"
        self.arrays[f"{ours}.embedding.weight"] = np.pad(table, ((1, 0), (0, 0)))
        self.fields["word_characters"] = "".join(characters[row - 2] for row in kept)
        self.fields["word_characters_size"] = table.shape[1]
        self.source.tokenizer["word_characters"] = "bytes" if of_bytes else True
        with embedder.part("encoder") as encoder:
            if encoder.expect(type=("cnn", "lstm")) == "lstm":
                self.move({f"{name}._encoder": f"{ours}.lstm"})
                size = self.arrays[f"{ours}.lstm.weight_hh_l0"].shape[1]
                self.fields |= {"word_characters_hidden_size": size, "word_characters_filters": []}
                return size
            encoder.expect(conv_layer_activation="relu")
            filters = encoder.pop("num_filters", None)
            widths = encoder.pop("ngram_filter_sizes", (2, 3, 4, 5))
            self.move({f"{name}._encoder.conv_layer_{i}": f"{ours}.convolutions.{i}" for i, _ in enumerate(widths)})
            self.fields["word_characters_filters"] = [[width, filters] for width in widths]
            return filters * len(widths)

    def encode(self, part: Settings, name: str, columns: Columns, network: str | None = None) -> None:
        """Takes an encoder of words, the module `name`, which reads these columns, if any; in a `network`, an LSTM."""
        ours = "head.encoder.bilstm"
        with part:
            kind = part.expect(type=("lstm", *(() if network else ("alternating_lstm", "stacked_bidirectional_lstm"))))
            layers = part.pop("num_layers", 1)
            names = {"lstm": "bilstm", "alternating_lstm": "alternating", "stacked_bidirectional_lstm": "highway"}
            self.fields["encoder_type"] = network or names[kind]
            self.fields |= {"encoder_hidden_size": part.pop("hidden_size", None), "encoder_num_layers": layers}
            if kind == "lstm":
                self.move({name: f"{ours}.lstm"})
                firsts = [f"{ours}.lstm.weight_ih_l0", f"{ours}.lstm.weight_ih_l0_reverse"]
            else:
                self.fields["encoder_recurrent_dropout"] = part.pop("recurrent_dropout_probability", 0.0)
                directions = ("",) if kind == "alternating_lstm" else ("forward_", "backward_")
                cells = [f"{name}.{direction}layer_{i}" for i in range(layers) for direction in directions]
                for i, cell in enumerate(cells):
                    self.highway_cell(cell, f"{ours}.layers.{i}")
                firsts = [f"{ours}.layers.{i}.weight_ih" for i, _ in enumerate(directions)]
        for first in firsts if columns else ():
            self.reorder(first, columns)

    def read_pairs(self, model: Settings) -> None:
        model.only("matrix_attention", type="dot_product")
        self.fields |= {"classifier_text_pairs": True, "carry_state": True}

    def reorder(self, name: str, columns: Columns, order: Sequence[str] = PARTS, axis: int = -1) -> None:
        """Puts the columns of a weight, of one or several such vectors, into this order from AllenNLP's."""
        ends = dict(zip(columns, accumulate(columns.values()), strict=True))
        index = [np.arange(ends[part] - columns[part], ends[part]) for part in order if part in columns]
        weight = np.moveaxis(self.arrays[name], axis, -1)
        vectors = weight.reshape(-1, sum(columns.values()))[:, np.concatenate(index)]
        self.arrays[name] = np.moveaxis(vectors.reshape(weight.shape), -1, axis)

    def highway_cell(self, cell: str, ours: str) -> None:
        """Only the linear map of the state has a bias, which lacks the highway's input, or both maps have one."""
        bias = self.tensors.pop(f"{cell}.state_linearity.bias")
        bias = np.pad(bias, (0, len(bias) // 5))
        self.arrays[f"{ours}.bias"] = bias + self.tensors.pop(f"{cell}.input_linearity.bias", 0)
        weights = {"input_linearity.weight": "weight_ih", "state_linearity.weight": "weight_hh"}
        self.move({f"{cell}.{theirs}": f"{ours}.{own}" for theirs, own in weights.items()})


def dense(archive: Archive, model: Settings, name: str, wanted: list[str], *ours: str) -> list[int]:
    """Takes a feed-forward network with the activations `wanted`; its layers become `ours`. Returns their sizes."""
    with model.part(name) as part:
        found = part.pop("activations", None)
        if (found if isinstance(found, list) else [found] * len(ours)) != wanted:
            raise part.unknown("activations", found)
    archive.move({f"_{name}._linear_layers.{i}": own for i, own in enumerate(ours)})
    return [len(archive.arrays[f"{own}.bias"]) for own in ours]


def crf_tagger(archive: Archive, model: Settings) -> None:
    columns = archive.embed(model.part("text_field_embedder"), "text_field_embedder")
    archive.encode(model.part("encoder"), "encoder", columns)
    if model.get("feedforward"):
        activation = "tanh" if model["feedforward"].get("activations") in ("tanh", ["tanh"]) else "relu"
        (hidden,) = dense(archive, model, "feedforward", [activation], "head.dense")
        archive.fields |= {"classifier_hidden_size": hidden, "classifier_activation": activation}
    archive.move({"tag_projection_layer": "head.out_proj", "crf.transitions": "head.crf.transitions"})
    labels = list(archive.fields["id2label"].values())
    encoding = model.expect(label_encoding=tuple(SCHEMES))
    scheme = SCHEMES[encoding] if model.pop("constrain_crf_decoding", None) in (None, True) else None
    allowed = np.ones((len(labels) + 1,) * 2, bool) if scheme is None else np.array(allowed_transitions(labels, scheme))
    theirs = archive.tensors.pop("crf._constraint_mask").astype(bool)
    theirs = np.delete(np.delete(theirs, -1, axis=0), -2, axis=1)  # nothing follows the end, nor precedes the start
    if (theirs != allowed)[:-1].any() or (theirs != allowed)[-1, :-1].any():
        raise model.unknown("label_encoding", encoding)
    for name in ("start", "end"):  # without these scores, zeros
        scores = archive.tensors.pop(f"crf.{name}_transitions", np.zeros(len(labels), np.float32))
        archive.arrays[f"head.crf.{name}"] = scores
    model.expect(label_namespace="labels", top_k=1)
    archive.fields |= {"tagging_crf": True, "tagging_scheme": scheme}
    archive.fields |= dict.fromkeys(("encoder_dropout", "classifier_dropout"), model.pop("dropout", None) or 0.0)


def srl(archive: Archive, model: Settings) -> None:
    columns = archive.embed(model.part("text_field_embedder"), "text_field_embedder")
    columns["indicator"] = model.pop("binary_feature_dim", None)
    archive.encode(model.part("encoder"), "encoder", columns)
    archive.move({"binary_feature_embedding": "head.indicator", "tag_projection_layer": "head.out_proj"})
    archive.fields |= {"tagging_indicator_size": columns["indicator"], "tagging_sums_probabilities": True}
    archive.fields["tagging_scheme"] = "IOB2"
    archive.fields |= {"encoder_dropout": model.pop("embedding_dropout", 0.0), "classifier_dropout": 0.0}


def bcn(archive: Archive, model: Settings) -> None:
    columns = archive.embed(model.part("text_field_embedder"), "_text_field_embedder")
    model.expect(use_input_elmo=True, use_integrator_output_elmo=False)
    with model.part("elmo") as elmo, archive.indexers.part("elmo") as indexer:
        elmo.expect(num_output_representations=1, keep_sentence_boundaries=False)
        columns["elmo"] = archive.read_elmo(elmo, indexer, "_elmo")
    dense(archive, model, "pre_encode_feedforward", ["relu"], "head.encoder.feedforward")
    archive.reorder("head.encoder.feedforward.weight", columns)
    archive.encode(model.part("encoder"), "_encoder", {}, "biattentive")
    model.only("integrator", type="lstm")
    archive.move({"_integrator": "head.interaction.integrator.lstm"})
    archive.move({"_self_attentive_pooling_projection": "head.interaction.attention.scores"})
    with model.part("output_layer") as output:
        sizes = output.pop("output_dims", [])
        pools = output.pop("pool_sizes", None)
        pool, *others = set(pools) if isinstance(pools, list) else [pools]
        if others:
            raise output.unknown("pool_sizes", pools)
    ours = [*(f"head.maxouts.{i}.linear" for i, _ in enumerate(sizes[:-1])), "head.out_proj.linear"]
    archive.move({f"_output_layer._linear_layers.{i}": name for i, name in enumerate(ours)})
    pooled = dict.fromkeys(("max", "min", "mean", "attention"), archive.arrays[f"{ours[0]}.weight"].shape[1] // 4)
    archive.reorder(f"{ours[0]}.weight", pooled, ("max", "mean", "min", "attention"))
    archive.fields |= {"classifier_maxout_sizes": sizes[:-1], "classifier_maxout_pool": pool}
    archive.fields["encoder_dropout"] = model.pop("embedding_dropout", 0.0)


def esim(archive: Archive, model: Settings) -> None:
    archive.read_pairs(model)
    columns = archive.embed(model.part("text_field_embedder"), "_text_field_embedder")
    archive.encode(model.part("encoder"), "_encoder", columns, "esim")
    dense(archive, model, "projection_feedforward", ["relu"], "head.interaction.combine")
    model.only("inference_encoder", type="lstm")
    archive.move({"_inference_encoder": "head.interaction.composition.lstm"})
    (hidden,) = dense(archive, model, "output_feedforward", ["relu"], "head.dense")
    dense(archive, model, "output_logit", ["linear"], "head.out_proj")
    dropout = model.pop("dropout", 0.5)
    archive.fields |= {"classifier_hidden_size": hidden, "encoder_dropout": dropout, "classifier_dropout": dropout}


def decomposable_attention(archive: Archive, model: Settings) -> None:
    archive.read_pairs(model)
    columns = archive.embed(model.part("text_field_embedder"), "_text_field_embedder")
    for part in ("attend", "compare"):  # what is compared are two vectors
        ours = [f"head.interaction.{part}.{i}" for i in range(model[f"{part}_feedforward"]["num_layers"])]
        sizes = dense(archive, model, f"{part}_feedforward", ["relu"] * len(ours), *ours)
        archive.reorder(f"{ours[0]}.weight", columns)
        archive.fields[f"decomposable_{part}_sizes"] = sizes
    hidden, _ = dense(archive, model, "aggregate_feedforward", ["relu", "linear"], "head.dense", "head.out_proj")
    archive.fields |= {"encoder_type": "decomposable", "classifier_hidden_size": hidden}


def bidaf(archive: Archive, model: Settings) -> None:
    archive.fields |= {"carry_state": True, "bidaf_highway_layers": model.pop("num_highway_layers", None)}
    columns = archive.embed(model.part("text_field_embedder"), "_text_field_embedder")
    for i in range(archive.fields["bidaf_highway_layers"]):
        ours = f"head.highways.{i}"
        archive.move({f"_highway_layer._layers.{i}": ours})
        archive.reorder(f"{ours}.weight", columns)
        for part in ("weight", "bias"):
            archive.reorder(f"{ours}.{part}", columns, axis=0)
            transform, carry = np.split(archive.arrays.pop(f"{ours}.{part}"), 2)  # as of the biLM's highways
            archive.arrays |= {f"{ours}.transform.{part}": transform, f"{ours}.carry.{part}": -carry}
    archive.encode(model.part("phrase_layer"), "_phrase_layer", columns, "bidaf")
    model.only("matrix_attention", type="linear", combination="x,y,x*y")
    parts = [f"head.flow.similarity.of_{part}" for part in ("x", "y", "both")]
    archive.arrays |= zip(parts, np.split(archive.tensors.pop("_matrix_attention._weight_vector"), 3), strict=True)
    archive.tensors.pop("_matrix_attention._bias")  # has no effect on a softmax
    archive.fields["bidaf_modeling_layers"] = model["modeling_layer"].get("num_layers", 1)
    for theirs, part in (("modeling_layer", "modeling"), ("span_end_encoder", "end")):
        model.only(theirs, type="lstm")
        archive.fields[f"bidaf_{part}_size"] = archive.tensors[f"_{theirs}.weight_hh_l0"].shape[1]
        archive.move({f"_{theirs}": f"head.{part}_bilstm.lstm"})
    archive.move({f"_span_{part}_predictor": f"head.{part}" for part in ("start", "end")})
    archive.fields |= dict.fromkeys(("encoder_dropout", "classifier_dropout"), model.pop("dropout", 0.2))


CLASSES = {"TokenClassification": (crf_tagger, srl), "QuestionAnswering": (bidaf,)}
CLASSES |= {"SequenceClassification": (bcn, esim, decomposable_attention)}
TYPES = {each.__name__: (each, f"ElmoFor{name}") for name, own in CLASSES.items() for each in own}


def read_head(folder: Path, settings: dict[str, Any], tensors: NamedArrays, source: Source) -> Source:
    """Adds the head with these settings and tensors to a biLM; ValueError for a type, a setting or a tensor that is not
    known."""
    reader = Settings(settings.get("validation_dataset_reader") or settings.get("dataset_reader"), "dataset_reader")
    archive = Archive(folder, tensors, reader, source)
    with Settings(settings.get("model"), "model") as model:
        read, architecture = TYPES[model.expect(type=tuple(TYPES))]
        archive.fields["architectures"] = [architecture]
        if read is not bidaf:
            archive.fields["id2label"] = dict(enumerate(archive.vocabulary("labels")))
        model.setdefault("matrix_attention", model.pop("similarity_function", None))  # before AllenNLP 1.0
        read(archive, model)
    if archive.tensors:
        raise ValueError(f"{folder / 'weights.th'} has {min(archive.tensors)!r}, which no head here has: {ONLY_BILM}.")
    source.config = ElmoConfig.from_dict(archive.fields)
    arrays = source.arrays | {f"head.{name}": source.arrays[name] for name in SCALAR_MIX}
    head = getattr(names, architecture).head_name
    source.arrays = {re.sub("^head", head, name): array for name, array in arrays.items()}
    return source
