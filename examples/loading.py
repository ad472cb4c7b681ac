"""What the examples share: the option --model, and loading what it names."""

import argparse

import torch

import hf_elmo


def add_model_option(parser: argparse.ArgumentParser) -> None:
    """Adds `--model`."""
    parser.add_argument("--model", help="folder or Hub name of an ELMo [the one that ships with hf_elmo]")


def load(name: str | None) -> tuple[hf_elmo.ElmoModel, hf_elmo.ElmoTokenizer]:
    """The model and the tokenizer that `--model` names."""
    if name is None:
        return hf_elmo.load_default()
    model = hf_elmo.ElmoModel.from_pretrained(name, dtype=torch.float32)
    return model, hf_elmo.ElmoTokenizer.from_pretrained(name)
