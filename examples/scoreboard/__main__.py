"""What an ELMo knows, by public tests, beside rows that others published.

    python -m examples.scoreboard [MODEL] [--tests blimp wic ...] [--part dev] [--data FOLDER] [--out FILE]

MODEL is what `hf_elmo.load_model` takes, by default the model that ships. BLiMP needs a model with its softmax. `--part
dev` measures what may be used to choose a model, `test` what is reported.
"""

import argparse
import json
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import hf_elmo

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


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints a line for each figure, and writes all of them as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", nargs="?", help="folder or Hub name of an ELMo [the one that ships with hf_elmo]")
    parser.add_argument("--tests", nargs="+", choices=TESTS, default=list(TESTS), help="some of the tests [all]")
    parser.add_argument("--part", choices=("dev", "test"), default="test", help="of data with such parts [test]")
    parser.add_argument("--data", type=Path, help="folder of the data [downloads]")
    parser.add_argument("--dtype", default="float32", help="type of the weights [float32]")
    parser.add_argument("--out", type=Path, help="file for the figures, JSON")
    args = parser.parse_args(arguments)
    language_model = "blimp" in args.tests
    model, tokenizer = hf_elmo.load_model(args.model, language_model=language_model, dtype=args.dtype)
    of_words = model.elmo if language_model else model, tokenizer
    rows = []
    for test in args.tests:
        begin = time.perf_counter()
        run = partial(TESTS[test], model, tokenizer) if test == "blimp" else partial(TESTS[test], of_words)
        for figure in run(args.data, args.part):
            published = PUBLISHED.get(figure.test, {})
            beside = published.get(figure.what, "")
            digits = 3 if figure.test == "meaning change" else 1
            value = f"{figure.value:6.{digits}f} ± {figure.spread:.{digits}f}"
            source = f"   {beside} ({published['source']})" if beside else ""
            print(f"{figure.test:15s} {figure.what:48s} {value}{source}", flush=True)
            rows.append({**figure._asdict(), "published": beside})
        print(f"{test}: {time.perf_counter() - begin:.0f} s", flush=True)
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps({"model": args.model, "part": args.part, "figures": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
