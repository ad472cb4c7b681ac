"""AllenNLP's names for ELMo, so that code for AllenNLP runs after one import is changed: `Elmo` and `batch_to_ids` of
`allennlp.modules.elmo`, `ScalarMix` of `allennlp.modules`, `ElmoTokenEmbedder`, `remove_sentence_boundaries` and
`ELMoCharacterMapper` of its other modules, `ElmoEmbedder` of AllenNLP 0.9's `allennlp.commands.elmo`.

Signatures, results and behavior are AllenNLP's. The LSTM state is carried from call to call, too, so a sentence gets
different vectors the second time. New code should use [`hf_elmo.ElmoModel`], where each call starts from zero state.
"""

import json
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor, nn

from .configuration_elmo import ElmoConfig
from .conversion.allennlp import read_bilm, read_hdf5, read_options
from .conversion.allennlp_archive import CHARACTERS, bilm_arrays
from .conversion.checkpoint import model_of
from .conversion.published import PUBLISHED, download
from .modeling_elmo import State, normalize
from .text_elmo import as_list
from .tokenization_elmo import ElmoTokenizer
from .utils.extras import extra_needed
from .utils.spelling import BEGIN, END, PADDING, Speller

_ORIGINAL = PUBLISHED["original"]
DEFAULT_OPTIONS_FILE, DEFAULT_WEIGHT_FILE = (_ORIGINAL.hosts[0] + path for path in _ORIGINAL.files)
EMPTY = (3, 0, 1024)  # the shape that AllenNLP returns for a sentence without words
_SPELLER = Speller(ElmoTokenizer(), boundary_words=True)
_BOUNDARIES = torch.from_numpy(_SPELLER.characters([BEGIN, END]))


def batch_to_ids(batch: list[list[str]]) -> Tensor:
    """The character ids `[sentences, words, 50]` of sentences, each a list of words, padded with zeros. Sentence
    boundaries are not added ([`Elmo`] adds them), but the words `<S>` and `</S>` become boundaries."""
    batch = [as_list(sentence, "a sentence") for sentence in as_list(batch, "batch")]
    longest = max(map(len, batch), default=0)
    tokens = [token for sentence in batch for token in (*sentence, *[PADDING] * (longest - len(sentence)))]
    return torch.from_numpy(_SPELLER.characters(tokens)).view(len(batch), longest, 50)


class ELMoCharacterMapper:
    """AllenNLP's mapper of a word to its character ids, those of [`batch_to_ids`]."""

    max_word_length = 50

    @staticmethod
    def convert_word_to_char_ids(word: str) -> list[int]:
        return batch_to_ids([[word]])[0, 0].tolist()


class _ElmoBiLm(nn.Module):
    """AllenNLP's biLM, loaded from two files. It adds the sentence boundaries. Each row of a batch continues from the
    state of this row after the last call, unless `stateful` is false."""

    def __init__(
        self,
        options_file: str | Path,
        weight_file: str | Path,
        requires_grad: bool = False,
        vocab_to_cache: list[str] | None = None,
    ) -> None:
        super().__init__()
        if str(options_file).startswith("http"):
            given = (str(options_file), str(weight_file))
            names = [name for name, own in PUBLISHED.items() if all(map(str.endswith, given, own.files))]
            if not names:
                raise ValueError(f"{given}: no published model has these addresses. Give two local files.")
            options_file, weight_file = download(names[0])
        options = read_options(Path(options_file).expanduser())
        config, arrays = read_bilm(options, read_hdf5(Path(weight_file).expanduser()), str(weight_file))
        # A fixed mix has no parameters: as in AllenNLP, this module has only those of the biLM.
        self.model = model_of(ElmoConfig.from_dict(config.to_dict(), layer_weights=0), arrays)
        self.model.freeze_bilm(not requires_grad)
        self.num_layers = self.model.config.num_hidden_layers + 1
        self.stateful = True
        self.state: State | None = None
        cached = batch_to_ids([[] if vocab_to_cache is None else vocab_to_cache])[0]
        self.register_buffer("cached_ids", cached, persistent=False)

    @property
    def _elmo_lstm(self) -> "_ElmoBiLm":  # code for AllenNLP uses _elmo_lstm.reset_states and _elmo_lstm.stateful
        return self

    def get_output_dim(self) -> int:
        return self.model.config.hidden_size

    def forward(self, inputs: Tensor, word_inputs: Tensor | None = None) -> dict[str, Any]:
        """`inputs [sentences, words, 50]` and `word_inputs [sentences, words]` are as in [`Elmo`]. Returns
        `activations`, a list of the layers `[sentences, words + 2, 2P]`, and `mask`, `[sentences, words + 2]`."""
        cached = len(self.cached_ids)
        if word_inputs is not None and cached and bool(((word_inputs >= 0) & (word_inputs < cached)).all()):
            inputs = self.cached_ids[word_inputs] * (word_inputs > 0)[..., None]
        lengths = (inputs > 0).any(2).sum(1)
        boundaries = _BOUNDARIES.to(inputs.device)
        rows = len(inputs)
        state = None
        ids = nn.functional.pad(inputs, (0, 0, 1, 1))
        ids[:, 0] = boundaries[0]
        ids[torch.arange(rows, device=ids.device), lengths + 1] = boundaries[1]
        mask = torch.arange(ids.shape[1], device=ids.device) < lengths[:, None] + 2
        if self.stateful and self.state is not None:  # rows that had no state begin with zero
            new_rows = (0, 0, 0, max(0, rows - self.state[0].shape[2]))
            self.state = tuple(nn.functional.pad(part, new_rows) for part in self.state)
            state = tuple(part[:, :, :rows] for part in self.state)
        output = self.model(ids, mask, state=state, output_hidden_states=True, use_cache=self.stateful)
        if self.stateful:  # rows that this batch lacks keep their state
            both = zip(output.state, self.state or output.state, strict=True)
            self.state = tuple(torch.cat((new, old[:, :, rows:]), dim=2).detach() for new, old in both)
        return {"activations": list(output.hidden_states), "mask": mask.long()}

    def reset_states(self) -> None:
        """Resets the state to zero."""
        self.state = None

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *args: Any) -> None:
        """Also loads state dicts that AllenNLP saved, in which the biLM's parameters have AllenNLP's names."""
        if f"{prefix}{CHARACTERS}" in state_dict:
            theirs = {name.removeprefix(prefix) for name in state_dict if name.startswith(prefix)}
            arrays = {name: state_dict.pop(prefix + name).detach().float().cpu().numpy() for name in theirs}
            tensors = bilm_arrays(arrays, f"the state dict's {prefix}")
            state_dict |= {f"{prefix}model.{name}": torch.from_numpy(array) for name, array in tensors.items()}
        super()._load_from_state_dict(state_dict, prefix, *args)


class ScalarMix(nn.Module):
    """AllenNLP's `ScalarMix`: `gamma * sum(softmax(scalar_parameters) * layers)`, for `mixture_size` layers.

    Args:
        do_layer_norm: whether layers are normalized before they are mixed.
        initial_scalar_parameters: the scalars before the softmax, one for each layer; by default zeros.
        trainable: whether the scalars and gamma are trained.
    """

    def __init__(
        self,
        mixture_size: int,
        do_layer_norm: bool = False,
        initial_scalar_parameters: list[float] | None = None,
        trainable: bool = True,
    ) -> None:
        super().__init__()
        values = [0.0] * mixture_size if initial_scalar_parameters is None else initial_scalar_parameters
        self.do_layer_norm = do_layer_norm
        # The names are AllenNLP's, because code for AllenNLP uses them.
        self.scalar_parameters = nn.ParameterList(nn.Parameter(torch.tensor([float(x)]), trainable) for x in values)
        self.gamma = nn.Parameter(torch.ones(1), trainable)

    def forward(self, layers: list[Tensor], mask: Tensor | None = None) -> Tensor:
        """The mix `[sentences, words, size]` of layers of this shape; `do_layer_norm` reads the words of the mask."""
        if self.do_layer_norm:
            places = mask.bool()
            layers = [x.new_zeros(x.shape).masked_scatter(places[..., None], normalize(x[places])) for x in layers]
        weights = self.gamma * torch.softmax(torch.cat(list(self.scalar_parameters)), dim=0)
        mix = weights[0] * layers[0]
        for weight, layer in zip(weights[1:], layers[1:], strict=True):
            mix = torch.addcmul(mix, weight.to(mix.dtype), layer)
        return mix


def remove_sentence_boundaries(tensor: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Values `[..., words + 2, size]` and the mask, int64, of right-padded rows without the boundaries."""
    inner = mask[:, 2:]
    return tensor[..., 1:-1, :] * inner[..., None], inner.long()


class Elmo(nn.Module):
    """AllenNLP's `Elmo`: a biLM and `num_output_representations` learned mixes of its layers.

    Args:
        options_file, weight_file: AllenNLP's two files, or the addresses of a model that AllenNLP published.
        requires_grad: whether the biLM is trained. The mixes are always trained, unless `scalar_mix_parameters` is set.
        do_layer_norm: whether layers are normalized before they are mixed.
        dropout: the dropout probability on the mixes, in training.
        vocab_to_cache: words that `forward` takes by their indices in this list; index 0 is for padding. Unlike in
            AllenNLP, their vectors are not stored: in each batch, every distinct word is computed once.
        keep_sentence_boundaries: whether `<S>` and `</S>` are in the result.
        scalar_mix_parameters: fixed scalars of every mix, before the softmax.
        module: a biLM such as [`ElmoEmbedder`]'s `elmo_bilm`, to use as it is instead of the two files.

    The parameters of the mixes are named as in AllenNLP, `scalar_mix_0.scalar_parameters.0` and `scalar_mix_0.gamma`,
    and state dicts that AllenNLP saved can be loaded.

    Raises:
        ValueError: the content of a file is wrong, or the addresses are not those of a published model.
    """

    def __init__(
        self,
        options_file: str | Path | None,
        weight_file: str | Path | None,
        num_output_representations: int,
        requires_grad: bool = False,
        do_layer_norm: bool = False,
        dropout: float = 0.5,
        vocab_to_cache: list[str] | None = None,
        keep_sentence_boundaries: bool = False,
        scalar_mix_parameters: list[float] | None = None,
        module: nn.Module | None = None,
    ) -> None:
        super().__init__()
        module = _ElmoBiLm(options_file, weight_file, requires_grad, vocab_to_cache) if module is None else module
        self._elmo_lstm = module
        self._dropout = nn.Dropout(dropout)
        self._keep_sentence_boundaries = keep_sentence_boundaries
        self._mixes = [f"scalar_mix_{number}" for number in range(num_output_representations)]
        for name in self._mixes:
            mix = ScalarMix(module.num_layers, do_layer_norm, scalar_mix_parameters, scalar_mix_parameters is None)
            self.add_module(name, mix)

    def get_output_dim(self) -> int:
        """The size of a word's vector: 2P, where P is the size of one direction's output."""
        return self._elmo_lstm.get_output_dim()

    def forward(self, inputs: Tensor, word_inputs: Tensor | None = None) -> dict[str, Any]:
        """The mixes of the layers of `inputs`, `[..., words, 50]` ids of [`batch_to_ids`]. If `word_inputs`,
        `[..., words]`, has only indices of words in `vocab_to_cache` (0 is padding), these are read instead.

        Returns:
            `elmo_representations`, a list of the mixes, each `[..., words, 2P]`, and `mask` `[..., words]`, int64; with
            `keep_sentence_boundaries`, words + 2 instead of words.
        """
        shape = inputs.shape[:-2]
        if word_inputs is not None:
            word_inputs = word_inputs.flatten(0, -2)
        output = self._elmo_lstm(inputs.flatten(0, -3), word_inputs)
        mask = output["mask"]
        mixes = torch.stack([getattr(self, name)(output["activations"], mask) for name in self._mixes])
        if not self._keep_sentence_boundaries:
            mixes, mask = remove_sentence_boundaries(mixes, mask)
        representations = list(self._dropout(mixes).unflatten(1, shape))
        return {"elmo_representations": representations, "mask": mask.unflatten(0, shape)}


class ElmoTokenEmbedder(nn.Module):
    """AllenNLP's `ElmoTokenEmbedder` without `projection_dim`: returns the mix `[..., words, 2P]` of an [`Elmo`]."""

    def __init__(self, options_file: str | Path, weight_file: str | Path, **options: Any) -> None:
        super().__init__()
        self._elmo = Elmo(options_file, weight_file, 1, **options)

    def get_output_dim(self) -> int:
        return self._elmo.get_output_dim()

    def forward(self, elmo_tokens: Tensor, word_inputs: Tensor | None = None) -> Tensor:
        return self._elmo(elmo_tokens, word_inputs)["elmo_representations"][0]


class ElmoEmbedder(nn.Module):
    """AllenNLP 0.9's `ElmoEmbedder`: the vectors of words in all layers, as arrays.

    Args:
        options_file, weight_file: as in [`Elmo`]; by default the model "original", which is downloaded.
        cuda_device: the index of a GPU, or -1 for the CPU.
    """

    def __init__(
        self,
        options_file: str | Path = DEFAULT_OPTIONS_FILE,
        weight_file: str | Path = DEFAULT_WEIGHT_FILE,
        cuda_device: int = -1,
    ) -> None:
        super().__init__()
        self.cuda_device = cuda_device
        self.elmo_bilm = _ElmoBiLm(options_file, weight_file)
        self.eval().to(cuda_device if cuda_device >= 0 else "cpu")

    def batch_to_embeddings(self, batch: list[list[str]]) -> tuple[Tensor, Tensor]:
        """The layers `[sentences, layers, words, 2P]` of sentences, and the mask `[sentences, words]`, int64."""
        output = self.elmo_bilm(batch_to_ids(batch).to(self.elmo_bilm.model.device))
        layers, mask = remove_sentence_boundaries(torch.stack(output["activations"]), output["mask"])
        return layers.transpose(0, 1), mask

    def embed_sentence(self, sentence: list[str]) -> np.ndarray:
        """The layers `[layers, words, 2P]` of a sentence."""
        return self.embed_batch([sentence])[0]

    def embed_batch(self, batch: list[list[str]]) -> list[np.ndarray]:
        """The layers `[layers, words, 2P]` of each sentence; of one without words always `[3, 0, 1024]`."""
        if list(map(len, batch)) == [0]:
            return [np.zeros(EMPTY)]
        with torch.no_grad():
            embeddings, _ = self.batch_to_embeddings(batch)
        pairs = zip(embeddings.cpu().numpy(), map(len, batch), strict=True)
        return [rows[:, :length] if length else np.zeros(EMPTY) for rows, length in pairs]

    def embed_sentences(self, sentences: Iterable[list[str]], batch_size: int = 64) -> Iterator[np.ndarray]:
        """The layers of each sentence, computed for `batch_size` sentences at a time."""
        sentences = iter(sentences)
        while batch := list(islice(sentences, batch_size)):
            yield from self.embed_batch(batch)

    def embed_file(
        self,
        input_file: IO,
        output_file_path: str,
        output_format: str = "all",
        batch_size: int = 64,
        forget_sentences: bool = False,
        use_sentence_keys: bool = False,
    ) -> None:
        """Write the vectors of a file of tokenized sentences (one per line), which is closed, into an HDF5 file:
        `"all"` layers, the `"top"` layer or the `"average"` of the layers. Keys are line indices, and the dataset
        `sentence_to_index` maps each sentence to its key, unless `forget_sentences` is set; or keys are the sentences
        (`use_sentence_keys`), in which text before a `/` names a group, as in AllenNLP's files.

        Raises:
            ValueError: there are empty lines, or with `use_sentence_keys` a sentence that HDF5 cannot name or has.
        """
        with extra_needed("convert"):
            import h5py

        choose = {"all": lambda x: x, "top": lambda x: x[-1], "average": lambda x: np.average(x, axis=0)}[output_format]
        with input_file:
            sentences = [line.strip() for line in input_file]
        if blank := [number for number, sentence in enumerate(sentences) if not sentence]:
            raise ValueError(f"Your input file contains empty lines at indexes {blank}. Please remove them.")
        embedded = self.embed_sentences((sentence.split() for sentence in sentences), batch_size)
        with h5py.File(output_file_path, "w") as file:
            for number, (sentence, layers) in enumerate(zip(sentences, embedded, strict=True)):
                key = sentence if use_sentence_keys else str(number)
                file.create_dataset(key, dtype="float32", data=choose(layers))
            if not forget_sentences and not use_sentence_keys:
                index = file.create_dataset("sentence_to_index", (1,), dtype=h5py.string_dtype())
                index[0] = json.dumps({sentence: str(number) for number, sentence in enumerate(sentences)})
