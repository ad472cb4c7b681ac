"""Questions on passages of Wikipedia, answered with and without ELMo (Peters et al. 2018, section 4).

    python -m examples.question_answering.run

`--train` questions train, spread evenly over SQuAD's train part; those on every tenth passage choose the epoch.
1,000 questions of SQuAD's dev part test, each against all its answers. The network is that of Clark and Gardner (2018),
with ELMo at the input and beside the contextual layer's output.
"""

from collections.abc import Sequence
from itertools import islice
from typing import Any

from datasets import Dataset
from transformers import AutoModelForQuestionAnswering

import hf_elmo
from examples.comparison import compare, options, parsed, rows_of_table, sizes, with_glove
from examples.data import squad

HEAD = {
    "encoder_type": "attention_flow",
    "encoder_hidden_size": 64,
    "encoder_dropout": 0.2,
    "classifier_dropout": 0.2,
    "elmo_at_output": True,
}
SETTINGS = {"num_train_epochs": 8, "per_device_train_batch_size": 32, "learning_rate": 2e-3, "max_grad_norm": 5.0}
TESTED = 1000  # questions

Questions = list[dict[str, Any]]  # with `question`, `context` and `answers`


def spread(questions: Questions, limit: int) -> Questions:
    """At most `limit` questions, evenly spread."""
    number = min(limit, len(questions))
    return [questions[i * len(questions) // number] for i in range(number)]


def parts_of(train: Questions, test: Questions) -> dict[str, Questions]:
    """The parts by their names; train and dev have no passage in common."""
    passages = list(dict.fromkeys(question["context"] for question in train))
    held_out = set(passages[::10])
    dev = [question for question in train if question["context"] in held_out]
    return {"train": [one for one in train if one["context"] not in held_out], "dev": dev, "test": test}


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints a table."""
    args = parsed(options(__doc__, train=2000), arguments)
    read, (train, test) = squad(args.data), (120, 40) if args.quick else (args.train, TESTED)
    parts = parts_of(spread(read["train"], train), spread(read["test"], test))
    print(f"{sizes(parts)} questions\n", flush=True)
    every = [question for questions in parts.values() for question in questions]
    tokenizer, vectors = with_glove(args, {question[name] for question in every for name in ("question", "context")})
    contexts, answers = ([one[name] for one in every] for name in ("context", "answers"))
    how = {"metrics": hf_elmo.squad_metrics(tokenizer, contexts, answers), "best": "f1", **SETTINGS}
    how["label_names"] = ["start_positions", "end_positions", "piece"]
    encoded, numbers = {}, iter(range(len(every)))
    for part, questions in parts.items():
        columns = [[question[name] for question in questions] for name in ("question", "context", "answers")]
        pieces = {"max_length": 256, "stride": 64, "numbers": list(islice(numbers, len(questions)))}
        rows = hf_elmo.encode_questions(tokenizer, *columns, labeled_only=part == "train", **pieces)
        encoded[part] = Dataset.from_dict(rows)
    rows = rows_of_table(AutoModelForQuestionAnswering, HEAD, tokenizer, vectors, encoded, args, **how)
    compare(rows, {"f1": "F1", "exact_match": "exact match"}, args)


if __name__ == "__main__":
    main()
