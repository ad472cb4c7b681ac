"""Questions on passages of Wikipedia, answered with and without ELMo (Peters et al. 2018, section 4).

    python -m examples.question_answering.run ../shared/data

`--questions` questions train, spread evenly over 44 articles of SQuAD's train part and the new ones of SQuADShifts;
those on every tenth passage choose the epoch. `--tested` questions on 24 articles of SQuAD's dev part test, each
against all its answers. Both rows have the same network (Clark and Gardner 2018), trained in the same way: one row with
GloVe's vectors alone, the other with GloVe's vectors and ELMo, at the input and beside the contextual layer's output.
The biLM is frozen, and its layers are computed once.
"""

from collections.abc import Sequence

from transformers import AutoModelForQuestionAnswering, AutoTokenizer

import hf_elmo
from examples.comparison import compare, options, parsed, rows_of_table, sizes, with_glove
from examples.question_answering.data import TEST, TRAIN, datasets_of, parts_of, read

HEAD = {
    "encoder_type": "attention_flow",
    "encoder_hidden_size": 64,
    "encoder_dropout": 0.2,
    "classifier_dropout": 0.2,
    "elmo_at_output": True,
}
SETTINGS = {"num_train_epochs": 8, "per_device_train_batch_size": 32, "learning_rate": 2e-3, "max_grad_norm": 5.0}


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints a table."""
    parser = options(__doc__, "outputs/question_answering")
    parser.add_argument("--questions", type=int, default=2000, help="questions that train, dev included [2000]")
    parser.add_argument("--tested", type=int, default=1000, help="questions that test [1000]")
    args = parsed(parser, arguments)
    if args.quick:
        args.questions, args.tested = 120, 40
    parts = parts_of(read(args.data, TRAIN, args.questions), read(args.data, TEST, args.tested))
    print(f"{sizes(parts)} questions\n", flush=True)
    every = [question for questions in parts.values() for question in questions]
    texts = {text for question in every for text in (question.text, question.passage)}
    tokenizer, vectors = with_glove(args, hf_elmo.count_words(AutoTokenizer.from_pretrained(args.model), sorted(texts)))
    rows = rows_of_table(
        AutoModelForQuestionAnswering,
        HEAD,
        tokenizer,
        vectors,
        datasets_of(parts, tokenizer),
        args,
        args.out / "model",
        metrics=hf_elmo.squad_metrics(tokenizer, [one.passage for one in every], [one.answers for one in every]),
        best="f1",
        label_names=["start_positions", "end_positions", "piece"],
        **SETTINGS,
    )
    compare(rows, {"f1": "F1", "exact_match": "exact match"}, args)


if __name__ == "__main__":
    main()
