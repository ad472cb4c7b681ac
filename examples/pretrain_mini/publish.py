"""Makes the folder that ships out of a trained checkpoint: 16-bit weights, tokenizer, vocabulary, curve.

    python examples/pretrain_mini/publish.py outputs/mini hf_elmo/checkpoints/elmo-mini-en

The checkpoint is the last one in the folder of the training run, whose `trainer_state.json` holds the curve; of a run
that began with another one's weights (`--init`) the curve goes on from that of `--before`, and with `--average` those
weights have a share in what ships: the mean of two trainings, of which one began where the other ended, predicts better
than either (Wortsman et al. 2022, "Model soups"). The card (README.md) is written by hand and left as it is. Needs
matplotlib.
"""

import argparse
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path

import torch
from transformers.trainer_utils import get_last_checkpoint

from hf_elmo import ElmoForPreTraining, ElmoTokenizer


def load(checkpoint: str) -> ElmoForPreTraining:
    """The model of a checkpoint, in float32."""
    return ElmoForPreTraining.from_pretrained(checkpoint, dtype=torch.float32)


@torch.no_grad()
def average(model: ElmoForPreTraining, other: ElmoForPreTraining, share: float) -> None:
    """Makes the weights of `model` the mean of both models' weights, `share` that of the other one."""
    for own, theirs in zip(model.parameters(), other.parameters(), strict=True):
        own.lerp_(theirs, share)


def save_in_half(model: ElmoForPreTraining, checkpoint: str, folder: Path) -> int:
    """The model, stored in float16 and loaded in float32, and the checkpoint's tokenizer into `folder`; returns all
    bytes."""
    largest = max(parameter.abs().max().item() for parameter in model.parameters())
    if largest > torch.finfo(torch.float16).max:
        raise ValueError(f"a weight of {largest:g} does not fit into float16")
    model.half().save_pretrained(folder)
    ElmoTokenizer.from_pretrained(checkpoint).save_pretrained(folder)
    # transformers loads what the configuration says, which is not the type that the file is stored in.
    for name, changes in (("config.json", {"dtype": "float32"}), ("tokenizer_config.json", {})):
        fields = {**json.loads((folder / name).read_text(encoding="utf-8")), **changes}
        for how_loaded in ("local_files_only", "is_local"):
            fields.pop(how_loaded, None)
        fields.pop("auto_map", None)  # inside of the package its own code is used, and a copy would fall behind
        (folder / name).write_text(json.dumps(fields, indent=2) + "\n", encoding="utf-8")
    for code in folder.glob("*.py"):
        code.unlink()
    (folder / "model.safetensors").chmod(0o644)
    return sum(file.stat().st_size for file in folder.iterdir())


def joined(histories: Sequence[list[dict]], words_per_update: int) -> list[dict]:
    """The logs of runs that each began with the weights of the one before, with the words that were read until then."""
    logs, words = [], 0
    for history in histories:
        logs += [{**one, "words": words + one["step"] * words_per_update} for one in history]
        words = logs[-1]["words"]
    return logs


def _history(checkpoint: str) -> list[dict]:
    return json.loads(Path(checkpoint, "trainer_state.json").read_text(encoding="utf-8"))["log_history"]


def plot_curve(history: Sequence[dict], picture: Path) -> None:
    """The training's loss (of the sampled softmax) and the perplexities of dev.txt over millions of words."""
    os.environ.setdefault("MPLBACKEND", "Agg")
    import matplotlib.pyplot as plt

    def series(key: str) -> tuple[list[float], list[float]]:
        points = [(one["words"] / 1e6, one[key]) for one in history if key in one]
        return [x for x, _ in points], [y for _, y in points]

    figure, left = plt.subplots(figsize=(7, 4), layout="constrained")
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
    parser.add_argument(
        "--words-per-update",
        type=int,
        default=256 * 20,
        metavar="N",
        help="words of a batch, boundaries included [%(default)s]",
    )
    parser.add_argument("--before", nargs="+", default=[], metavar="RUN", help="folders of the runs before")
    parser.add_argument(
        "--average",
        nargs=2,
        metavar=("RUN", "SHARE"),
        help="folder of a run, and the share of its weights",
    )
    options = parser.parse_args(arguments)
    runs = [*options.before, options.run]
    checkpoint = get_last_checkpoint(options.run)
    if checkpoint is None:
        raise SystemExit(f"{options.run} holds no checkpoint")
    options.folder.mkdir(parents=True, exist_ok=True)
    model = load(checkpoint)
    if options.average:
        other, share = options.average
        average(model, load(other), float(share))
    size = save_in_half(model, checkpoint, options.folder)
    histories = [_history(get_last_checkpoint(run)) for run in runs]
    plot_curve(joined(histories, options.words_per_update), options.folder / "curve.png")
    step = re.search(r"\d+$", checkpoint).group()
    print(f"{options.folder}: step {step}, {size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
