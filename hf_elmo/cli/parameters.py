"""The parameters that several modules of commands share."""

from typing import Annotated, Literal

import typer

from .options import column, flag, option

InputFormat = Annotated[
    Literal["text", "jsonl", "csv", "tsv", "parquet", "fasta", "conll"] | None,
    typer.Option(help="format of the input [the ending of its name]"),
]
TextColumn = Annotated[str | None, column("column or key of the text; a number in CoNLL or in a CSV without header")]
Encoding = Annotated[str, typer.Option(help="encoding of the input")]
Dtype = Literal["float32", "bfloat16", "float16"]
WordSplitting = Literal["lm1b", "whitespace", "characters"]
Pretokenized = Annotated[bool, flag("--pretokenized", "whitespace separates the words of the text", "--words")]
Json = Annotated[bool, flag("--json", "print what the function of Python returns, as JSON")]
# Named: typer 0.27 would name an option like its metavar, --MODEL.
Model = Annotated[str | None, option("MODEL", "folder or Hub name of an ELMo [the one that ships]", "--model")]
LanguageModel = Annotated[str | None, option("MODEL", "an ELMo with its softmax [the one that ships]", "--model")]
Overwrite = Annotated[bool, flag("--overwrite", "replace OUTPUT if it exists")]
