"""The common tests that cannot apply to ELMo. Each runs nevertheless, and must fail with the words given here: one that
passes, or fails in another way, is a failure."""

import contextlib
import functools
import re
from collections.abc import Callable

import pytest

# Each test: what its failure says, and why it cannot pass.
Reasons = dict[str, tuple[str, str]]

_RESIZE = (
    "31 != 41|not equal|!=",
    "The embedding is one of characters, which is not resized.",
)
MODELS: Reasons = {
    "test_inputs_embeds": (
        "unsupported operand|inputs_embeds has the shape",
        "It feeds vectors of characters; inputs_embeds are vectors of words here, as in every other model.",
    ),
    "test_resize_tokens_embeddings": _RESIZE,
}
BASE_MODEL: Reasons = MODELS | {"test_inputs_embeds_matches_input_ids": MODELS["test_inputs_embeds"]}
CLASSIFIER: Reasons = MODELS | {
    "test_load_with_mismatched_shapes": (
        "RuntimeError not raised",
        "It makes shapes differ by another vocab_size, which counts the words of a softmax that this model has not.",
    ),
}
RESOLVER: Reasons = MODELS | {
    "test_retain_grad_hidden_states_attentions": (
        "does not require grad",
        "It takes the gradient of the first output: the spans, which are whole numbers.",
    ),
}
LANGUAGE_MODEL: Reasons = MODELS | {
    "test_resize_embeddings_untied": _RESIZE,
    "test_retain_grad_hidden_states_attentions": (
        "unexpectedly None",
        "The logits come from packed words; hidden_states are padded copies, through which no gradient returns.",
    ),
}

_ROWS = "A word is a row of character ids, so input_ids have an axis more than the test expects."
_PADDING = "pad_token_id is a character, 0; a padded position is a row of them."
_ADDED = "Every word is spelled, so a token that is added has no id."
TOKENIZER: Reasons = {
    "test_batch_encode_dynamic_overflowing": ("3 != 2", _ROWS),
    "test_chat_template_return_assistant_tokens_mask": (
        r"torch.Size\(\[2, 82\]\) != torch.Size\(\[2, 82, 50\]\)",
        _ROWS,
    ),
    "test_encode_basic_padding": ("First differing element 3", _PADDING),
    "test_encode_plus_with_padding_0": ("First differing element 3", _PADDING),
    "test_encode_plus_with_padding_1": ("First differing element 3", _PADDING),
    "test_get_vocab": (
        "'int' object is not iterable",
        "The entries of the vocabulary are characters; an id of a word is a row of them.",
    ),
    "test_padding_with_attention_mask": ("inhomogeneous", _ROWS),
    "test_save_and_load_tokenizer": ("'bim' not found", _ADDED),
    "test_tokenize_special_tokens": ("3 != 1", _ADDED),
    "test_tokenizers_common_ids_setters": (
        "'int' object is not iterable",
        "The entries of the vocabulary are characters; an id of a word is a row of them.",
    ),
}
_NOTHING_TO_TRAIN = (
    "This is the first sentence|<UNK>a",
    "The characters are the same for every text: there is nothing to train.",
)
BACKEND: Reasons = {
    "test_add_bos_token_without_bos_token": (
        "special_tokens",
        "The language models read <S> and </S> around each sentence: a tokenizer needs both.",
    ),
    "test_training_new_tokenizer": _NOTHING_TO_TRAIN,
    "test_training_new_tokenizer_with_special_tokens_change": _NOTHING_TO_TRAIN,
}


def must_fail(reasons: Reasons) -> Callable[[type], type]:
    """A decorator of a TestCase: these of its tests must fail; AttributeError for one that there is not."""

    def decorate(case: type) -> type:
        for name, (words, reason) in reasons.items():
            setattr(case, name, _failing(getattr(case, name), words, reason))
        return case

    return decorate


def _failing(test: Callable, words: str, reason: str) -> Callable:
    @functools.wraps(test)
    def run(self: object) -> None:
        self.subTest = lambda *_, **__: contextlib.nullcontext()  # a failure within ends the test
        with pytest.raises(Exception, match=re.compile(words)):
            test(self)
        pytest.xfail(reason)

    return run
