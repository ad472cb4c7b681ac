"""The commands that read and write other formats, and the Hub: convert, export, push."""

from typing import Annotated

import typer

from .options import Dtype, WordSplitting, app, argument, examples, flag, option


def _list_models(wanted: bool) -> None:
    if wanted:
        from hf_elmo.conversion import all_names

        print("\n".join(f"{name:18}{what}" for name, what in all_names().items()))
        raise SystemExit(0)


@app.command(
    short_help="convert a published ELMo, in any of its formats, into a checkpoint",
    epilog=examples(
        "convert manylangs-pt elmo-pt",
        "convert --model manylangs-pt 168.zip elmo-pt",
        "convert options.json weights.hdf5 my-elmo",
        "convert bilm-tf-folder my-elmo",
    ),
)
def convert(
    paths: Annotated[
        list[str],
        argument(
            "(NAME | SOURCE [VOCABULARY] | OPTIONS WEIGHTS) OUT",
            "NAME: small, original, seqvec, manylangs-ko, ...: a published model, unless a file has that name; "
            "SOURCE: a folder or archive, or a TensorFlow checkpoint's prefix beside its options.json; VOCABULARY: the "
            "checkpoint's words [vocab.txt in that folder]; OPTIONS, WEIGHTS: options.json and weights.hdf5; OUT: new "
            "folder",
        ),
    ],
    model: Annotated[
        str | None,
        option(
            "NAME",
            "the published model that SOURCE, or OPTIONS and WEIGHTS, are a copy of: its model card and its "
            "tokenizer become those of a download [no published one]",
        ),
    ] = None,
    list_models: Annotated[
        bool,
        typer.Option("--list", is_eager=True, callback=_list_models, help="show each NAME and what it is, and exit"),
    ] = False,
    elmo_options: Annotated[
        str | None, option("FILE", "with a model.tar.gz that does not hold it: its ELMo's options.json")
    ] = None,
    use: Annotated[
        str | None, option("NAME", "with a model.tar.gz that holds ELMos that differ: the one to convert")
    ] = None,
    dtype: Annotated[Dtype, typer.Option(help="of the weights")] = "float32",
    word_splitting: Annotated[
        WordSplitting | None,
        typer.Option(help="of its tokenizer [lm1b for AllenNLP's files, characters for seqvec, else whitespace]"),
    ] = None,
    cache_dir: Annotated[
        str | None, option("DIR", "for downloaded files, in a folder NAME [huggingface_hub's cache]")
    ] = None,
    sha256: Annotated[
        str | None, option("HEX", "digest that WEIGHTS, or an archive, must have [none is compared]")
    ] = None,
) -> None:
    """
    Write a checkpoint that AutoModel loads into the new folder OUT: from the NAME of a published model, which is
    downloaded, from AllenNLP's files, from a TensorFlow checkpoint of bilm-tf or simple_elmo, softmax included, from a
    folder or archive of simple_elmo or ELMoForManyLangs, a task's model.tar.gz of AllenNLP, or from TF-Hub's
    SavedModel. The checkpoint is read back and compared with its source.
    """
    options = {name: value for name, value in locals().items() if name not in ("paths", "list_models")}
    from hf_elmo.conversion import convert as convert_paths

    written = convert_paths(*paths, **options)
    print(f"{written}: every tensor equals its source; its README.md shows how to use it")


@app.command(
    short_help="write a model as AllenNLP's files, or as ONNX",
    epilog=examples("export my-elmo allennlp-files", "export my-elmo elmo.onnx --onnx"),
)
def export(
    model: Annotated[str, argument("MODEL", "folder or Hub name of an ELMo")],
    out: Annotated[str, argument("OUT", "new folder, or with --onnx new file")],
    onnx: Annotated[bool, flag("--onnx", "write an ONNX file")] = False,
    hidden_states: Annotated[
        bool, flag("--hidden-states", "with --onnx: the biLM's layers as further outputs")
    ] = False,
) -> None:
    """
    Write options.json and weights.hdf5, which AllenNLP, bilm-tf and simple_elmo read, into the new folder OUT; that
    format has no scalar mix, heads or softmax. With --onnx write the ONNX file OUT, the scalar mix and a classifier's
    head included, for any batch size and length.
    """
    from hf_elmo.conversion import export as export_allennlp
    from hf_elmo.conversion import export_onnx

    if onnx:
        print(f"{export_onnx(model, out, output_hidden_states=hidden_states)}: written")
    else:
        print(f"{export_allennlp(model, out)}: every tensor equals the model's")


@app.command(
    short_help="upload a checkpoint to the Hub",
    epilog=examples("push my-elmo somebody/my-elmo --dry-run", "push my-elmo somebody/my-elmo --private"),
)
def push(
    out: Annotated[str, argument("OUT", "folder of the checkpoint")],
    repository: Annotated[str, argument("REPO", "owner/name; created unless it exists")],
    private: Annotated[bool, flag("--private", "only its owner sees REPO")] = False,
    revision: Annotated[str | None, option("NAME", "branch to commit to, created unless it exists [main]")] = None,
    dry_run: Annotated[bool, flag("--dry-run", "only list the files and their sizes; send nothing")] = False,
) -> None:
    """
    Upload the checkpoint in the folder OUT to the repository REPO of the Hub in one commit: model, tokenizer, the code
    with which it loads where hf_elmo is not installed, model card and conversion record. What a training leaves beside
    them (optimizer, checkpoints, arguments) stays at home. It needs a token that may write: log in with hf auth login,
    or set HF_TOKEN.
    """
    from hf_elmo.hub import push as push_checkpoint

    upload = push_checkpoint(out, repository, private=private, revision=revision, dry_run=dry_run)
    for name, size in upload.files.items():
        print(f"{size:>15,}  {name}")
    if upload.left_out:
        print(f"left out: {', '.join(upload.left_out)}")
    total = f"{len(upload.files)} files, {sum(upload.files.values()):,} bytes"
    print(f"{repository}: {total}, " + (upload.url or "nothing is uploaded in a dry run"))
