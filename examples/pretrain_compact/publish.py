"""Makes the folder that ships from a trained checkpoint: 16-bit weights, tokenizer, vocabulary.

    python examples/pretrain_compact/publish.py outputs/run3 hf_elmo/checkpoints/elmo-compact-en

The checkpoint is the last one in the folder of the training run. `--average RUN SHARE` mixes in the weights of another
run: the mean of two runs, one of which began where the other ended, predicts better than either (Wortsman et al. 2022,
"Model soups"). The card (README.md) is written by hand and left as it is.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import torch
from transformers.trainer_utils import get_last_checkpoint

from hf_elmo import ElmoForPreTraining, ElmoTokenizer


def load(checkpoint: str) -> ElmoForPreTraining:
    """The model of a checkpoint, in float32."""
    return ElmoForPreTraining.from_pretrained(checkpoint, dtype=torch.float32)


def main(arguments: Sequence[str] | None = None) -> None:
    """Writes the folder; the weights are stored in float16 and loaded in float32."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("run", help="folder of the training run")
    parser.add_argument("folder", type=Path, help="folder to write")
    parser.add_argument(
        "--average", nargs=2, metavar=("RUN", "SHARE"), help="another run, and its share of the weights"
    )
    options = parser.parse_args(arguments)
    checkpoint, folder = get_last_checkpoint(options.run), options.folder
    model = load(checkpoint)
    if options.average:
        other, share = options.average
        with torch.no_grad():
            for weight, other_weight in zip(model.parameters(), load(other).parameters(), strict=True):
                weight.lerp_(other_weight, float(share))
    model.half().save_pretrained(folder)
    ElmoTokenizer.from_pretrained(checkpoint).save_pretrained(folder)
    # transformers loads in the type that the configuration names, which differs from the type of the file.
    for name, changes in (("config.json", {"dtype": "float32"}), ("tokenizer_config.json", {})):
        fields = json.loads((folder / name).read_text(encoding="utf-8")) | changes
        fields = {key: value for key, value in fields.items() if key not in ("local_files_only", "is_local")}
        (folder / name).write_text(json.dumps(fields, indent=2) + "\n", encoding="utf-8")
    for code in folder.glob("*.py"):  # the package's code is used; without a copy, `auto_map` asks for hf_elmo
        code.unlink()
    (folder / "model.safetensors").chmod(0o644)
    size = sum(file.stat().st_size for file in folder.iterdir())
    print(f"{folder}: {Path(checkpoint).name}, {size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
