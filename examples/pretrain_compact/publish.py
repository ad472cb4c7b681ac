"""Makes the folder that ships from a trained checkpoint: 16-bit weights, tokenizer, vocabulary, curve.

    python examples/pretrain_compact/publish.py outputs/run3 hf_elmo/checkpoints/elmo-compact-en

The checkpoint is the last one in the folder of the training run; its `trainer_state.json` holds the curve. If the run
began with the weights of another run (`--init`), `--before` names that run, and its curve comes first. `--average`
mixes in the weights of another run: the mean of two runs, one of which began where the other ended, predicts better
than either (Wortsman et al. 2022, "Model soups"). The card (README.md) is written by hand and left as it is. Needs
matplotlib.
"""

import argparse
import json
import re
from collections.abc import Sequence
from pathlib import Path

import torch
from matplotlib.figure import Figure
from transformers.trainer_utils import get_last_checkpoint

from hf_elmo import ElmoForPreTraining, ElmoTokenizer

WORDS_PER_UPDATE = 256 * 20  # the words of a batch in run.sh, boundaries included


def load(checkpoint: str) -> ElmoForPreTraining:
    """The model of a checkpoint, in float32."""
    return ElmoForPreTraining.from_pretrained(checkpoint, dtype=torch.float32)


def save_in_half(model: ElmoForPreTraining, checkpoint: str, folder: Path) -> None:
    """Saves the model, stored in float16 and loaded in float32, and the tokenizer of the checkpoint in `folder`."""
    model.half().save_pretrained(folder)
    ElmoTokenizer.from_pretrained(checkpoint).save_pretrained(folder)
    # transformers loads in the type that the configuration names, which differs from the type of the file.
    for name, changes in (("config.json", {"dtype": "float32"}), ("tokenizer_config.json", {})):
        fields = {**json.loads((folder / name).read_text(encoding="utf-8")), **changes}
        for left_out in ("local_files_only", "is_local"):
            fields.pop(left_out, None)
        (folder / name).write_text(json.dumps(fields, indent=2) + "\n", encoding="utf-8")
    for code in folder.glob("*.py"):  # the package's code is used; without a copy, `auto_map` asks for hf_elmo
        code.unlink()
    (folder / "model.safetensors").chmod(0o644)


def joined(histories: Sequence[list[dict]]) -> list[dict]:
    """The logs of consecutive runs, each with the number of words that were read until then."""
    logs, words = [], 0
    for history in histories:
        logs += [{**one, "words": words + one["step"] * WORDS_PER_UPDATE} for one in history]
        words = logs[-1]["words"]
    return logs


def plot_curve(history: Sequence[dict], picture: Path) -> None:
    """The training's loss (of the sampled softmax) and the perplexities of dev.txt over millions of words."""

    def series(key: str) -> tuple[list[float], list[float]]:
        points = [(one["words"] / 1e6, one[key]) for one in history if key in one]
        return [x for x, _ in points], [y for _, y in points]

    figure = Figure(figsize=(7, 4), layout="constrained")
    left = figure.subplots()
    left.plot(*series("loss"), color="tab:gray", linewidth=1, label="training loss")
    left.set(xlabel="million words read", ylabel="nats a word", ylim=(0, None))
    right = left.twinx()
    for direction, marker in (("forward", "o"), ("backward", "s")):
        right.plot(*series(f"eval_{direction}_perplexity"), marker=marker, label=f"{direction} perplexity")
    right.set(ylabel="perplexity", ylim=(0, None))
    figure.legend(loc="outside upper center", ncols=3, frameon=False)
    figure.savefig(picture, dpi=120)


def main(arguments: Sequence[str] | None = None) -> None:
    """Reads the options, and writes the folder."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("run", help="folder of the training run")
    parser.add_argument("folder", type=Path, help="folder to write")
    parser.add_argument("--before", nargs="+", default=[], metavar="RUN", help="folders of the runs before")
    parser.add_argument(
        "--average", nargs=2, metavar=("RUN", "SHARE"), help="folder of a run, and the share of its weights"
    )
    options = parser.parse_args(arguments)
    runs = [*options.before, options.run]
    checkpoint = get_last_checkpoint(options.run)
    options.folder.mkdir(parents=True, exist_ok=True)
    model = load(checkpoint)
    if options.average:
        other, share = options.average
        with torch.no_grad():
            for weight, other_weight in zip(model.parameters(), load(other).parameters(), strict=True):
                weight.lerp_(other_weight, float(share))
    save_in_half(model, checkpoint, options.folder)
    states = (Path(get_last_checkpoint(run), "trainer_state.json").read_text(encoding="utf-8") for run in runs)
    plot_curve(joined([json.loads(state)["log_history"] for state in states]), options.folder / "curve.png")
    size = sum(file.stat().st_size for file in options.folder.iterdir())
    step = re.search(r"\d+$", checkpoint).group()
    print(f"{options.folder}: step {step}, {size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
