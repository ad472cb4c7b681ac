"""Trains a language model further for some seconds, on a GPU: `gpu.sh train` calls it.

    python gpu_train.py FOLDER OUT SECONDS

FOLDER has `init`, a checkpoint with its softmax, and `counts.txt`, the lines of the text, each once, below its number.
A GPU is faster than one process that makes batches. So each of several reads its own part of the text in rows of its
own, the batches are taken in turn, and the state of the rows is kept for each. The learning rate is constant, then
falls linearly to zero at the end of the time. In some words that are read (not in those to predict) there is a typo.
"""

import argparse
import random
import time
from collections.abc import Iterator
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import torch
from torch import Tensor
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, IterableDataset, get_worker_info
from transformers import TrainerCallback, set_seed

from hf_elmo import ElmoForPreTraining, ElmoTokenizer
from hf_elmo.pretraining.data import PackedWindows, WordEncoder
from hf_elmo.pretraining.texts import Texts
from hf_elmo.pretraining.trainer import ElmoPreTrainer, ElmoPreTrainingArguments

WARM_UP = 300  # steps


class Misspeller(WordEncoder):
    """An encoder that misspells a share of the longer words that are read: letters exchanged, or one left out, doubled
    or replaced."""

    def __init__(self, tokenizer: ElmoTokenizer, share: float, seed: int) -> None:
        super().__init__(tokenizer)
        self.share = share
        self.chance = random.Random(seed)

    def characters(self, rows: Any) -> Tensor:
        return super().characters([[self.misspelled(token) for token in row] for row in rows])

    def misspelled(self, token: str | int) -> str | int:
        if self.chance.random() >= self.share or isinstance(token, int) or len(token) < 4 or not token.isalpha():
            return token
        place = self.chance.randrange(len(token) - 1)
        first, second = token[place : place + 2]
        other = self.chance.choice(ascii_lowercase)
        typo = self.chance.choice([second + first, second, first + first + second, other + second])
        return token[:place] + typo + token[place + 2 :]


class Streams(IterableDataset):
    """Batches that each worker of a DataLoader makes of its own file."""

    carries_state, endless, rank, world_size = True, True, 0, 1

    def __init__(self, files: list[Path], tokenizer: ElmoTokenizer, options: argparse.Namespace) -> None:
        self.files, self.tokenizer, self.options = files, tokenizer, options
        self.encoder = WordEncoder(tokenizer)

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        torch.set_num_threads(1)
        number, options = get_worker_info().id, self.options
        seed = options.seed + number
        batches = PackedWindows(Texts(self.files[number]), self.tokenizer, options.rows, window=20, seed=seed)
        batches.encoder = Misspeller(self.tokenizer, options.typos, seed)
        batches.endless = True
        for batch in batches:
            yield {name: x.short() if name.endswith("ids") else x for name, x in batch.items()}


class TimedTrainer(ElmoPreTrainer, TrainerCallback):
    """A training that ends `seconds` after it was made, with a state for each of the `readers` in turn."""

    def __init__(self, *args: Any, seconds: float, readers: int, decay: float, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.begin, self.seconds, self.readers, self.decay = time.monotonic(), seconds, readers, decay
        self.states: dict[int, Any] = {}
        self.batches = 0
        self.add_callback(self)

    def get_train_dataloader(self) -> DataLoader:
        how = {"num_workers": self.readers, "prefetch_factor": 6, "pin_memory": torch.cuda.is_available()}
        return DataLoader(self.train_dataset, batch_size=None, multiprocessing_context="fork", **how)

    def _current_settings(self) -> dict[str, Any]:
        return {}  # of a training that is resumed

    def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
        reader = self.batches % self.readers
        self.batches += 1
        self._lstm_state = self.states.get(reader)
        loss = super().compute_loss(*args, **kwargs)
        self.states[reader] = self._lstm_state
        return loss

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> LambdaLR:
        self.lr_scheduler = LambdaLR(optimizer or self.optimizer, self.factor)
        return self.lr_scheduler

    def factor(self, step: int) -> float:
        left = 1 - (time.monotonic() - self.begin) / self.seconds
        return min(1.0, (step + 1) / WARM_UP, max(0.0, left / self.decay))

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        control.should_training_stop |= time.monotonic() - self.begin > self.seconds


def deal(counts: Path, readers: int) -> list[Path]:
    """A file for each reader: each line goes to one of them as often as its number says."""
    chance = random.Random(0)
    files = [counts.with_name(f"reader{number}.txt") for number in range(readers)]
    lines: list[list[bytes]] = [[] for _ in files]
    with counts.open("rb") as content:
        for line in content:
            number, _, text = line.lstrip().partition(b" ")
            for _ in range(int(number)):
                lines[chance.randrange(readers)].append(text)
    for file, own in zip(files, lines, strict=True):
        file.write_bytes(b"".join(own))
    return files


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out")
    parser.add_argument("seconds", type=float)
    parser.add_argument("--rows", type=int, default=1024, help="of a batch, of 20 words each")
    parser.add_argument("--learning-rate", type=float, default=0.002)
    parser.add_argument("--decay", type=float, default=0.6, help="share of the time in which the learning rate falls")
    parser.add_argument("--num-sampled", type=int, default=8192)
    parser.add_argument("--typos", type=float, default=0.05, help="share of the longer words")
    parser.add_argument("--readers", type=int, default=12, help="processes")
    parser.add_argument("--seed", type=int, default=21)
    options = parser.parse_args()
    set_seed(options.seed)
    init = options.folder / "init"
    files, tokenizer = deal(options.folder / "counts.txt", options.readers), ElmoTokenizer.from_pretrained(init)
    fields = {"hidden_dropout": 0.1, "num_sampled": options.num_sampled}
    model = ElmoForPreTraining.from_pretrained(init, **fields, dtype=torch.float32)
    how = {"learning_rate": options.learning_rate, "bf16": True, "max_steps": 10**9, "save_strategy": "no"}
    how |= {"report_to": [], "disable_tqdm": True, "use_cpu": not torch.cuda.is_available(), "seed": options.seed}
    trainer = TimedTrainer(
        model,
        ElmoPreTrainingArguments(options.out, **how),
        Streams(files, tokenizer, options),
        processing_class=tokenizer,
        seconds=options.seconds,
        readers=options.readers,
        decay=options.decay,
    )
    trainer.train()
    trainer.model.half().save_pretrained(options.out)
    tokenizer.save_pretrained(options.out)
    print(f"{trainer.state.global_step:,} steps, {trainer.state.global_step * options.rows * 20:,} words")


if __name__ == "__main__":
    main()
