"""Short runs by which the architecture and the optimizer are chosen: one thing differs from the recipe in each.

    python -m examples.pretrain_compact.short_runs OUT/corpus [--minutes 10] [--only "cell of 512" ...]

Each run has the same compute, counted in processor seconds, so that a smaller model reads more text in them: the step
size rises over the first 3 % of them, is constant, and falls to zero over the second half. All read the same text in
the same order and start from the same seed. Printed is the perplexity of the corpus' dev.txt by the full softmax, each
line from zero state. One thread; several processes with `--only` share a machine.
"""

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch.optim.lr_scheduler import LambdaLR
from transformers import PrinterCallback, TrainerCallback, set_seed
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


class Budget(TrainerCallback):
    """Ends a training when it has used its processor seconds, and says what share of them is used."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.began = seconds, time.process_time()

    def share(self) -> float:
        return min((time.process_time() - self.began) / self.seconds, 1.0)

    def rate(self, _: int) -> float:
        """The factor of the step size."""
        used = self.share()
        return min(used / WARMUP, (1 - used) / DECAY, 1.0) if used else 0.0

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == 0:  # the text is there
            self.began = time.process_time()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        control.should_training_stop = self.share() >= 1


class BudgetTrainer(ElmoPreTrainer):
    """Its step sizes follow the compute that is used."""

    budget: Budget

    def create_scheduler(self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None) -> LambdaLR:
        self.lr_scheduler = LambdaLR(optimizer or self.optimizer, self.budget.rate)
        return self.lr_scheduler


def run(variant: Variant, corpus: Path, seconds: float, held_out: Path) -> tuple[int, int, float]:
    """Trains a variant; returns its weights, the words that it read, and its perplexity."""
    set_seed(1)
    tokenizer = ElmoTokenizer("whitespace", vocab_file=str(corpus / "vocab.txt"))
    config = ElmoConfig(**CONFIG | variant.config, vocab_size=len(Vocabulary.of(tokenizer)))
    model = ElmoForPreTraining(config)
    budget = Budget(seconds)
    with TemporaryDirectory() as out:
        arguments = ElmoPreTrainingArguments(
            output_dir=out,
            per_device_train_batch_size=variant.rows,
            max_steps=10**7,
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
        how = {"shuffle_block": 1_000_000, "seed": arguments.seed}
        words = PackedWindows(TextFiles(corpus / "train.txt"), tokenizer, variant.rows, variant.window, **how)
        rates = {}
        if variant.bilm_rate is not None:
            rates["optimizer_cls_and_kwargs"] = learning_rates(model, arguments, bilm=variant.bilm_rate)
        trainer = BudgetTrainer(model, arguments, words, processing_class=tokenizer, callbacks=[budget], **rates)
        trainer.remove_callback(PrinterCallback)
        trainer.budget = budget
        trainer.train()
    read = trainer.state.global_step * variant.rows * variant.window
    found = perplexity(model, tokenizer, held_out, pretokenized=True)
    return sum(parameter.numel() for parameter in model.parameters()), read, found.mean


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the table, a row when it is measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path, help="folder that prepare.py wrote")
    parser.add_argument("--minutes", type=float, default=10, help="of a processor for each run [10]")
    parser.add_argument("--only", nargs="+", choices=VARIANTS, metavar="VARIANT", help="these [all]")
    parser.add_argument("--lines", type=int, help="of dev.txt [all]")
    args = parser.parse_args(arguments)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    torch.set_num_threads(1)
    print("| variant | weights | words read | perplexity |\n|---|--:|--:|--:|", flush=True)
    with TemporaryDirectory() as folder:
        held_out = Path(folder, "dev.txt")
        with (args.corpus / "dev.txt").open(encoding="utf-8") as file:
            held_out.write_text("".join(islice(file, args.lines)), encoding="utf-8")
        for name in args.only or VARIANTS:
            weights, read, found = run(VARIANTS[name], args.corpus, args.minutes * 60, held_out)
            print(f"| {name} | {weights / 1e6:.1f} million | {read / 1e6:.2f} million | {found:.1f} |", flush=True)


if __name__ == "__main__":
    main()
