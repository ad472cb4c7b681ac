"""Questions on passages of Wikipedia, answered with and without ELMo (Peters et al. 2018, section 4).

    python -m examples.question_answering.run ../shared/data

Of 44 articles of SQuAD's train part and the new ones of SQuADShifts `--questions` train, spread evenly; those of every
tenth passage choose the epoch. `--tested` questions on 24 articles of SQuAD's dev part test, each against all its
answers. The rows are the same network (Clark and Gardner 2018), trained in the same way: one on GloVe's vectors alone,
one on these and ELMo, at the input and beside the contextual layer's output, of a frozen biLM whose layers are computed
once.
"""

from collections.abc import Sequence

from transformers import AutoModelForQuestionAnswering, AutoTokenizer

import hf_elmo
from examples.comparison import clock, compare, options, parsed
from examples.question_answering.data import TEST, TRAIN, datasets_of, parts_of, read
from examples.variants import GLOVE, VARIANTS, report, rows_of_table

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
    start = clock()
    parser = options(__doc__, "outputs/question_answering")
    parser.add_argument("--questions", type=int, default=2000, help="questions that train, dev included [2000]")
    parser.add_argument("--tested", type=int, default=1000, help="questions that test [1000]")
    args = parsed(parser, arguments)
    if args.quick:
        args.questions, args.tested = 120, 40
    parts = parts_of(read(args.data, TRAIN, args.questions), read(args.data, TEST, args.tested))
    print(", ".join(f"{len(questions):,} {part}" for part, questions in parts.items()), "questions\n", flush=True)
    every = [question for questions in parts.values() for question in questions]
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    texts = {text for question in every for text in (question.text, question.passage)}
    words = {word for text in tokenizer.split_into_words(sorted(texts)) for word in text}
    tokenizer.words, vectors = hf_elmo.read_word_vectors(args.data / GLOVE, words=words)
    rows = rows_of_table(
        AutoModelForQuestionAnswering,
        HEAD,
        tokenizer,
        vectors,
        datasets_of(parts, tokenizer),
        {f"GloVe{row}": VARIANTS[row] for row in ("", " + ELMo")},
        args,
        args.out / "model",
        metrics=hf_elmo.squad_metrics(tokenizer, [one.passage for one in every], [one.answers for one in every]),
        best="f1",
        label_names=["start_positions", "end_positions", "piece"],
        **SETTINGS,
    )
    results = compare(rows, args.seeds)
    report(results, {"f1": "F1", "exact_match": "exact match"}, start)


if __name__ == "__main__":
    main()
