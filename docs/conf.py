"""How Sphinx builds the site from docs/: `.ci/docs` runs it, with warnings as errors."""

import os
import re
import shutil
from pathlib import Path

import typer
from sphinx.application import Sphinx
from typer.testing import CliRunner

import hf_elmo
from hf_elmo.configuration_elmo import VERSION
from hf_elmo_cli import app as hf_elmo_app

# Sphinx reads pages below docs/ only, and an sdist and Windows lose links between folders.
DOCS = Path(__file__).parent
shutil.copytree(DOCS.parent / "examples" / "notebooks", DOCS / "notebooks", dirs_exist_ok=True)

# The page of the command line includes this file: what `hf-elmo COMMAND --help` prints.
with (DOCS / "reference" / "commands.txt").open("w") as file:
    for name in typer.main.get_command(hf_elmo_app).commands:
        printed = (
            CliRunner()
            .invoke(hf_elmo_app, [name, "--help"], prog_name="hf-elmo", terminal_width=80)
            .output
        )
        print(f"## hf-elmo {name}\n\n```text\n{printed}```\n", file=file)

# The page of the models includes this file: the heads.
with (DOCS / "reference" / "heads.txt").open("w") as file:
    for model in hf_elmo.MODELS.values():
        if model not in ("ElmoModel", "ElmoForPreTraining"):
            print(f".. autoclass:: hf_elmo.{model}\n   :members: forward\n", file=file)

project = "hf_elmo"
author = "The hf_elmo authors"
copyright = "The hf_elmo authors"
release = VERSION

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
]
html_theme = "furo"
html_title = "hf_elmo"
# A workflow knows the repository's address. Elsewhere, files that are no pages are the clone's.
files = DOCS.parent.as_uri()
if "GITHUB_REPOSITORY" in os.environ:
    repository = "{GITHUB_SERVER_URL}/{GITHUB_REPOSITORY}".format(**os.environ)
    files = f"{repository}/blob/HEAD"
    link = {"name": "repository", "url": repository, "html": "repository", "class": ""}
    html_theme_options = {"footer_icons": [link], "source_repository": repository}
    html_theme_options |= {"source_branch": "HEAD", "source_directory": "docs/"}
html_static_path = ["_static"]
html_css_files = ["site.css"]
pygments_style = "friendly"
highlight_language = "none"  # of what a block prints
pygments_dark_style = "monokai"

# Tests run the blocks and the notebooks, so nothing runs while the site is built.
nb_execution_mode = "off"
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
copybutton_exclude = ".linenos, .gp, .go"

# Docstrings are in Markdown, as transformers' are: `x` is code, and [`ElmoModel`] a link.
default_role = "literal"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
napoleon_use_rtype = False
python_maximum_signature_line_length = 100


def setup(app: Sphinx) -> None:
    app.connect("autodoc-process-docstring", _to_rst, priority=400)  # before napoleon
    app.connect("include-read", _fill_in)


def _fill_in(app: object, path: object, page: str, content: list[str]) -> None:
    """The links to files of the repository that are no pages."""
    content[0] = re.sub(r"\]\((?![a-z]+:|#|docs/)", f"]({files}/", content[0])


def _to_rst(
    app: object, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    text = re.sub(r"\[`([\w.]+)`\]", r":py:obj:`\1`", "\n".join(lines))
    lines[:] = re.sub(r"```(?:python)?\n?", "", text).split("\n")
