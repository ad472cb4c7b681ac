"""The perplexities of the model card, for any number of models.

    python -m examples.pretrain_compact.evaluate MODEL... --corpus corpus --data ../shared/data

Held-out books and text of today, and WikiText-2's test part as it is and without its notation; each line from zero
state. Models are folders with both language models and their vocabulary. The other rows of the card are printed by the
examples that it names, with `--model MODEL`.
"""

import argparse
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

import hf_elmo
from examples.pretrain_compact.books import wikitext_sentences
from hf_elmo.loading import locate


def read_texts(corpus: Path, data: Path) -> dict[str, list[str]]:
    """The lines of each text by its name in the table."""
    wikitext = (data / "lm" / "other" / "wikitext-2" / "test.txt").read_text(encoding="utf-8")
    return {
        "held-out books": (corpus / "heldout.txt").read_text(encoding="utf-8").splitlines(),
        "held-out text of today": (corpus / "heldout_modern.txt").read_text(encoding="utf-8").splitlines(),
        "WikiText-2 test": [line for line in wikitext.split("\n") if line.strip()],
        "WikiText-2 test, without its notation": [" ".join(words) for words in wikitext_sentences(wikitext)],
    }


def main(arguments: Iterable[str] | None = None) -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", type=locate, nargs="+", help="folders of models, or names of those that ship")
    parser.add_argument("--corpus", type=Path, required=True, help="folder that prepare.py wrote")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder [../shared/data]")
    parser.add_argument("--limit", type=int, help="so many lines of each text, to see that it runs [all]")
    args = parser.parse_args(arguments)
    print("| perplexity |", " | ".join(Path(model).name for model in args.models), "|")
    print("| --- |", " | ".join(["---"] * len(args.models)), "|")
    for name, lines in read_texts(args.corpus, args.data).items():
        with TemporaryDirectory() as folder:
            path = Path(folder, "text.txt")
            path.write_text("".join(f"{line}\n" for line in lines[: args.limit]), encoding="utf-8")
            found = [hf_elmo.perplexity(model, path, pretokenized=True) for model in args.models]
        print(f"| {name} |", " | ".join(f"{one.mean:.1f} ({one.unknown:.1%} unknown)" for one in found), "|")


if __name__ == "__main__":
    main()
