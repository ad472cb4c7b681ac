"""What a checkpoint carries: the files of its classes, and which Auto class finds which.

`save_pretrained` and `push_to_hub` of every class write them (transformers copies the class's own file and all that it
imports relatively), so that `trust_remote_code=True` loads the checkpoint where hf_elmo is not installed. The lists say
which files these are; the tests compare them with what is written, and run them alone.
"""

import json
import shutil
from pathlib import Path

from .configuration_elmo import VERSION

_BASE = ("configuration_elmo.py", "modeling_elmo.py")
_TASKS = (*_BASE, "modeling_tasks_elmo.py")

FILES: dict[str, tuple[str, ...]] = {
    "ElmoConfig": ("configuration_elmo.py",),
    "ElmoTokenizer": ("configuration_elmo.py", "tokenization_elmo.py"),
    "ElmoModel": _BASE,
    "ElmoForSequenceClassification": _TASKS,
    "ElmoForQuestionAnswering": _TASKS,
    "ElmoForTokenClassification": _TASKS,
    "ElmoForCoreferenceResolution": (*_TASKS, "modeling_coreference_elmo.py"),
    "ElmoForPreTraining": _BASE,
}

AUTO_CLASSES: dict[str, str] = {
    "AutoConfig": "configuration_elmo.ElmoConfig",
    "AutoModel": "modeling_elmo.ElmoModel",
    "AutoModelForCoreferenceResolution": "modeling_coreference_elmo.ElmoForCoreferenceResolution",
    "AutoModelForPreTraining": "modeling_elmo.ElmoForPreTraining",
    "AutoModelForQuestionAnswering": "modeling_tasks_elmo.ElmoForQuestionAnswering",
    "AutoModelForSequenceClassification": "modeling_tasks_elmo.ElmoForSequenceClassification",
    "AutoModelForTokenClassification": "modeling_tasks_elmo.ElmoForTokenClassification",
    "AutoTokenizer": "tokenization_elmo.ElmoTokenizer",
}


def auto_map(*class_names: str) -> dict[str, str]:
    """What the `config.json` of a checkpoint of these classes maps."""
    classes = {"ElmoConfig", "ElmoModel", *class_names}
    return {auto: name for auto, name in AUTO_CLASSES.items() if name.partition(".")[2] in classes}


def add_remote_code(folder: str | Path, *class_names: str) -> None:
    """
    Put code into a checkpoint: into one that has none, or an older version's; or heads into that of a biLM, so that it
    can be fine-tuned where hf_elmo is not installed.

    Args:
        folder: what holds `config.json`, `tokenizer_config.json` or both.
        class_names: models beside the one that the checkpoint is of, such as `"ElmoForSequenceClassification"`.

    Raises:
        ValueError: a class, or the architecture that `config.json` names, is none of hf_elmo's.
    """
    folder = Path(folder)
    if (file := folder / "config.json").is_file():
        config = json.loads(file.read_text(encoding="utf-8"))
        names = [*config.get("architectures", ()), *class_names]
        if not names or not set(names) <= set(FILES):
            raise ValueError(f"{file} names {names or 'no class'}, but hf_elmo has {', '.join(FILES)}.")
        sources = {source for name in names for source in FILES[name]}
        added = {"auto_map": auto_map(*names), "hf_elmo_version": VERSION}
        if "ElmoForTokenClassification" in names:
            from .modeling_tasks_elmo import ElmoForTokenClassification  # slow to import

            added["custom_pipelines"] = ElmoForTokenClassification.custom_pipelines
        _write(folder, file, sources, config | added)
    if (file := folder / "tokenizer_config.json").is_file():
        config = json.loads(file.read_text(encoding="utf-8"))
        both = [AUTO_CLASSES["AutoTokenizer"], None]  # as transformers writes it: the class, and a faster one
        _write(folder, file, set(FILES["ElmoTokenizer"]), config | {"auto_map": {"AutoTokenizer": both}})


def _write(folder: Path, file: Path, sources: set[str], settings: dict) -> None:
    for source in sources:
        shutil.copyfile(Path(__file__).with_name(source), folder / source)
    file.write_text(json.dumps(settings, indent=2, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")
