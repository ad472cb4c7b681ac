"""The page, made with Gradio. It loads nothing from elsewhere: no fonts, no scripts, no statistics."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ..optional import import_optional
from .explorer import CORPUS, EXAMPLES, PLANE_EXAMPLE, Explorer

if TYPE_CHECKING:
    import gradio

INSTALL = '"hf-elmo[explore]"'
LONGEST_SENTENCE, LONGEST_CORPUS = 2_000, 200_000  # characters
ONE_AT_A_TIME = {"concurrency_id": "model", "concurrency_limit": 1, "show_progress": "minimal"}


def _gradio():
    for library in ("matplotlib", "gradio"):
        found = import_optional(library, "hf-elmo explore", INSTALL)
    return found


def make_page(explorer: Explorer) -> gradio.Blocks:
    """
    The page of an [`Explorer`]: similarity, neighbors, plane, and substitutes where its checkpoint has the softmax.

    Raises:
        ImportError: Gradio or matplotlib is not installed.
    """
    gr = _gradio()
    with gr.Blocks(title="ELMo", analytics_enabled=False) as page:
        gr.Markdown(
            f"# What ELMo makes of a word\nThe model is {explorer.name}. A word is written as its tokenizer splits "
            "it off; the first occurrence in a sentence counts."
        )
        with gr.Tab("Similarity"):
            _similarity(gr, page, explorer)
        with gr.Tab("Neighbors"):
            _neighbors(gr, explorer)
        if explorer.has_softmax:
            with gr.Tab("Substitutes"):
                _substitutes(gr, explorer)
        with gr.Tab("Plane"):
            _plane(gr, explorer)
    return page


def _similarity(gr, page, explorer: Explorer) -> None:
    gr.Markdown("How similar are a word of one sentence and a word of another? Layer 0 knows the spelling only.")
    inputs = []
    for number, name in enumerate(("first", "second")):
        with gr.Row(equal_height=True):
            sentence, word = EXAMPLES[0][2 * number : 2 * number + 2]
            inputs += [_sentence(gr, f"{name} sentence", sentence), _word(gr, f"word of the {name}", word)]
    _view(gr, "Compare", explorer.similarities, inputs, "similarity", page)
    gr.Examples([list(example) for example in EXAMPLES], inputs, label="Examples")


def _neighbors(gr, explorer: Explorer) -> None:
    gr.Markdown("Where does a corpus use the word in the same sense? (Peters et al. 2018, Table 4)")
    with gr.Row():
        inputs = [_sentence(gr, "sentence", EXAMPLES[0][2]), _word(gr, "word", EXAMPLES[0][3])]
    if explorer.corpus is None:
        inputs.append(
            gr.Textbox(CORPUS, label="corpus, a sentence a line", lines=6, max_lines=12, max_length=LONGEST_CORPUS)
        )
    else:
        gr.Markdown(f"The corpus is {os.fspath(explorer.corpus)}.")
        inputs.append(gr.State(""))
    inputs.append(gr.Slider(1, 20, 5, step=1, label="neighbors for each layer"))
    _view(gr, "Search", explorer.neighbors, inputs, "neighbors")


def _substitutes(gr, explorer: Explorer) -> None:
    gr.Markdown("Which words do the two language models expect in place of the word, which they do not see?")
    with gr.Row():
        inputs = [_sentence(gr, "sentence", EXAMPLES[0][0]), _word(gr, "word", "boat")]
    inputs.append(gr.Slider(1, 30, 10, step=1, label="substitutes"))
    _view(gr, "Find", explorer.substitutes, inputs, "substitutes")


def _plane(gr, explorer: Explorer) -> None:
    gr.Markdown("The vectors of all words of a few sentences, in the plane in which they differ most.")
    layers = [(f"layer {n} ({'LSTM' if n else 'characters'})", n) for n in range(explorer.layers + 1)]
    inputs = [
        gr.Textbox(
            PLANE_EXAMPLE, label="sentences, one a line", lines=4, max_lines=10, max_length=5 * LONGEST_SENTENCE
        ),
        gr.Radio(layers, value=explorer.layers, label="vectors of"),
    ]
    _view(gr, "Draw", explorer.plane, inputs, "plane")


def _sentence(gr, label: str, value: str):
    return gr.Textbox(value, label=label, max_lines=3, max_length=LONGEST_SENTENCE, scale=4)


def _word(gr, label: str, value: str):
    return gr.Textbox(value, label=label, max_lines=1, max_length=100, scale=1, min_width=180)


def _view(gr, verb: str, view, inputs: list, name: str, page=None) -> None:
    """A button and what it shows; Enter in a field of one line presses it. With `page` it is shown from the start."""
    button = gr.Button(verb, variant="primary", elem_id=f"{name}-button")
    output = gr.HTML(elem_id=f"{name}-view", apply_default_css=False)
    presses = [button.click, *(field.submit for field in inputs if isinstance(field, gr.Textbox))]
    for event in presses if page is None else [*presses, page.load]:
        event(view, inputs, output, api_visibility="private", **ONE_AT_A_TIME)


def look() -> dict:
    """The theme, with the fonts of the reader's system in place of Gradio's, which are loaded from elsewhere."""
    gr = _gradio()
    sans = ["system-ui", "-apple-system", "Segoe UI", "Noto Sans", "Liberation Sans", "Arial", "sans-serif"]
    theme = gr.themes.Default(primary_hue="blue", font=sans, font_mono=["ui-monospace", "Consolas", "monospace"])
    return {"theme": theme, "footer_links": ["gradio", "settings"]}


def explore(
    name: str | os.PathLike | None = None,
    corpus: str | os.PathLike | None = None,
    pretokenized: bool = False,
    host: str = "127.0.0.1",
    port: int | None = None,
    browser: bool = False,
) -> None:
    """
    Serve the page until Ctrl-C.

    Args:
        name, corpus, pretokenized: of the [`Explorer`].
        host: the address to listen at; by default this machine alone can see the page.
        port: by default 7860, or the next one that is free.
        browser: open the page in the browser.

    Raises:
        ImportError: Gradio or matplotlib is not installed.
        OSError: the port is taken.
    """
    _gradio()
    page = make_page(Explorer(name, corpus, pretokenized))
    _, url, _ = page.launch(
        server_name=host,
        server_port=port,
        inbrowser=browser,
        share=False,
        ssr_mode=False,
        quiet=True,
        prevent_thread_lock=True,
        **look(),
    )
    print(f"{url}: Ctrl-C ends it", flush=True)
    try:
        page.server.thread.join()
    finally:
        page.close()
