"""The option `--model` of the examples, and loading the model it names."""

import argparse

import hf_elmo
from hf_elmo.shipped import load_model


def add_model_option(parser: argparse.ArgumentParser) -> None:
    """Adds `--model`."""
    parser.add_argument("--model", help="folder or Hub name of an ELMo [the one that ships with hf_elmo]")


def load(name: str | None) -> tuple[hf_elmo.ElmoModel, hf_elmo.ElmoTokenizer]:
    """The model and the tokenizer that `--model` names."""
    return load_model(name, dtype="float32")
