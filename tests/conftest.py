"""What all tests share: small models, and the data that lies beside the project."""

import os
from pathlib import Path

import pytest
import torch

from hf_elmo import ElmoConfig, ElmoModel, ElmoTokenizer

# Models this small are slower on several, and tests run side by side.
torch.set_num_threads(int(os.environ.get("ELMO_TEST_THREADS", "1")))

# Sizes that all differ, so that swapped axes fail.
TINY = {
    "char_embedding_size": 5,
    "char_filters": [[1, 4], [2, 8], [3, 25]],
    "hidden_size": 22,
    "cell_size": 19,
    "num_highway_layers": 2,
}

SENTENCES = [
    "The cat sat on the mat .",
    "A",
    "Ünïcödé wörds 日本語 and 😀 , too",
    "It didn 't rain in Spain ; the plain stayed dry for eleven more days than anybody thought .",
]


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real data beside the project: skipped where it is missing, failed where it must be there."""
    root = Path(__file__).parent.parent
    folder = Path(os.environ.get("ELMO_SHARED", root / ".." / "shared")).resolve()
    if (folder / "data").is_dir():
        return folder
    message = f"no data in {folder}: set ELMO_SHARED to the folder that holds it"
    if os.environ.get("ELMO_REQUIRE_SHARED") == "1":
        pytest.fail(message)
    pytest.skip(message)


@pytest.fixture
def config() -> ElmoConfig:
    return ElmoConfig(**TINY)


@pytest.fixture
def tokenizer() -> ElmoTokenizer:
    return ElmoTokenizer(word_splitting="whitespace")


@pytest.fixture
def model(config: ElmoConfig) -> ElmoModel:
    return random_model(config)


@pytest.fixture
def threads():
    """A function that sets the number of threads until the test ends."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def random_model(config: ElmoConfig, model_class: type = ElmoModel, seed: int = 0) -> torch.nn.Module:
    """A model of random weights, large enough that its clips take part."""
    torch.manual_seed(seed)
    model = model_class(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".weight_" in name or name.endswith("bias"):
                parameter.add_(torch.randn_like(parameter) * 0.5)
    return model
