"""The commands that read and write other formats, and the Hub: convert, export, push."""

from typing import Annotated

import typer

from .options import argument, command, flag, option
from .parameters import Dtype, Model, WordSplitting


def _list_models(wanted: bool) -> None:
    if wanted:
        from hf_elmo.conversion import all_names

        width = max(map(len, names := all_names())) + 1
        print("\n".join(f"{name:{width}}{what}" for name, what in names.items()))
        raise SystemExit(0)


@command(
    "convert a published ELMo, in any of its formats, into a checkpoint",
    "convert manylangs-pt elmo-pt",
    "convert --model manylangs-pt 168.zip elmo-pt",
    "convert options.json weights.hdf5 my-elmo",
    "convert bilm-tf-folder my-elmo",
)
def convert(
    source: Annotated[list[str], argument("SOURCE", "a published model's name (original, seqvec, ...), or its files")],
    out: Annotated[str, argument("OUT", "a new folder")],
    model: Annotated[str | None, option("NAME", "published model of these files: its card, word splitting")] = None,
    list_models: Annotated[bool, flag("--list", "list the published models and exit", callback=_list_models)] = False,
    elmo_options: Annotated[str | None, option("FILE", "the ELMo's options.json, if a model.tar.gz lacks it")] = None,
    use: Annotated[str | None, option("NAME", "the ELMo to convert, if a model.tar.gz has several that differ")] = None,
    bilm_only: Annotated[bool, flag("--bilm-only", "only the biLM of a model.tar.gz, without its head")] = False,
    align: Annotated[str | None, option("FILE", "matrix to another language's vectors, .npy or .pth")] = None,
    align_layer: Annotated[int | None, option("N", "layer that --align maps [the mean of all]", min=0)] = None,
    dtype: Annotated[Dtype, typer.Option(help="type of the weights")] = "float32",
    word_splitting: Annotated[
        WordSplitting | None,
        typer.Option(help="how OUT splits text [lm1b for AllenNLP's files, characters for seqvec, else whitespace]"),
    ] = None,
    cache_dir: Annotated[str | None, option("DIR", "keep downloads in DIR/NAME [huggingface_hub's cache]")] = None,
) -> None:
    """Convert a published ELMo to a checkpoint for AutoModel in the new folder OUT. SOURCE is the NAME of a published
    model, which is downloaded; AllenNLP's options.json and weights.hdf5, or the prefix of a TensorFlow checkpoint of
    bilm-tf or simple_elmo, each then with the file of the model's words; a folder or archive of these, of a task
    (model.tar.gz) or ELMoForManyLangs; or TF-Hub's SavedModel. The checkpoint is compared with its source."""
    options = {name: value for name, value in locals().items() if name not in ("source", "out", "list_models")}
    from hf_elmo.conversion import convert as convert_paths
    from hf_elmo.conversion.files import read_json

    written = convert_paths(*source, out, **options)
    splitting = read_json(written / "tokenizer_config.json")["word_splitting"]
    left = read_json(written / "conversion.json").get("left_behind", {})
    what = "every tensor equals its source" + (f", and {len(left)} are left behind" if left else "")
    print(f"{written}: {what}; word_splitting={splitting}; README.md shows how to use it")
    for name, shape in left.items():
        print(f"  left behind: {name} {shape}")


@command(
    "write a model as AllenNLP's files, or as ONNX",
    "export allennlp-files --model my-elmo",
    "export elmo.onnx --model my-elmo --onnx",
)
def export(
    out: Annotated[str, argument("OUT", "a new folder, or with --onnx a new file")],
    model: Model = None,
    onnx: Annotated[bool, flag("--onnx", "write an ONNX file")] = False,
    hidden_states: Annotated[bool, flag("--hidden-states", "with --onnx: also output the biLM's layers")] = False,
) -> None:
    """Write options.json and weights.hdf5, which AllenNLP, bilm-tf and simple_elmo read, into the new folder OUT. This
    format has no scalar mix, heads or softmax. With --onnx, write the ONNX file OUT, with scalar mix and head."""
    from hf_elmo import conversion

    if onnx:
        print(f"{conversion.export_onnx(model, out, output_hidden_states=hidden_states)}: written")
    else:
        print(f"{conversion.export(model, out)}: every tensor equals the model's")


@command(
    "upload a checkpoint to the Hub",
    "push my-elmo somebody/my-elmo --dry-run",
    "push my-elmo somebody/my-elmo --private",
)
def push(
    out: Annotated[str, argument("FOLDER", "folder of the checkpoint")],
    repository: Annotated[str, argument("REPO", "owner/name; created unless it exists")],
    private: Annotated[bool, flag("--private", "create REPO as a private repository")] = False,
    revision: Annotated[str | None, option("NAME", "branch to commit to, created unless it exists [main]")] = None,
    dry_run: Annotated[bool, flag("--dry-run", "only list the files and their sizes; send nothing")] = False,
) -> None:
    """Upload the checkpoint in FOLDER to the repository REPO of the Hub in one commit: model, tokenizer, the code that
    loads them where hf_elmo is not installed, model card and conversion record. Other files of a training (optimizer,
    checkpoints, arguments) are not uploaded. It needs a token with write access: hf auth login, or set HF_TOKEN."""
    from hf_elmo.checkpoints.hub import push as push_checkpoint

    upload = push_checkpoint(out, repository, private=private, revision=revision, dry_run=dry_run)
    for name, size in upload.files.items():
        print(f"{size:>15,}  {name}")
    if upload.left_out:
        print(f"left out: {', '.join(upload.left_out)}")
    total = f"{len(upload.files)} files, {sum(upload.files.values()):,} bytes"
    print(f"{repository}: {total}, " + (upload.url or "nothing is uploaded in a dry run"))
