"""Short runs by which the architecture and the optimizer are chosen: one thing differs from the recipe in each.

    python -m examples.pretrain_compact.short_runs OUT/corpus [--words 2000000] [--only "cell of 512" ...]

Each run has the same compute, counted in floating-point operations of products (PyTorch's counter), so that a smaller
model reads more text in them, and the machine and what else it does make no difference: the step size rises over the
first 3 % of them, is constant, and falls to zero over the second half. All read the same text in the same order and
start from the same seed. Printed is the perplexity of the corpus' dev.txt by the full softmax, each line from zero
state. One thread; several processes with `--only` share a machine.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import PrinterCallback, set_seed
from transformers.utils import logging

from hf_elmo import ElmoConfig, ElmoForPreTraining, ElmoTokenizer, learning_rates, perplexity
from hf_elmo.pretraining.data import PackedWindows
from hf_elmo.pretraining.text import TextFiles
from hf_elmo.pretraining.trainer import ElmoPreTrainer, ElmoPreTrainingArguments
from hf_elmo.pretraining.vocabulary import Vocabulary

# The recipe, as run.sh has it.
CONFIG = {
    "hidden_size": 512,
    "cell_size": 768,
    "num_sampled": 4096,
    "num_highway_layers": 2,
    "char_filters": [[1, 32], [2, 32], [3, 64], [4, 128], [5, 256]],
    "hidden_dropout": 0.0,
}
ADAM = {"optim": "adamw_torch_fused", "learning_rate": 0.003, "loss_scale": 1.0, "max_grad_norm": 1.0}
WARMUP, DECAY = 0.03, 0.5  # shares of the compute


@dataclass
class Variant:
    """What differs from the recipe: fields of [`ElmoConfig`], settings of the training, rows and words of a window, and
    the step size of the biLM where the softmax has another."""

    config: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=lambda: dict(ADAM))
    rows: int = 256
    window: int = 20
    bilm_rate: float | None = None


VARIANTS = {
    "the recipe": Variant(),
    "cell of 512": Variant({"cell_size": 512}),
    "cell of 1,024": Variant({"cell_size": 1024}),
    "cell of 1,536": Variant({"cell_size": 1536}),
    "vectors of 256": Variant({"hidden_size": 256}),
    "vectors of 768": Variant({"hidden_size": 768}),
    "dropout 0.1": Variant({"hidden_dropout": 0.1}),
    "windows of 10, 512 rows": Variant(rows=512, window=10),
    "windows of 40, 128 rows": Variant(rows=128, window=40),
    "128 rows": Variant(rows=128),
    "1,024 words sampled": Variant({"num_sampled": 1024}),
    "16,384 words sampled": Variant({"num_sampled": 16384}),
    "AdamW 0.0015": Variant(settings=ADAM | {"learning_rate": 0.0015}),
    "AdamW 0.006": Variant(settings=ADAM | {"learning_rate": 0.006}),
    "softmax 0.006, biLM 0.003": Variant(settings=ADAM | {"learning_rate": 0.006}, bilm_rate=0.003),
    "softmax 0.003, biLM 0.006": Variant(bilm_rate=0.006),
    "Adagrad 0.2, as bilm-tf": Variant(settings={"optim": "adagrad"}),
}


def new_model(variant: Variant, corpus: Path) -> tuple[ElmoForPreTraining, ElmoTokenizer]:
    """A variant's model, of the same seed each, and the tokenizer."""
    set_seed(1)
    tokenizer = ElmoTokenizer("whitespace", vocab_file=str(corpus / "vocab.txt"))
    config = ElmoConfig(**CONFIG | variant.config, vocab_size=len(Vocabulary.of(tokenizer)))
    return ElmoForPreTraining(config), tokenizer


def words_of(variant: Variant, text: Path, tokenizer: ElmoTokenizer) -> PackedWindows:
    """A text as a variant reads it."""
    return PackedWindows(TextFiles(text), tokenizer, variant.rows, variant.window, shuffle_block=1_000_000, seed=1)


def operations(variant: Variant, corpus: Path) -> float:
    """Floating-point operations of the products of a word that a variant trains on, forward and backward."""
    model, tokenizer = new_model(variant, corpus)
    batch = next(iter(words_of(variant, corpus / "dev.txt", tokenizer)))  # of a short text, which is shuffled at once
    with FlopCounterMode(display=False) as counter:
        model.train()(**batch).loss.backward()
    return counter.get_total_flops() / (variant.rows * variant.window)


def run(variant: Variant, corpus: Path, compute: float, held_out: Path) -> tuple[int, float, int, float]:
    """Trains a variant with so many operations; returns its weights, its operations a word, the words that it read, and
    its perplexity."""
    each = operations(variant, corpus)
    steps = max(1, round(compute / each / (variant.rows * variant.window)))
    model, tokenizer = new_model(variant, corpus)
    with TemporaryDirectory() as out:
        arguments = ElmoPreTrainingArguments(
            output_dir=out,
            per_device_train_batch_size=variant.rows,
            max_steps=steps,
            lr_scheduler_type="warmup_stable_decay",
            warmup_steps=round(WARMUP * steps),
            lr_scheduler_kwargs={"num_decay_steps": round(DECAY * steps), "decay_type": "linear"},
            bf16=True,
            use_cpu=True,
            seed=1,
            reset_state=True,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            logging_steps=10**7,
            **variant.settings,
        )
        rates = {}
        if variant.bilm_rate is not None:
            rates["optimizer_cls_and_kwargs"] = learning_rates(model, arguments, bilm=variant.bilm_rate)
        words = words_of(variant, corpus / "train.txt", tokenizer)
        trainer = ElmoPreTrainer(model, arguments, words, processing_class=tokenizer, **rates)
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    found = perplexity(model, tokenizer, held_out, pretokenized=True)
    weights = sum(parameter.numel() for parameter in model.parameters())
    return weights, each, steps * variant.rows * variant.window, found.mean


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the table, a row when it is measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path, help="folder that prepare.py wrote")
    parser.add_argument("--words", type=int, default=2_000_000, help="that the recipe reads [%(default)s]")
    parser.add_argument("--only", nargs="+", choices=VARIANTS, metavar="VARIANT", help="these [all]")
    parser.add_argument("--lines", type=int, help="of dev.txt [all]")
    args = parser.parse_args(arguments)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    torch.set_num_threads(1)
    print("| variant | weights | operations a word | words read | perplexity |\n|---|--:|--:|--:|--:|", flush=True)
    compute = args.words * operations(Variant(), args.corpus)
    with TemporaryDirectory() as folder:
        held_out = Path(folder, "dev.txt")
        with (args.corpus / "dev.txt").open(encoding="utf-8") as file:
            held_out.write_text("".join(islice(file, args.lines)), encoding="utf-8")
        for name in args.only or VARIANTS:
            weights, each, read, found = run(VARIANTS[name], args.corpus, compute, held_out)
            row = name, f"{weights / 1e6:.1f} million", f"{each / 1e6:.0f} million", f"{read / 1e6:.2f} million"
            print(f"| {' | '.join(row)} | {found:.1f} |", flush=True)


if __name__ == "__main__":
    main()
