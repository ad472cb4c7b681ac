"""What a settled start is worth: the perplexity of a text when sentences start from zeros, from the state after other
text (`hf_elmo.settle`), and from the state after the previous sentence.

    python examples/settled_start.py MODEL... --before train.txt --text heldout.txt [--sentences 1000] [--out FOLDER]

Files are tokenized, one sentence per line. With `--out` the last model is saved in FOLDER, with its settled start.
"""

import argparse
from itertools import islice
from pathlib import Path

import hf_elmo


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="MODEL", help="folders or names, with softmax and vocabulary")
    parser.add_argument("--before", type=Path, required=True, help="the text to settle on")
    parser.add_argument("--text", type=Path, required=True, help="the text to predict")
    parser.add_argument("--sentences", type=int, default=1000, help="of --before, from its beginning [1000]")
    parser.add_argument("--out", type=Path, help="folder for the last model, settled")
    args = parser.parse_args(arguments)
    with args.before.open(encoding="utf-8") as file:
        before = list(islice(filter(str.strip, file), args.sentences))
    print("| model | from zeros | settled | carried |\n|---|--:|--:|--:|")
    for name in args.models:
        model, tokenizer = hf_elmo.load_model(name, language_model=True, dtype="float32")
        zeros = hf_elmo.perplexity(model, args.text, tokenizer=tokenizer, pretokenized=True)
        carried = hf_elmo.perplexity(
            model, args.text, tokenizer=tokenizer, pretokenized=True, stateful=True, batch_size=32
        )
        hf_elmo.settle(model, before, tokenizer=tokenizer, pretokenized=True)
        settled = hf_elmo.perplexity(model, args.text, tokenizer=tokenizer, pretokenized=True)
        print(f"| {name} | {zeros.mean:.1f} | {settled.mean:.1f} | {carried.mean:.1f} |", flush=True)
    if args.out:
        model.save_pretrained(args.out)
        tokenizer.save_pretrained(args.out)


if __name__ == "__main__":
    main()
