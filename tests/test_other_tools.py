"""Other tools on models and checkpoints: pipelines, sentence-transformers, spaCy, scikit-learn, torchao, PEFT."""

import pickle
import shutil
from dataclasses import replace
from pathlib import Path
from types import MethodType, ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from accelerate import disk_offload
from torch import distributed, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard
from transformers import TokenClassificationPipeline, TorchAoConfig, pipeline

import hf_elmo
from hf_elmo import ElmoForPreTraining, ElmoForSequenceClassification, ElmoForTokenClassification
from hf_elmo import ElmoTokenizer as Tokenizer
from tests import heads
from tests.factories import SENTENCES, save_checkpoint, small_model, word_level
from tests.heads import HEADS, MODELS, NETWORKS, batch_of, gradients_of, make, make_new, tensors_of, without_labels

NAMES = {0: "contradiction", 1: "neutral", 2: "entailment"}
TEXTS = ["The bank failed. It closed.", "", "A river bank"]
LINEAR = ["carry", "transform", "projection"]
RECURRENT = [f"lstm.weight_{part}{suffix}" for part in ("ih", "hh", "hr") for suffix in ("", "_reverse")]
LSTM = {"target_modules": LINEAR, "target_parameters": RECURRENT}
CHARACTERS = {"target_modules": r".*convolutions\.\d+|.*embedding|.*projection"}
TASKS = {  # of each head, the type of PEFT's tasks, fields of its configuration, and what adapters are for
    "last": ("SEQ_CLS", {"classifier_hidden_size": 9}, LSTM),
    "biattentive": ("SEQ_CLS", {"elmo_at_output": True}, CHARACTERS),
    "tagger": ("TOKEN_CLS", {"encoder_type": "bilstm", "encoder_hidden_size": 7, "tagging_crf": True}, LSTM),
    "roles": ("TOKEN_CLS", {}, {"target_modules": LINEAR}),
    "no answer": ("QUESTION_ANS", {}, {"target_modules": LINEAR}),
    "resolver 2018": (None, {}, {"target_modules": LINEAR}),
}


def classifier(**fields: object) -> torch.nn.Module:
    return small_model(ElmoForSequenceClassification, **{"id2label": NAMES, **fields})


@torch.no_grad()
def alone(model: torch.nn.Module, *texts: str) -> Any:
    """The output for one text or pair."""
    return model(**Tokenizer()(*texts, return_tensors="pt"))


def test_feature_extraction(tmp_path):
    model = small_model()
    folder = save_checkpoint(tmp_path, model, Tokenizer())
    features = pipeline("feature-extraction", model=str(folder))(SENTENCES, batch_size=3)
    for sentence, found in zip(SENTENCES, features, strict=True):
        expected, found = alone(model, sentence).last_hidden_state[0], np.array(found)[0]
        np.testing.assert_allclose(found[: len(expected)], expected, atol=1e-5)
        assert not found[len(expected) :].any()


def test_classification_of_pairs(tmp_path) -> None:
    model = classifier(classifier_text_pairs=True)
    folder = save_checkpoint(tmp_path, model, Tokenizer())
    texts = [{"text": one, "text_pair": one[::-1]} for one in SENTENCES]
    results = pipeline("text-classification", model=str(folder), top_k=None)(texts, batch_size=3)
    for sentence, result in zip(SENTENCES, results, strict=True):
        expected = alone(model, sentence, sentence[::-1]).logits[0].softmax(0).tolist()
        found = {entry["label"]: entry["score"] for entry in result}
        assert found == pytest.approx(dict(zip(NAMES.values(), expected, strict=True)), abs=1e-5)


def test_a_checkpoint_is_a_sentence_transformer(tmp_path) -> None:
    transformer = pytest.importorskip("sentence_transformers").SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize

    # The vectors are those of a model without a head.
    assert not (save_checkpoint(tmp_path / "classifier", classifier()) / "modules.json").exists()
    model = small_model()
    sentences = transformer(str(save_checkpoint(tmp_path / "base", model, Tokenizer())), device="cpu")
    expected = torch.cat([alone(model, sentence).pooler_output for sentence in SENTENCES])
    np.testing.assert_allclose(sentences.encode(SENTENCES, batch_size=3), expected, atol=1e-6)
    sentences.append(Normalize())
    sentences.save(str(tmp_path / "unit"))
    model.save_pretrained(tmp_path / "unit")  # the modules are those of sentence-transformers
    lengths = np.linalg.norm(transformer(str(tmp_path / "unit"), device="cpu").encode(SENTENCES), axis=1)
    np.testing.assert_allclose(lengths, 1, atol=1e-6)


def test_cross_encoder(tmp_path) -> None:
    cross_encoder = pytest.importorskip("sentence_transformers").CrossEncoder
    model = classifier(classifier_text_pairs=True, id2label={0: "similar"})
    encoder = cross_encoder(str(save_checkpoint(tmp_path, model, Tokenizer())), device="cpu")
    expected = [alone(model, SENTENCES[0], text).logits[0, 0].sigmoid().item() for text in SENTENCES[1:]]
    found = encoder.predict([[SENTENCES[0], text] for text in SENTENCES[1:]])
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("strategy", ["simple", "max"])
@pytest.mark.parametrize("crf", [True, False], ids=["crf", "no crf"])
def test_spans_of_a_tagger_are_those_of_its_scheme(tmp_path, crf: bool, strategy: str) -> None:
    tags = ["O", "B-PER", "I-PER", "E-PER", "S-PER"]
    fields = {"tagging_crf": crf, "tagging_scheme": "BIOES" if crf else None, "id2label": dict(enumerate(tags))}
    model = small_model(ElmoForTokenClassification, **fields)
    sequence = torch.tensor([1, 2, 3, 0, 4, 4])  # of "Anna Maria Smith met Ann Bo"
    model.classifier.forward = lambda words, *_: 20.0 * torch.nn.functional.one_hot(sequence[None], 5)
    folder = save_checkpoint(tmp_path, model)
    how = {"aggregation_strategy": strategy, "ignore_labels": [], "device": "cpu"}
    tag = pipeline("ner", model=model, tokenizer=Tokenizer(), **how)
    found = tag("Anna Maria Smith met Ann Bo")
    spans = [("PER", "Anna Maria Smith"), ("O", "met"), ("PER", "Ann"), ("PER", "Bo")]
    assert [(span["entity_group"], span["word"]) for span in found] == spans
    for name in ("ner", "token-classification"):  # transformers' own pipeline would not decode the tags
        with pytest.raises(ValueError, match="trust_remote_code"):
            pipeline(name, model=str(folder))
    other = TokenClassificationPipeline.__new__(TokenClassificationPipeline)  # of a model that asks the tagger
    MethodType(lambda self: (lambda: hasattr(model, "hf_device_map"))(), other)()
    assert type(other) is TokenClassificationPipeline


@pytest.fixture
def folder(tmp_path) -> Path:
    return save_checkpoint(tmp_path / "elmo", small_model(), Tokenizer())


def test_spacy(spacy, folder, tmp_path) -> None:
    nlp = spacy.blank("en")
    nlp.add_pipe("sentencizer")
    nlp.add_pipe("elmo", config={"model": str(folder)})
    first, blank, other = nlp.pipe(TEXTS)
    vectors = np.concatenate(hf_elmo.embed(folder, ["The bank failed.", "It closed."]))
    np.testing.assert_allclose([token.vector for token in first], vectors, atol=1e-6)
    np.testing.assert_allclose(first.vector, vectors.mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(first[1:3].vector, vectors[1:3].mean(axis=0), atol=1e-6)
    assert blank.vector.shape == (22,)
    assert blank.similarity(first) == 0
    bank, bank_of_river = first[1], other[2]
    assert bank.similarity(bank) == pytest.approx(1)
    assert bank.similarity(bank_of_river) < 0.999  # spaCy's own is 1 for equal words
    spaces = nlp("\n The  bank\tfailed .\n\nIt closed. ")
    assert [not token.vector.any() for token in spaces] == [token.is_space for token in spaces]
    np.testing.assert_allclose([token.vector for token in spaces if not token.is_space], vectors, atol=1e-6)
    np.testing.assert_allclose(spaces[1:5].vector, vectors[:2].mean(axis=0), atol=1e-6)
    assert not nlp(" \n ").vector.any()
    example = spacy.training.Example.from_dict(nlp.make_doc("a"), {})
    nlp.add_pipe("tok2vec").initialize(lambda: [example], nlp=nlp)  # it replaces `doc.tensor`
    for part in (nlp(TEXTS[0]), nlp(TEXTS[0])[0]):
        with pytest.raises(ValueError, match="add 'elmo' after it"):
            _ = part.vector


def test_spacy_keeps_the_model_of_a_pipeline(spacy, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = save_checkpoint(Path("elmo"), *word_level(tmp_path, ["A", "bank"]))  # whose words are in a file
    expected = np.concatenate(hf_elmo.embed(folder, ["A bank"]))
    made, late = spacy.blank("en"), spacy.blank("en")
    made.add_pipe("elmo", config={"model": "elmo"})
    made.to_disk("pipeline")
    save_checkpoint(Path("elmo"), small_model(num_hidden_layers=1), Tokenizer())
    pipelines = [made, spacy.load("pipeline"), type(made).from_config(made.config).from_bytes(made.to_bytes())]
    for folder in ("elmo", "pipeline"):
        shutil.rmtree(folder)
    pipelines += [type(nlp).from_config(nlp.config).from_bytes(nlp.to_bytes()) for nlp in pipelines]
    for nlp in pipelines:
        np.testing.assert_array_equal(nlp("A bank").tensor, expected)
    late.add_pipe("elmo", config={"model": "elmo"})
    with pytest.raises(FileNotFoundError, match="no folder 'elmo'"):
        late("A bank")


@pytest.mark.parametrize("frozen", [True, False])
def test_spacy_trains_on_elmo(spacy, folder, tmp_path, frozen: bool) -> None:
    """On a layer that components share, and on layers of their own; texts have whitespace, or no words."""
    layer = {"@architectures": "hf_elmo.Tok2Vec.v1", "model": str(folder), "freeze_bilm": frozen}
    listener = {"@architectures": "spacy.Tok2VecListener.v1", "width": 22}
    nlp = spacy.blank("en")
    nlp.add_pipe("tok2vec", config={"model": layer})
    for name, part in (("tagger", listener), ("ner", layer), ("textcat", layer)):
        nlp.add_pipe(name, config={"model": {"tok2vec": part}})
    nlp.add_pipe("parser", config={"model": {"tok2vec": listener}, "min_action_freq": 1})
    texts = [["Ann", "\n", "sat", "."], ["\t"], []]
    target = {"tags": ["A", "S", "B", "C"], "heads": [2, 2, 2, 2], "deps": ["x", "y", "ROOT", "z"]}
    target |= {"entities": ["U-PER", "O", "O", "O"], "cats": {"yes": 1.0, "no": 0.0}}

    def examples(nlp: Any) -> list[Any]:
        docs = (spacy.tokens.Doc(nlp.vocab, words) for words in texts)
        return [spacy.training.Example.from_dict(doc, target if len(doc) > 1 else {}) for doc in docs]

    optimizer = nlp.initialize(lambda: examples(nlp))
    losses = [nlp.update(examples(nlp), sgd=optimizer) for _ in range(9)]
    assert all(losses[-1][name] < losses[0][name] for name in ("tagger", "parser", "textcat"))
    before = dict(hf_elmo.ElmoModel.from_pretrained(folder).named_parameters())
    for name in ("tok2vec", "ner"):
        shim = next(node.shims[0] for node in nlp.get_pipe(name).model.walk() if node.name == "hf_elmo")
        changed = {name for name, weights in shim.parts[0].named_parameters() if (weights != before[name]).any()}
        assert changed == ({"scalar_mix.scalars", "scalar_mix.gamma"} if frozen else set(before))
    nlp.to_disk(tmp_path / "pipeline")
    shutil.rmtree(folder)
    read = type(nlp).from_config(nlp.config).from_bytes(nlp.to_bytes())
    found = []
    for one, processes in ((nlp, 1), (spacy.load(tmp_path / "pipeline"), 2), (read, 1)):
        docs = list(one.pipe([example.x for example in examples(one)], n_process=processes, batch_size=2))
        assert [not token.tensor.any() for doc in docs for token in doc] == [False, True, False, False, True]
        found.append([(doc.cats, *((token.tag_, token.dep_, token.ent_type_) for token in doc)) for doc in docs])
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("width", [22, 30])
def test_spacy_merges_tokens_after_elmo_as_without_it(spacy, folder, width: int) -> None:
    """The vocabulary has vectors, and those of merged tokens are of these: also of one token that it does not know."""
    vectors = {"New": np.ones(width), "York": np.full(width, 3)}
    elmo, plain = spacy.blank("en"), spacy.blank("en")
    elmo.add_pipe("elmo", config={"model": str(folder)})
    for nlp in (plain, elmo):
        nlp.vocab.reset_vectors(width=width)
        nlp.add_pipe("entity_ruler").add_patterns([{"label": "X", "pattern": name} for name in ("New York", "Zorblax")])
        nlp.add_pipe("merge_entities")
        for word, vector in vectors.items():
            nlp.vocab.set_vector(word, vector)
        for text in ("Zorblax is it", "Zorblax likes New York"):
            doc = nlp(text)
    assert [token.text for token in doc] == ["Zorblax", "likes", "New York"]
    for word in (token.text for token in doc):
        np.testing.assert_array_equal(elmo.vocab.get_vector(word), plain.vocab.get_vector(word))
    assert elmo.vocab.get_vector("New York").tolist() == [2] * width
    np.testing.assert_array_equal([token.vector for token in doc], doc.tensor)
    np.testing.assert_array_equal(doc[:2].vector, doc.tensor[:2].mean(axis=0))


def test_scikit_learn(folder) -> None:
    compose, vectorizer = pytest.importorskip("sklearn.compose"), hf_elmo.ElmoVectorizer(str(folder))
    expected = hf_elmo.embed(folder, TEXTS, pooling="mean")
    np.testing.assert_allclose(pickle.loads(pickle.dumps(vectorizer)).transform(TEXTS), expected, atol=1e-6)
    assert [hf_elmo.ElmoVectorizer(str(folder), layers=n).transform([]).shape for n in (0, "all")] == [(0, 22), (0, 66)]
    table = pd.DataFrame({"text": TEXTS, "number": [1.0, 2.0, 3.0]}, index=[5, 6, 7])
    columns = compose.ColumnTransformer([("elmo", vectorizer, "text")], remainder="passthrough")
    found = columns.set_output(transform="pandas").fit_transform(table)
    assert [*found.columns] == [*(f"elmo__elmovectorizer{place}" for place in range(22)), "remainder__number"]
    np.testing.assert_allclose(found.loc[table.index].iloc[:, :-1], expected, atol=1e-6)
    for of_folders in (hf_elmo.ElmoVectorizer(small_model()).transform, lambda _: hf_elmo.Embedder(small_model())):
        with pytest.raises(TypeError, match="not ElmoModel"):
            of_folders(TEXTS)


def test_scikit_learn_caches_vectors_until_the_folder_is_saved_again(tmp_path) -> None:
    pipeline = pytest.importorskip("sklearn.pipeline")
    vectorizer = hf_elmo.ElmoVectorizer(str(tmp_path / "model"))
    cached = pipeline.make_pipeline(vectorizer, "passthrough", memory=str(tmp_path / "cache"))
    for seed in (0, 1, 1):
        save_checkpoint(tmp_path / "model", small_model(seed=seed), Tokenizer())
        np.testing.assert_array_equal(cached.fit_transform(SENTENCES), vectorizer.transform(SENTENCES))
    assert len([*(tmp_path / "cache").rglob("output.pkl")]) == 2
    saved = pickle.dumps(vectorizer)
    save_checkpoint(tmp_path / "model", small_model(seed=0), Tokenizer())
    with pytest.raises(ValueError, match="changed"):
        pickle.loads(saved)


@torch.no_grad()
def test_offloaded_weights_give_the_same_numbers(tmp_path, tokenizer) -> None:
    batch, model = batch_of(tokenizer, "language models"), make("language models", num_sampled=7, settled_start=True)
    torch.nn.init.normal_(model.elmo.bilm.initial_cell)
    expected = tensors_of(model(**batch))
    disk_offload(model, tmp_path, execution_device=torch.device("cpu"))
    assert all(parameter.is_meta for parameter in model.parameters())
    torch.testing.assert_close(tensors_of(model(**batch)), expected, atol=1e-5, rtol=0)
    with pytest.raises(ValueError, match="lm_head"):  # a sampled softmax needs the weights themselves
        model.train()(**batch)


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_each_module_that_has_parameters_is_called(tokenizer, name: str) -> None:
    """So that the hooks of offloading, sharding and pruning run."""
    model, called = make(name), []
    for module in model.modules():
        module.register_forward_hook(lambda module, *_: called.append(module))
    model(**batch_of(tokenizer, name))
    others = {name: module for name, module in model.named_modules() if module not in called}
    missing = {name for name, module in others.items() if [*module.parameters()] and type(module) is not nn.ModuleList}
    # Heads mix the biLM's layers themselves, and language models have no mix.
    assert missing == (set() if model.base_model is model else {"elmo.scalar_mix"})
    assert model.base_model is not model or [called.count(layer) for layer in model.bilm.layers] == [1, 1]


@pytest.mark.parametrize("name", NETWORKS)
@torch.no_grad()
def test_a_head_reads_what_a_hook_or_a_subclass_makes_of_the_layers(tokenizer, name: str) -> None:
    def doubled(module: Any, arguments: Any, output: hf_elmo.modeling_elmo.ElmoModelOutput) -> Any:
        assert arguments[0].shape[2:] == (50,)  # as BERT's heads pass input_ids, by place
        return replace(output, layers=[2 * layer for layer in output.layers])  # the state is the second text's

    class Doubled(hf_elmo.ElmoModel):
        def forward(self, *arguments: Any, **options: Any) -> Any:
            return doubled(self, arguments, super().forward(*arguments, **options))

    model, batch = make(name), batch_of(tokenizer, name)
    hook = model.elmo.register_forward_hook(doubled)
    hooked = tensors_of(model(**batch))
    hook.remove()
    model.elmo.__class__ = Doubled
    overridden = tensors_of(model(**batch))
    model.elmo.__class__ = hf_elmo.ElmoModel
    for mix in (model.head.scalar_mix, model.head.output_mix):
        if mix is not None:
            mix.gamma *= 2
    torch.testing.assert_close(tensors_of(model(**batch)), hooked)
    torch.testing.assert_close(hooked, overridden, rtol=0, atol=0)


def test_a_sharded_model_is_saved_with_its_code(tmp_path, tokenizer) -> None:
    model, batch = make("crf"), batch_of(tokenizer, "crf")
    expected = model(**batch).logits
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    mesh = distributed.device_mesh.init_device_mesh("cpu", (1,))
    for module in (model.elmo, model):
        fully_shard(module, mesh=mesh)
    torch.testing.assert_close(model(**batch).logits, expected)
    state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
    model.save_pretrained(tmp_path, state_dict=state)
    distributed.destroy_process_group()
    (architecture,) = model.config.architectures
    assert model.config.auto_map["AutoModelForTokenClassification"] == f"modeling_tagging_elmo.{architecture}"
    assert (tmp_path / "modeling_tagging_elmo.py").is_file()
    torch.testing.assert_close(ElmoForTokenClassification.from_pretrained(tmp_path)(**batch).logits, expected)


def test_a_checkpoint_is_quantized_as_it_is_loaded(tmp_path, tokenizer) -> None:
    quantization = pytest.importorskip("torchao.quantization", reason="torchao is not installed")
    inputs, plain = batch_of(tokenizer, "language models"), make_new("language models", num_sampled=7)
    plain.save_pretrained(tmp_path / "plain")
    settings = TorchAoConfig(quantization.Int8WeightOnlyConfig(), modules_to_not_convert=[])
    loaded = ElmoForPreTraining.from_pretrained(tmp_path / "plain", quantization_config=settings)
    before, found = plain(**inputs).loss, loaded(**inputs).loss
    rounded = {name: p for name, p in loaded.named_parameters() if type(p) is not torch.nn.Parameter}
    linears = ["projection", *(f"highways.{layer}.{name}" for layer in range(2) for name in ("carry", "transform"))]
    assert {"lm_head.weight", *(f"elmo.char_encoder.{name}.weight" for name in linears)} <= set(rounded)
    for name, parameter in rounded.items():
        plain.get_parameter(name).data.copy_(parameter.dequantize())
    torch.testing.assert_close(found, plain(**inputs).loss, atol=1e-5, rtol=0)
    assert found != before
    loaded.save_pretrained(tmp_path / "quantized")
    again = ElmoForPreTraining.from_pretrained(tmp_path / "quantized")
    torch.testing.assert_close(again(**inputs).loss, found, atol=1e-6, rtol=0)
    with pytest.raises(ValueError, match="lm_head"):  # it would read the weights themselves
        loaded.train()(**inputs)


@pytest.fixture
def peft() -> ModuleType:
    return pytest.importorskip("peft", reason="peft is not installed")


@pytest.mark.parametrize("name", TASKS)
def test_adapters_and_all_of_a_head_are_trained_and_saved(peft, tmp_path, name: str) -> None:
    """By PEFT's defaults for the task. Loaded into another new head on the same biLM, they predict the same."""
    task, fields, targets = TASKS[name]
    make_new(name).elmo.save_pretrained(tmp_path / "bilm")
    model_class, own_fields = HEADS[name]
    fields = {**own_fields, **heads.VECTORS, **fields, **heads.NO_DROPOUT}
    batch = batch_of(Tokenizer("whitespace"), name, words=True)
    inputs = without_labels(batch)
    config = peft.LoraConfig(task_type=task, r=2, modules_to_save=None if task else ["classifier"], **targets)
    base = model_class.from_pretrained(tmp_path / "bilm", **fields)
    head, expected = {key for key, _ in base.head.named_parameters()}, tensors_of(base(**inputs))
    model = peft.get_peft_model(base, config)
    torch.testing.assert_close(tensors_of(model.eval()(**inputs)), expected, atol=1e-6, rtol=0)  # of a new adapter
    trained = {key: parameter for key, parameter in model.train().named_parameters() if parameter.requires_grad}
    before = {key: value.detach().clone() for key, value in trained.items()}
    optimizer = torch.optim.Adam(trained.values(), lr=0.05)
    for _ in range(3):
        optimizer.zero_grad()
        model(**batch).loss.backward()
        optimizer.step()
    assert not [key for key, value in trained.items() if "lora" in key and torch.equal(value, before[key])]
    changed = {key for key, value in trained.items() if not torch.equal(value, before[key])}
    names = {key.partition(f".{base.head_name}.")[2].replace("modules_to_save.default.", "") for key in changed}
    assert {key for key in head - names if not key.endswith(("scores.bias", "attention.bias"))} == set()
    model.eval().save_pretrained(tmp_path / "adapter")
    torch.manual_seed(7)
    fresh = model_class.from_pretrained(tmp_path / "bilm", **fields)
    loaded = peft.PeftModel.from_pretrained(fresh, tmp_path / "adapter").eval()
    expected = tensors_of(model(**inputs))
    torch.testing.assert_close(tensors_of(loaded(**inputs)), expected, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(tensors_of(loaded.merge_and_unload()(**inputs)), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("reentrant", [False, True])
def test_adapters_of_recurrent_weights_with_gradient_checkpointing(peft, reentrant: bool) -> None:
    base, batch = make_new("pooled", **heads.NO_DROPOUT), batch_of(Tokenizer("whitespace"), "pooled")
    model = peft.get_peft_model(base, peft.LoraConfig(r=2, init_lora_weights=False, **LSTM)).double().train()
    expected = gradients_of(model, batch)
    assert {name for name, parameter in model.named_parameters() if parameter.requires_grad} == expected.keys()
    base.gradient_checkpointing_enable({"use_reentrant": reentrant})
    torch.testing.assert_close(gradients_of(model, batch), expected)


def test_a_sampled_softmax_does_not_pass_by_its_adapter(peft) -> None:
    inputs = batch_of(Tokenizer(), "language models")
    config = peft.LoraConfig(r=2, target_modules=["lm_head"], init_lora_weights=False)
    model = peft.get_peft_model(make_new("language models", freeze_bilm=False, num_sampled=7), config)
    with pytest.raises(ValueError, match="lm_head"):  # it would read the weights of the head, not the adapter's
        model.train()(**inputs)
    adapted = model.eval()(**inputs).loss
    torch.testing.assert_close(adapted, model.merge_and_unload()(**inputs).loss)


def test_what_adapters_freeze_stays_frozen_in_a_model_loaded_with_them(peft, tmp_path) -> None:
    base = classifier(freeze_bilm=False)
    save_checkpoint(tmp_path / "base", base)
    base = ElmoForSequenceClassification.from_pretrained(tmp_path / "base")
    peft.get_peft_model(base, peft.LoraConfig(r=2, target_modules=["carry"])).save_pretrained(tmp_path / "adapter")
    model = ElmoForSequenceClassification.from_pretrained(tmp_path / "adapter")
    assert not any(parameter.requires_grad for parameter in model.parameters())
