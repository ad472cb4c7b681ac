"""ElmoForCoreferenceResolution against a slow computation, in memory that is linear in the words, and its labels."""

import math

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from hf_elmo import CoreferenceCollator, ElmoForCoreferenceResolution, ElmoTokenizer, encode_document
from hf_elmo import modeling_coreference_elmo as coreference
from hf_elmo.modeling_heads_elmo import ElmoInputs
from tests.heads import DOCUMENTS, FEATURES, NO_DROPOUT, SPEAKERS, batch_of, gradients_of, make

HEADS = {
    "2017": ("resolver", {}),
    "2018": ("resolver 2018", {}),
    "features": ("resolver", {"coreference_refinements": 1, **FEATURES}),
    "twice": ("resolver 2018", {"encoder_num_layers": 2, "elmo_at_output": True}),
}
every_head = pytest.mark.parametrize(("name", "changes"), HEADS.values(), ids=HEADS)


class Slow:
    """One document by loops over all of its spans and pairs, from the weights alone."""

    def __init__(self, model: ElmoForCoreferenceResolution, tokenizer: ElmoTokenizer, number: int) -> None:
        self.weights, self.config, self.number = model.classifier.state_dict(), model.config, number
        vectors, encoded = [], []
        for sentence in DOCUMENTS[number]:  # each alone
            inputs = tokenizer(sentence, is_split_into_words=True, return_tensors="pt")
            ((read, _),), _ = model.read_words(ElmoInputs(**inputs))
            (text,) = model.classifier.embed(read)
            vectors.append(text[0][0])
            encoded.append(model.classifier.encode(*text)[0])
        self.x, self.h = torch.cat(vectors), torch.cat(encoded)
        self.sentence = [i for i, sentence in enumerate(DOCUMENTS[number]) for _ in sentence]
        self.speaker = [SPEAKERS[number][i] for i in self.sentence]

    def linear(self, name: str, x: Tensor) -> Tensor:
        return x @ self.weights[f"{name}.weight"].T + self.weights.get(f"{name}.bias", 0.0)

    def span(self, first: int, last: int) -> Tensor:
        attention = self.linear("span_vectors.attention", self.h[first : last + 1]).softmax(0)
        head = (attention * self.x[first : last + 1]).sum(0)
        return torch.cat((self.h[first], self.h[last], head, self.weights["span_vectors.width.weight"][last - first]))

    def score(self, name: str, x: Tensor) -> Tensor:
        for layer in ("input", "hidden"):
            x = self.linear(f"{name}.{layer}", x).relu()
        return self.linear(f"{name}.output", x)[0]

    def mentions(self) -> list[tuple[int, int]]:
        words, width = len(self.sentence), self.config.coreference_max_width
        spans = [(i, j) for i in range(words) for j in range(i, min(words, i + width))]
        spans = [(i, j) for i, j in spans if self.sentence[i] == self.sentence[j]]
        spans.sort(key=lambda span: -self.score("mention_scorer", self.span(*span)))
        kept: list[tuple[int, int]] = []
        for i, j in spans:
            crosses = any(a < i <= b < j or i < a <= j < b for a, b in kept)
            if not crosses and len(kept) < int(self.config.coreference_spans_per_word * words):
                kept.append((i, j))
        return sorted(kept)

    def features(self, i: int, j: int) -> Tensor:
        """Of two spans by their places among the spans."""
        distance = i - j
        bucket = distance - 1 if distance < 5 else min(2 + int(math.log2(distance)), 8)  # 5-7, 8-15, 16-31, 32-63, 64+
        found = [self.weights["pair_scorer.distance.weight"][bucket]]
        if self.config.coreference_speakers:
            one, other = (self.speaker[self.kept[k][0]] for k in (i, j))
            same = 0 if one is None or other is None else 1 if one == other else 2
            found.append(self.weights["pair_scorer.speaker.weight"][same])
        if self.config.coreference_num_genres:
            found.append(self.weights["pair_scorer.genre.weight"][self.number])
        return torch.cat(found)

    def pair(self, g: Tensor, i: int, j: int) -> Tensor:
        """The first layer's matrix over the parts together, as the papers have it."""
        names = ["pair_scorer.span", "pair_scorer.antecedent", "pair_scorer.fine.input", "pair_scorer.features"]
        matrix = torch.cat([self.weights[f"{name}.weight"] for name in names], dim=1)
        x = matrix @ torch.cat((g[i], g[j], g[i] * g[j], self.features(i, j)))
        x = (x + self.weights["pair_scorer.fine.input.bias"]).relu()
        return self.linear("pair_scorer.fine.output", self.linear("pair_scorer.fine.hidden", x).relu())[0]

    def run(self) -> dict[int, dict[int, Tensor]]:
        """For each kept span its antecedents' scores."""
        self.kept = self.mentions()
        g = [self.span(*span) for span in self.kept]
        mention = [self.score("mention_scorer", vector) for vector in g]
        coarse: dict[int, dict[int, Tensor]] = {}
        for i in range(len(g)):
            own = {j: mention[i] + mention[j] + self.linear("pair_scorer.coarse", g[i]) @ g[j] for j in range(i)}
            best = sorted(own, key=lambda j: -own[j])[: self.config.coreference_max_antecedents]
            coarse[i] = {j: own[j] for j in best}
        scores = self.with_pairs(coarse, g)
        for _ in range(self.config.coreference_refinements):
            refined = []
            for i, own in scores.items():
                weights = torch.stack([self.x.new_zeros(()), *own.values()]).softmax(0)  # the first: of the span itself
                expected = weights @ torch.stack([g[i], *(g[j] for j in own)])
                gate = self.linear("gate", torch.cat((g[i], expected))).sigmoid()
                refined.append(gate * g[i] + (1 - gate) * expected)
            g = refined
            scores = self.with_pairs(coarse, g)
        return scores

    def with_pairs(self, coarse: dict, g: list[Tensor]) -> dict[int, dict[int, Tensor]]:
        return {i: {j: s + self.pair(g, i, j) for j, s in own.items()} for i, own in coarse.items()}

    def nll(self, scores: dict[int, dict[int, Tensor]], clusters: list) -> tuple[Tensor, int]:
        """The loss, and how many antecedents labels say are right."""
        cluster = {span: k for k, own in enumerate(clusters) for span in own}
        total, rightly = self.x.new_zeros(()), 0
        for i, own in scores.items():
            mine = cluster.get(self.kept[i])
            right = [s for j, s in own.items() if mine is not None and cluster.get(self.kept[j]) == mine]
            rightly += len(right)
            good = sum(s.exp() for s in right) if right else torch.ones_like(total)
            total -= torch.log(good / (1 + sum(s.exp() for s in own.values())))
        narrow = {(i, j) for i, j in cluster if j - i < self.config.coreference_max_width}
        for span in narrow.union(self.kept):
            score = self.score("mention_scorer", self.span(*span))
            total -= (score if span in narrow else -score).sigmoid().log()
        return total, rightly

    def clusters(self, scores: dict[int, dict[int, Tensor]]) -> set[frozenset]:
        groups = [{span} for span in self.kept]
        for i, own in scores.items():
            if own and max(own.values()) > 0:
                best = self.kept[max(own, key=own.__getitem__)]
                one, other = (next(g for g in groups if span in g) for span in (self.kept[i], best))
                groups = [g for g in groups if g is not one and g is not other] + [one | other]
        return {frozenset(group) for group in groups if len(group) > 1}


@every_head
def test_against_a_slow_computation(tokenizer, name: str, changes: dict) -> None:
    model = make(name, seed=1, **changes, coreference_spans_per_word=0.9).double()
    batch = batch_of(tokenizer, "resolver")
    spans = [[tuple(span) for span in own if span[0] >= 0] for own in model(**batch).spans.tolist()]
    # Every other span that the model keeps is in one of two clusters; a third cluster has spans that it does not keep.
    clusters = [[own[::4], own[2::4], [(0, 5), (0, 4)] if len(own) > 3 else []] for own in spans]
    labels = [encode_document(tokenizer, *each) for each in zip(DOCUMENTS, clusters, strict=True)]
    batch["labels"] = CoreferenceCollator(tokenizer)(labels)["labels"]
    output, total, rightly = model(**batch), 0.0, 0
    for row in range(len(DOCUMENTS)):
        slow = Slow(model, tokenizer, row)
        scores = slow.run()
        assert spans[row] == slow.kept
        for i, own in scores.items():
            antecedents = output.antecedents[row, i]
            assert antecedents[antecedents >= 0].tolist() == list(own)
            expected = torch.stack([slow.x.new_zeros(()), *own.values()])
            torch.testing.assert_close(output.antecedent_scores[row, i, : len(own) + 1], expected)
        mentions = [own for own in output.clusters[row].tolist() if own[2] >= 0]
        found = {frozenset((i, j) for i, j, k in mentions if k == number) for _, _, number in mentions}
        assert found == slow.clusters(scores)
        nll, right = slow.nll(scores, clusters[row])
        total, rightly = total + nll, rightly + right
    assert rightly >= 3
    torch.testing.assert_close(output.loss, total / (batch["labels"] >= 0).all(2).sum())
    assert model.train()(**batch).clusters is None
    with pytest.raises(ValueError, match="shorter"):  # labels of fewer documents
        model(**{**batch, "labels": batch["labels"][:1]})


@every_head
def test_computed_in_pieces_it_is_the_same(tokenizer, name: str, changes: dict, monkeypatch) -> None:
    model, found = make(name, **changes, **NO_DROPOUT).double().train(), []
    for sizes in ({}, {"SENTENCE_POSITIONS": 9, "CANDIDATES": 5, "PAIRS": 7, "COARSE_SCORES": 10}):
        for limit, size in sizes.items():
            monkeypatch.setattr(coreference, limit, size)
        output = model(**batch_of(tokenizer, "resolver"))
        gradients = gradients_of(model, batch_of(tokenizer, "resolver"))
        found.append([output.loss, output.antecedent_scores, gradients])
    torch.testing.assert_close(*found)


@pytest.mark.slow
def test_compiled_it_has_the_same_loss(tokenizer, request) -> None:
    request.addfinalizer(torch.compiler.reset)
    documents = [["the", "on", "ran"]], [["the", "on", "ran", "rain", "dog"]] * 3, [["the", "on"]] * 3
    rows = [encode_document(tokenizer, document, [[(0, 0), (1, 1)]]) for document in documents]
    model, batch = make("resolver"), CoreferenceCollator(tokenizer)(rows)
    expected = model(**batch).loss
    torch.testing.assert_close(torch.compile(model, backend="eager")(**batch).loss, expected)


def test_documents_without_mentions_and_words(tokenizer) -> None:
    model = make("resolver").train()
    row = encode_document(tokenizer, [["He", "slept"]], [])
    batch = CoreferenceCollator(tokenizer)([row, row])
    model(**batch).loss.backward()
    for more in ({}, {"num_items_in_batch": 0}):  # the loss is that of one mention
        output = model.eval()(**batch, **more)
        nll = torch.log(1 + output.mention_scores.exp()).sum() - output.antecedent_scores.log_softmax(2)[:, :, 0].sum()
        torch.testing.assert_close(output.loss, nll)
    one = CoreferenceCollator(tokenizer)([encode_document(tokenizer, [["Rain"]])])
    assert model(**one).spans.tolist() == [[[0, 0]]]
    output = model(**tokenizer(["", "a word"], padding=True, return_tensors="pt"))
    assert (output.spans[0] == -100).all()
    assert output.clusters.shape == (2, 0, 3)
    assert model(**CoreferenceCollator(tokenizer)([encode_document(tokenizer, [], [], [])] * 2)).loss == 0


class Largest(TorchDispatchMode):
    """The most numbers that any operation gave."""

    numbers = 0

    def __torch_dispatch__(self, func: object, types: object, args: tuple = (), kwargs: dict | None = None) -> object:
        result = func(*args, **(kwargs or {}))
        self.numbers = max(self.numbers, *(x.numel() for x in tree_leaves(result) if isinstance(x, Tensor)), 0)
        return result


def test_memory_of_a_document_of_10000_words() -> None:
    ids = [k for length in [400, *[25] * 384] for k in (1, *(3 + 7 * k % 11 for k in range(length)), 1)]
    fields = {"use_elmo": False, "word_vectors_vocab_size": 14, "word_vectors_size": 6, "classifier_dropout": 0.0}
    fields |= {"coreference_max_width": 10, "coreference_max_antecedents": 12, "coreference_spans_per_word": 0.4}
    model = make("resolver", **fields)
    size = model.classifier.span_vectors.size
    with Largest() as largest, torch.no_grad():
        output = model(word_vector_ids=torch.tensor([ids]))
    assert output.spans.shape == (1, 4000, 2)
    pieces = max(coreference.PAIRS * size, coreference.CANDIDATES * size, coreference.COARSE_SCORES)
    assert largest.numbers <= max(pieces, 10_000 * 10, 4000 * (size + 2 * 13))
    assert largest.numbers < 4000 * 4000 / 4  # all pairs of spans are never there at once
