"""Compare every layer with AllenNLP's own ELMo: random weights, WikiText-2 and hostile Unicode, converted and exported.

    python benchmarks/parity_allennlp.py --allennlp-python PATH [--sizes tiny small] [--sentences 200]

PATH is the Python of an environment with AllenNLP 2.10.1; `peers/README.md` of the shared folder says how to make one.
Needs `pip install -e ".[convert]"`. Prints the largest absolute difference of each layer, and ends with status 1 if
one is over 1e-5.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModel, AutoTokenizer

import hf_elmo
from common import read_sentences as read_wikitext
from common import shared_folder
from hf_elmo.conversion import convert, export

TOLERANCE = 1e-5

# One sentence per line, as both sides read it: Unicode's whitespace separates words.
HOSTILE = [
    "naïve façade Ångström ﬁne ﬀ № ™ ½ Ⅷ ſ ẞ İstanbul ı",
    "e\u0301 n\u0303 Z\u0351\u036b\u0343\u034fA\u0334\u0335L\u0323\u034e\u0330GO \u0301 \u200d \u200b \ufeff",
    "日本語 中文字符 한국어 조선말 ไทยไม่มีช่องว่าง မြန်မာ ខ្មែរ བོད་ཡིག",
    "שלום עולם مرحبا بالعالم \u202eright-to-left\u202c \u2066isolated\u2069 ‏mark",
    "😀 👩\u200d👩\u200d👧\u200d👦 🏳\ufe0f\u200d🌈 🇫🇷 👍🏿 ☃\ufe0e ☃\ufe0f",
    "𝔐𝔞𝔱𝔥 𝓢𝓬𝓻𝓲𝓹𝓽 𐍈 𒀀 𓀀 \U0010ffff \U000e0001 \ufffd \uffff \ufdd0",
    "a\x00b \x00 \x01\x02\x03 \x7f \x80 \x9f tab\u00a0nbsp\u2003em",
    " ".join(["x" * length for length in (47, 48, 49, 10_000)] + ["é" * 24, "é" * 25, "a" + "日" * 16]),
    "<s> </s> <UNK> <unk> <pad> [CLS] &amp; &#0; %00 \\n \\u0000 ../../etc/passwd ' \" '' -- ' OR 1=1",
    "i̇ ǅ ﷽ ㍿ ㎏ ٠١٢٣ 〇 ０１２ +-±∞ ∂²ψ/∂x² ≠≈ 10⁻³ H₂O",
    "a",
    ". . . . . . . . . . . . . . . . . . . . . . . . . . . . . . . . . . . . . . . .",
]


def read_sentences(path: Path) -> list[list[str]]:
    """The sentences of a file as AllenNLP's script reads them."""
    return [line.split() for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]


def allennlp_layers(
    python: str, shared: Path, files: Path, text: Path, batch_size: int, carried: bool
) -> list[np.ndarray]:
    """AllenNLP's layers of each sentence, `[num_layers + 1, words + 2, 2P]`, from its own code in its own process."""
    with tempfile.TemporaryDirectory() as folder:
        saved = Path(folder) / "layers.npz"
        command = [python, str(shared / "peers" / "allennlp_elmo.py"), str(files / "options.json")]
        command += [str(files / "weights.hdf5"), str(text), "--save", str(saved), "--batch-size", str(batch_size)]
        command += ["--threads", "1"]  # two threads would wait for each other when other work runs
        done = subprocess.run(command + ["--stateless"] * (not carried), capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"AllenNLP failed:\n{done.stderr}")
        with np.load(saved) as arrays:
            return [arrays[str(row)] for row in range(len(arrays.files))]


def our_layers(checkpoint: Path, text: Path, batch_size: int, carried: bool) -> list[np.ndarray]:
    """The same layers by hf_elmo, from a checkpoint."""
    model, tokenizer = AutoModel.from_pretrained(checkpoint), AutoTokenizer.from_pretrained(checkpoint)
    sentences, layers, state = read_sentences(text), [], None
    for start in range(0, len(sentences), batch_size):
        batch = sentences[start : start + batch_size]
        words = tokenizer(batch, is_split_into_words=True, padding=True, return_tensors="pt")
        if state is not None:  # a smaller last batch continues from the first rows
            state = tuple(part[:, :, : len(batch)] for part in state)
        with torch.no_grad():
            output = model(**words, output_hidden_states=True, use_cache=True, state=state if carried else None)
        state = output.state
        hidden = torch.stack(output.hidden_states).numpy()
        layers += [hidden[:, row, : len(sentence) + 2] for row, sentence in enumerate(batch)]
    return layers


def differences(found: list[np.ndarray], expected: list[np.ndarray]) -> list[float]:
    """The largest absolute difference of each layer."""
    if [array.shape for array in found] != [array.shape for array in expected]:
        raise ValueError("The two sides do not agree on the shapes.")
    per_sentence = [np.abs(one - other).max(axis=(1, 2)) for one, other in zip(found, expected, strict=True)]
    return np.max(per_sentence, axis=0).tolist()


def compare(python: str, shared: Path, size: str, texts: dict[str, Path], folder: Path, batch_size: int) -> list[list]:
    """The rows of the table for one size: AllenNLP on the source's files, and on our export of the checkpoint."""
    source, checkpoint, exported = (folder / f"{size}-{kind}" for kind in ("source", "checkpoint", "exported"))
    subprocess.run([sys.executable, shared / "peers" / "make_weights.py", source, "--size", size], check=True)
    convert(source / "options.json", source / "weights.hdf5", checkpoint)
    export(checkpoint, exported)
    rows = []
    for name, text in texts.items():
        words = sum(map(len, read_sentences(text)))
        for files, carried in ((source, False), (source, True), (exported, False)):
            found = our_layers(checkpoint, text, batch_size, carried)
            expected = allennlp_layers(python, shared, files, text, batch_size, carried)
            kind = "exported" if files is exported else "original"
            state = "carried" if carried else "zero"
            rows.append([size, name, len(found), words, kind, state, *differences(found, expected)])
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--allennlp-python", required=True, help="Python of an environment with AllenNLP 2.10.1")
    parser.add_argument("--shared", type=Path, default=shared_folder(), help="folder with peers/ and data/")
    parser.add_argument(
        "--sizes", nargs="+", default=["tiny", "small"], choices=["tiny", "small", "medium", "original"]
    )
    parser.add_argument("--sentences", type=int, default=200, help="sentences of WikiText-2")
    parser.add_argument("--batch-size", type=int, default=32)
    options = parser.parse_args()
    print(f"hf_elmo {hf_elmo.__version__}, torch {torch.__version__}; largest absolute difference to AllenNLP\n")
    print("| size | text | sentences | words | files | state | layer 0 | layer 1 | layer 2 |")
    print("|---|---|---|---|---|---|---|---|---|")
    worst = 0.0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lines = {"WikiText-2": read_wikitext(options.shared)[: options.sentences], "hostile Unicode": HOSTILE}
        texts = {name: folder / f"{name}.txt" for name in lines}
        for name, path in texts.items():
            path.write_text("\n".join(lines[name]) + "\n", encoding="utf-8")
        for size in options.sizes:
            rows = compare(options.allennlp_python, options.shared, size, texts, folder, options.batch_size)
            for row in rows:
                cells = [f"{cell:.1e}" if isinstance(cell, float) else str(cell) for cell in row]
                print("| " + " | ".join(cells) + " |", flush=True)
                worst = max(worst, *row[6:])
    print(f"\nlargest: {worst:.1e} (allowed: {TOLERANCE:.0e})")
    return int(worst > TOLERANCE)


if __name__ == "__main__":
    sys.exit(main())
