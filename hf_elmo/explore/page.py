"""The page, made with Gradio. It loads nothing from other hosts: no fonts, no scripts, no analytics."""

import os
import tomllib
from collections.abc import Callable
from functools import partial, wraps
from html import escape
from pathlib import Path
from typing import Any

from ..utils.extras import extra_needed
from . import Explorer, card

with extra_needed("explore"):
    import gradio as gr

PRIVATE = {"api_visibility": "private"}
# By default, a click while the page still computes is lost.
ONE_AT_A_TIME = {"concurrency_id": "model", "concurrency_limit": 1, "show_progress": "minimal"}
ONE_AT_A_TIME |= {"trigger_mode": "always_last", **PRIVATE}
TEXTS = tomllib.loads(Path(__file__).with_name("texts.toml").read_text(encoding="utf-8"))
CORPUS = TEXTS["corpus"]
EXAMPLES = TEXTS["examples"]


def make_page(explorer: Explorer) -> gr.Blocks:
    """The page of an [`Explorer`]: similarity, neighbors, plane, and substitutes if the checkpoint has its softmax."""

    def of_example(name: str) -> list:
        first, word, second, other = EXAMPLES[name]
        return [first, _words(explorer, first, word), second, _words(explorer, second, other)]

    with gr.Blocks(title="ELMo", analytics_enabled=False) as page:
        gr.Markdown(f"# What ELMo makes of a word\nType, and click on the word you mean. The model: {explorer.name}.")
        with gr.Tab("Similarity"):
            gr.Markdown("How similar are a word of one sentence and one of another? Layer 0 knows the spelling only.")
            with gr.Row():
                first, word, second, other = EXAMPLES["bank, two senses"]
                inputs = _sentence_and_word(explorer, "first sentence", first, word)
                inputs += _sentence_and_word(explorer, "second sentence", second, other)
            examples = gr.Radio(list(EXAMPLES), label="examples")
            how = {"show_progress": "hidden", "trigger_mode": "always_last"}
            loaded = examples.input(of_example, examples, inputs, **how, **PRIVATE)
            _view("Compare", explorer.similarities, inputs, "similarity", page.load, loaded.then)
        with gr.Tab("Neighbors") as tab:
            corpus = "a corpus" if explorer.corpus is None else os.fspath(explorer.corpus)
            gr.Markdown(f"Which uses of the word in {corpus} are nearest? (Peters et al. 2018, Table 4)")
            inputs = _sentence_and_word(explorer, "sentence", "The bank lent him a thousand pounds.", "bank")
            typed = {"visible": explorer.corpus is None, "lines": 6, "max_lines": 12}
            inputs.append(gr.Textbox(CORPUS, label="corpus, a sentence a line", **typed))
            inputs.append(gr.Slider(1, 20, 5, step=1, label="neighbors for each layer"))
            _view("Search", explorer.neighbors, inputs, "neighbors", tab.select)
        if explorer.has_softmax:
            with gr.Tab("Substitutes") as tab:
                gr.Markdown("Which words do the two language models expect in place of the word?")
                inputs = _sentence_and_word(explorer, "sentence", "He came home late in the evening.", "evening")
                inputs.append(gr.Slider(1, 30, 10, step=1, label="substitutes"))
                _view("Find", explorer.substitutes, inputs, "substitutes", tab.select)
        with gr.Tab("Plane") as tab:
            gr.Markdown("The uses of a word, or all words of some sentences, in the plane in which they differ most.")
            sentences = gr.Textbox(CORPUS, label="sentences, one a line", lines=4, max_lines=10)
            words = partial(_words, explorer, common=True)
            word = words(CORPUS, "bank", label="uses of")
            sentences.change(words, [sentences, word], word, show_progress="hidden", **PRIVATE)
            layers = [(f"layer {n} ({'LSTM' if n else 'characters'})", n) for n in range(explorer.layers + 1)]
            inputs = [sentences, word, gr.Radio(layers, value=explorer.layers, label="vectors of")]
            _view("Draw", explorer.plane, inputs, "plane", tab.select)
    return page


def _words(explorer: Explorer, text: str, word: str | int | None, common: bool = False, **how: Any) -> gr.Radio:
    """The words of a sentence to click on, of which a repeated one has its index as value; or the `common` words of all
    lines of a text, and the choice of all words, whose value is empty."""
    if common:
        split = explorer.split([line for line in text.splitlines() if line.strip()]) or [[]]
        values = {"all words": ""} | {own: own for own in split[0] if all(own in words for words in split)}
    else:
        (words,) = explorer.split([text])
        counts = [words[:index].count(own) for index, own in enumerate(words)]
        named = enumerate(zip(words, counts, strict=True))
        values = {f"{own} ({count + 1})" if count else own: index if count else own for index, (own, count) in named}
    chosen = word if word in values.values() else next(iter(values.values()), None)
    return gr.Radio(list(values.items()), value=chosen, elem_classes="words", **how)


def _sentence_and_word(explorer: Explorer, label: str, sentence: str, word: str) -> list:
    with gr.Column(min_width=300):
        field = gr.Textbox(sentence, label=label, lines=1, max_lines=3)
        choice = _words(explorer, sentence, word, label="its word")
    field.change(partial(_words, explorer), [field, choice], choice, show_progress="hidden", **PRIVATE)
    return [field, choice]


def _view(verb: str, view: Callable[..., str], inputs: list, name: str, *events: Callable) -> None:
    """A button that shows a view, or its error, as Enter, a click on a word, and each of `events` do."""

    @wraps(view)
    def show(*arguments: Any) -> str:
        try:
            return card("<p>Click on a word.</p>") if None in arguments else view(*arguments)
        except Exception as error:  # else the page keeps the old picture
            return card(f"<p>{escape(str(error) or repr(error))}</p>")

    button = gr.Button(verb, variant="primary", elem_id=f"{name}-button")
    output = gr.HTML(elem_id=f"{name}-view", apply_default_css=False)
    submits = (field.submit for field in inputs if isinstance(field, gr.Textbox))
    clicks = (field.input for field in inputs if isinstance(field, gr.Radio))
    for event in (button.click, *submits, *clicks, *events):
        event(show, inputs, output, **ONE_AT_A_TIME)


def launch_settings() -> dict[str, Any]:
    """Arguments of `launch`: a theme with system fonts, because Gradio's default fonts are loaded from another host."""
    fonts = ["system-ui", "-apple-system", "Segoe UI", "Noto Sans", "Liberation Sans", "Arial", "sans-serif"]
    theme = gr.themes.Default(primary_hue="blue", font=fonts, font_mono=["ui-monospace", "Consolas", "monospace"])
    return {"theme": theme, "css_paths": Path(__file__).with_suffix(".css"), "footer_links": ["gradio", "settings"]}


def explore(explorer: Explorer, host: str, port: int | None, browser: bool) -> None:
    """Serves the page of an [`Explorer`] until Ctrl-C; the other arguments are those of `hf-elmo explore`."""
    page = make_page(explorer)
    settings = {"server_name": host, "server_port": port, "inbrowser": browser, "share": False, "ssr_mode": False}
    _, url, _ = page.launch(**settings, quiet=True, prevent_thread_lock=True, **launch_settings())
    print(f"{url}: Ctrl-C ends it", flush=True)
    try:
        page.server.thread.join()
    finally:
        page.close()
