"""What an ELMo knows, by public tests, beside rows that others published.

    python -m examples.scoreboard [MODEL] [--tests blimp wic ...] [--part dev] [--quick] [--data FOLDER] [--out FILE]

MODEL is what `hf_elmo.load_model` takes, by default the model that ships; without a softmax, BLiMP is left out. `--part
dev` measures what may be used to choose a model, `test` what is reported.
"""

import argparse
import json
import os
import sys
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch
from transformers import AutoConfig

import hf_elmo
from hf_elmo.checkpoints.loading import locate

from . import sentences, words
from .figures import Figure

TESTS: dict[str, Callable[..., Iterator[Figure]]] = {
    "blimp": sentences.blimp,
    "wic": words.wic,
    "change": words.change,
    "senteval": sentences.senteval,
    "layers": words.layers,
    "typos": sentences.typos,
}
PUBLISHED = tomllib.loads(Path(__file__).with_name("published.toml").read_text(encoding="utf-8"))


def cpu_seconds() -> float:
    """The time that processors have worked for this process, for all of its threads together."""
    return sum(os.times()[:2])


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints a line for each figure, and writes all of them as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", nargs="?", help="folder or Hub name of an ELMo [the one that ships with hf_elmo]")
    parser.add_argument("--tests", nargs="+", choices=TESTS, default=list(TESTS), help="some of the tests [all]")
    parser.add_argument("--part", choices=("dev", "test"), default="test", help="of data with such parts [test]")
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="read files of this folder [download the data]")
    parser.add_argument("--dtype", default="float32", help="type of the weights [float32]")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the figures here, too, as JSON")
    parser.add_argument("--quick", action="store_true", help="a tenth of the data, to try the script")
    args = parser.parse_args(arguments)
    has_softmax = AutoConfig.from_pretrained(locate(args.model)).vocab_size is not None
    model, tokenizer = hf_elmo.load_model(args.model, language_model=has_softmax, dtype=args.dtype, device=None)
    every = 10 if args.quick else 1
    rows, seconds = [], {}
    for test in args.tests:
        if test == "blimp" and not has_softmax:
            print("blimp: left out, as the model has no softmax over words", file=sys.stderr)
            continue
        wall, cpu = time.perf_counter(), cpu_seconds()
        chosen = model if test == "blimp" else model.base_model
        for figure in TESTS[test]((chosen, tokenizer), args.data, args.part, every):
            published = PUBLISHED[figure.test].get(figure.what, "")
            source = f"   {published} ({PUBLISHED[figure.test]['source']})" if published else ""
            digits = 3 if figure.test == "meaning change" else 1
            value = f"{figure.value:6.{digits}f} ± {figure.spread:.{digits}f}"
            print(f"{figure.test:15s} {figure.what:48s} {value}{source}", flush=True)
            rows.append({**figure._asdict(), "published": published})
        seconds[test] = {"wall": round(time.perf_counter() - wall, 1), "cpu": round(cpu_seconds() - cpu, 1)}
        print(f"{test}: {seconds[test]['wall']} s, of the processors {seconds[test]['cpu']} s", flush=True)
    if args.out:
        about = {"model": args.model or "elmo-compact-en", "part": args.part, "quick": args.quick, "seconds": seconds}
        about |= {"hf_elmo": hf_elmo.__version__, "torch": torch.__version__, "dtype": args.dtype}
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps({**about, "figures": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
