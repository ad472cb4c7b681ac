"""Two recipes side by side at equal processor time: held-out perplexity after the same minutes of one core.

    python -m examples.own_language.recipes FOLDER OUT --minutes 10 --seeds 1 2

Trains a biLM of 18.6 million weights on each language with bilm-tf's recipe and with the default one. Processor time
is counted, so other programs may run beside it. OUT keeps the texts; what OUT/results.jsonl holds is not repeated.
"""

import argparse
import json
import time
from collections.abc import Sequence
from itertools import islice, product
from pathlib import Path
from typing import Any

import torch
from transformers.utils import logging

import hf_elmo
from examples.korean import prepare as korean
from examples.own_language import prepare
from hf_elmo.pretraining.vocabulary import build_vocabulary
from hf_elmo.reading.files import read_lines

SIZES = {"hidden_size": 512, "cell_size": 768, "num_highway_layers": 1}
SIZES |= {"char_filters": [[1, 32], [2, 32], [3, 64], [4, 128], [5, 256]]}
RECIPES = ("bilm-tf", "new")
ENGLISH = "lm/modern/openstax_cc_by/openstax_cc_by.txt.gz"
PARAGRAPHS = 30_000  # of the English text: 1.9 million words
HELD_OUT = 1000  # sentences
PROBES = 3, 8  # steps of the two trainings whose difference says what a step costs


def write_texts(language: str, data: Path, out: Path) -> None:
    """Writes train.txt, heldout.txt and vocab.txt of a language into `out`."""
    out.mkdir(parents=True, exist_ok=True)
    if language == "korean":
        korean.main([str(data), str(out)])
    else:
        file = data / (ENGLISH if language == "english" else f"multilingual/tokens/{language}.txt")
        (out / "raw.txt").write_text("".join(islice(read_lines(file), PARAGRAPHS)), encoding="utf-8")
        prepare.main([str(out / "raw.txt"), str(out)])
    held_out = list(islice(read_lines(out / "heldout.txt"), HELD_OUT))
    (out / "heldout.txt").write_text("".join(held_out), encoding="utf-8")
    vocabulary = build_vocabulary(map(str.split, read_lines(out / "train.txt")), size=40_000)
    vocabulary.save(out / "vocab.txt")


def train(texts: Path, steps: int, seed: int, recipe: str) -> float:
    """Trains `steps` steps into `texts`/model; returns the processor time in seconds."""
    started = time.process_time()
    how = {"recipe": recipe, "vocabulary": texts / "vocab.txt", "config": SIZES, "pretokenized": True}
    how |= {"max_steps": steps, "seed": seed, "save_strategy": "no", "disable_tqdm": True, "logging_steps": 100}
    hf_elmo.pretrain(texts / "train.txt", texts / "model", overwrite=True, **how)
    return time.process_time() - started


def measure(texts: Path, recipe: str, seed: int, minutes: float) -> dict[str, Any]:
    """Held-out perplexity after `minutes` of processor time."""
    few, more = PROBES
    step = (train(texts, more, seed, recipe) - train(texts, few, seed, recipe)) / (more - few)
    steps = round(60 * minutes / step)
    seconds = train(texts, steps, seed, recipe)
    result = hf_elmo.perplexity(texts / "model", texts / "heldout.txt", pretokenized=True)
    return {"steps": steps, "seconds": round(seconds), "perplexity": round(result.mean, 1), "unknown": result.unknown}


def main(arguments: Sequence[str] | None = None) -> None:
    """Trains what is not in the results, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data", type=Path, help="the data folder")
    parser.add_argument("out", type=Path, help="folder for texts, models and results.jsonl")
    parser.add_argument("--languages", nargs="+", default=["english", "korean", "de"], help="[english korean de]")
    parser.add_argument("--minutes", type=float, default=10.0, help="of processor time for each training [10]")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2], help="[1 2]")
    args = parser.parse_args(arguments)
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    args.out.mkdir(parents=True, exist_ok=True)
    file = args.out / "results.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    for seed, language, recipe in product(args.seeds, args.languages, RECIPES):
        run = {"language": language, "recipe": recipe, "seed": seed, "minutes": args.minutes}
        if any(run.items() <= row.items() for row in rows):
            continue
        texts = args.out / language
        if not (texts / "vocab.txt").exists():
            write_texts(language, args.data, texts)
        rows.append(run | measure(texts, recipe, seed, args.minutes))
        file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        print(rows[-1], flush=True)
    for language, recipe in product(args.languages, RECIPES):
        run = {"language": language, "recipe": recipe, "minutes": args.minutes}
        found = [str(row["perplexity"]) for row in rows if run.items() <= row.items()]
        print(f"| {language} | {recipe} | {', '.join(found)} |")


if __name__ == "__main__":
    main()
