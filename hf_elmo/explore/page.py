"""The page, made with Gradio. It loads nothing from other hosts: no fonts, no scripts, no analytics."""

import os
from collections.abc import Callable
from functools import wraps
from html import escape
from typing import Any

from ..utils.extras import extra_needed
from . import Explorer, card

with extra_needed("explore"):
    import gradio as gr

LONGEST_SENTENCE, LONGEST_CORPUS = 2_000, 200_000  # characters
ONE_AT_A_TIME = {"concurrency_id": "model", "concurrency_limit": 1, "show_progress": "minimal"}
EXAMPLES = (
    ("They pulled the boat up on the bank of the river .", "bank", "She had left her money in the bank .", "bank"),
    ("The children went out to play in the garden .", "play", "We saw a new play at the theatre .", "play"),
    ("He struck a match and lit the lamp .", "match", "It was a good match for a girl without money .", "match"),
)
CORPUS = """The children sat upon the bank and watched the stream .
They climbed up the steep bank and looked down at the water .
The river had risen over its bank in the night .
She had left all her money in the bank in London .
The bank lent him a thousand pounds to buy the house .
When the bank failed , they lost everything that they had .
The children were at play in the garden .
We went to the play , and the actors were very good .
She struck a match , but the wind blew it out .
He was no match for so strong an enemy .
"""
PLANE_EXAMPLE = "\n".join(CORPUS.splitlines()[:6])


def make_page(explorer: Explorer) -> gr.Blocks:
    """The page of an [`Explorer`]: similarity, neighbors, plane, and substitutes if the checkpoint has its softmax."""
    with gr.Blocks(title="ELMo", analytics_enabled=False) as page:
        gr.Markdown(
            f"# What ELMo makes of a word\nThe model is {explorer.name}. A word is written as its tokenizer splits "
            "it off; the first occurrence in a sentence counts."
        )
        with gr.Tab("Similarity"):
            gr.Markdown("How similar are a word of one sentence and one of another? Layer 0 knows the spelling only.")
            inputs = [
                *_sentence_and_word("first sentence", "word of the first", *EXAMPLES[0][:2]),
                *_sentence_and_word("second sentence", "word of the second", *EXAMPLES[0][2:]),
            ]
            _view("Compare", explorer.similarities, inputs, "similarity", page.load)
            words = [word for _, word, _, _ in EXAMPLES]
            gr.Examples([list(example) for example in EXAMPLES], inputs, label="Examples", example_labels=words)
        with gr.Tab("Neighbors"):
            gr.Markdown("Where does a corpus use the word in the same sense? (Peters et al. 2018, Table 4)")
            inputs = _sentence_and_word("sentence", "word", *EXAMPLES[0][2:])
            if explorer.corpus is None:
                label = "corpus, a sentence a line"
                inputs.append(gr.Textbox(CORPUS, label=label, lines=6, max_lines=12, max_length=LONGEST_CORPUS))
            else:
                gr.Markdown(f"The corpus is {os.fspath(explorer.corpus)}.")
                inputs.append(gr.State(""))
            inputs.append(gr.Slider(1, 20, 5, step=1, label="neighbors for each layer"))
            _view("Search", explorer.neighbors, inputs, "neighbors")
        if explorer.has_softmax:
            with gr.Tab("Substitutes"):
                gr.Markdown("Which words do the two language models expect in place of the word?")
                inputs = _sentence_and_word("sentence", "word", "He sat on the bank of the river .", "bank")
                inputs.append(gr.Slider(1, 30, 10, step=1, label="substitutes"))
                _view("Find", explorer.substitutes, inputs, "substitutes")
        with gr.Tab("Plane"):
            gr.Markdown("The words of a few sentences, or the uses of one, in the plane in which they differ most.")
            layers = [(f"layer {n} ({'LSTM' if n else 'characters'})", n) for n in range(explorer.layers + 1)]
            label = "sentences, one a line"
            inputs = [
                gr.Textbox(PLANE_EXAMPLE, label=label, lines=4, max_lines=10, max_length=5 * LONGEST_SENTENCE),
                gr.Textbox("bank", label="one word [all words]", max_lines=1, max_length=100),
                gr.Radio(layers, value=explorer.layers, label="vectors of"),
            ]
            _view("Draw", explorer.plane, inputs, "plane")
    return page


def _sentence_and_word(sentence_label: str, word_label: str, sentence: str, word: str) -> list:
    with gr.Row(equal_height=True):
        return [
            gr.Textbox(
                sentence, label=sentence_label, max_lines=3, max_length=LONGEST_SENTENCE, scale=4, min_width=300
            ),
            gr.Textbox(word, label=word_label, max_lines=1, max_length=100, scale=1, min_width=180),
        ]


def _view(verb: str, view: Callable[..., str], inputs: list, name: str, *events: Callable) -> None:
    """A button that shows a view, or its error. Enter in a text field and each of `events` show it, too."""

    @wraps(view)
    def show(*arguments: object) -> str:
        try:
            return view(*arguments)
        except (ValueError, TypeError, OSError, ImportError) as error:
            return card(f"<p>{escape(str(error))}</p>")

    button = gr.Button(verb, variant="primary", elem_id=f"{name}-button")
    output = gr.HTML(elem_id=f"{name}-view", apply_default_css=False)
    for event in (button.click, *(field.submit for field in inputs if isinstance(field, gr.Textbox)), *events):
        event(show, inputs, output, api_visibility="private", **ONE_AT_A_TIME)


def launch_settings() -> dict[str, Any]:
    """Arguments of `launch`: a theme with system fonts, because Gradio's default fonts are loaded from another host."""
    fonts = ["system-ui", "-apple-system", "Segoe UI", "Noto Sans", "Liberation Sans", "Arial", "sans-serif"]
    theme = gr.themes.Default(primary_hue="blue", font=fonts, font_mono=["ui-monospace", "Consolas", "monospace"])
    css = "@media (max-width: 600px) {.tab-container button {padding: 0 5px}} footer .show-api-divider {display: none}"
    return {"theme": theme, "css": css, "footer_links": ["gradio", "settings"]}


def explore(
    name: str | os.PathLike | None = None,
    corpus: str | os.PathLike | None = None,
    pretokenized: bool = False,
    host: str = "127.0.0.1",
    port: int | None = None,
    browser: bool = False,
) -> None:
    """Serves the page until Ctrl-C; the arguments are those of `hf-elmo explore`."""
    page = make_page(Explorer(name, corpus, pretokenized))
    settings = {"server_name": host, "server_port": port, "inbrowser": browser, "share": False, "ssr_mode": False}
    _, url, _ = page.launch(**settings, quiet=True, prevent_thread_lock=True, **launch_settings())
    print(f"{url}: Ctrl-C ends it", flush=True)
    try:
        page.server.thread.join()
    finally:
        page.close()
