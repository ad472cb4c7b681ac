"""The memory of reading a stream for pretraining: batches of windows from Parquet files of `datasets`, shuffled.

    python benchmarks/stream_memory.py text.txt --rows 10000000

The lines of the text, over and over, are written into Parquet files; they are streamed through a buffer that shuffles
and through the blocks that `hf_elmo.pretrain` shuffles, into windows of 128 rows of 20 words, which are thrown away.
The memory is what the process holds after so many rows, PyTorch and the libraries included.
"""

import argparse
import itertools
import tempfile
import time
from pathlib import Path

import datasets
import pyarrow as pa
import pyarrow.parquet as pq

from hf_elmo.pretraining.data import PackedWindows
from hf_elmo.pretraining.text import DatasetTexts
from hf_elmo.shipped import NAME, load_tokenizer

FILES, GROUP, BUFFER = 10, 10_000, 10_000


def write(text: Path, rows: int, folder: Path) -> None:
    """`FILES` Parquet files with so many rows together: the lines of the text, each with a number, so that none is
    there twice."""
    lines = [line.strip() for line in text.read_text(encoding="utf-8").splitlines() if line.strip()]
    schema = pa.schema({"text": pa.string()})
    for part in range(FILES):
        numbers = iter(range(part * rows // FILES, (part + 1) * rows // FILES))
        with pq.ParquetWriter(folder / f"{part}.parquet", schema) as writer:
            while group := list(itertools.islice(numbers, GROUP)):
                texts = [f"{lines[number % len(lines)]} {number}" for number in group]
                writer.write_table(pa.table({"text": texts}, schema))


def resident() -> float:
    """What the process holds now, in MiB."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:")) / 2**10


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("text", type=Path, help="tokenized text, a sentence a line")
    parser.add_argument("--rows", type=int, default=1_000_000, help="sentences of the stream [1000000]")
    parser.add_argument("--block", type=int, default=1_000_000, help="texts shuffled together [1000000]")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        write(args.text, args.rows, Path(name))
        files = sorted(map(str, Path(name).glob("*.parquet")))
        stream = datasets.load_dataset("parquet", data_files=files, split="train", streaming=True)
        source = DatasetTexts(stream.shuffle(seed=1, buffer_size=BUFFER))
        windows = PackedWindows(source, load_tokenizer(NAME), 128, 20, shuffle_block=args.block)
        print("| rows read | words | words/s | memory, MiB |\n| --- | --- | --- | --- |", flush=True)
        start, words, step = time.perf_counter(), 0, args.rows // 10
        rows = step
        for batch in windows.one_pass():
            words += batch["labels"].shape[0] * batch["labels"].shape[1]
            if windows.state_dict()["unit"] >= rows:
                rate = words / (time.perf_counter() - start)
                print(f"| {rows:,} | {words:,} | {rate:,.0f} | {resident():,.0f} |", flush=True)
                rows += step
        print(f"| all, {args.rows:,} | {words:,} | | {resident():,.0f} |")


if __name__ == "__main__":
    main()
