"""Makes the folder that ships from a trained checkpoint: 16-bit weights, tokenizer, vocabulary.

    python examples/pretrain_compact/publish.py outputs/run3 hf_elmo/checkpoints/elmo-compact-en

The checkpoint is the last one in the folder of the training run, or that folder itself, if it has none. `--average RUN
SHARE` mixes in the weights of another run: the mean of two runs, one of which began where the other ended, predicts
better than either (Wortsman et al. 2022, "Model soups"). The card (README.md) is written by hand and left as it is.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch
from transformers.trainer_utils import get_last_checkpoint

from hf_elmo import ElmoForPreTraining, ElmoTokenizer


def main(arguments: Sequence[str] | None = None) -> None:
    """Writes the folder; the weights are stored in float16 and loaded in float32."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("run", help="folder of the training run")
    parser.add_argument("folder", type=Path, help="folder to write")
    parser.add_argument("--average", nargs=2, metavar=("RUN", "SHARE"), help="another run, and its share")
    options = parser.parse_args(arguments)
    checkpoint, folder = get_last_checkpoint(options.run) or options.run, options.folder
    model = ElmoForPreTraining.from_pretrained(checkpoint, dtype=torch.float32)
    weights = model.state_dict()
    if options.average:
        run, share = options.average
        other = ElmoForPreTraining.from_pretrained(run, dtype=torch.float32).state_dict()
        weights = {name: weight.lerp(other[name], float(share)) for name, weight in weights.items()}
    # The configuration names the type of the model, float32, in which transformers then loads.
    model.save_pretrained(folder, state_dict={name: weight.half() for name, weight in weights.items()})
    ElmoTokenizer.from_pretrained(checkpoint).save_pretrained(folder)
    for code in folder.glob("*.py"):  # the package's code is used; without a copy, `auto_map` asks for hf_elmo
        code.unlink()
    (folder / "model.safetensors").chmod(0o644)  # safetensors lets nobody else read it
    size = sum(file.stat().st_size for file in folder.iterdir())
    print(f"{folder}: {Path(checkpoint).name}, {size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
