"""The page in a real browser: loaded, typed into, and looked at; nothing is asked of any other host."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
SERVE = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # pytest in the background would hand on that it is ignored
from hf_elmo_cli import main
sys.exit(main(["explore"]))
"""
SECONDS = 60


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen]:
    """`hf-elmo explore` with the model that ships, and its address as `url`."""
    pytest.importorskip("gradio", reason="Gradio is not installed")
    folder = tmp_path_factory.mktemp("explore")
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "GRADIO_TEMP_DIR": str(folder / "gradio")}
    with (folder / "errors").open("w") as errors:  # a file: a pipe that nobody reads is full after 64 KiB
        arguments = {"stdout": subprocess.PIPE, "stderr": errors, "text": True, "env": environment}
        with subprocess.Popen([sys.executable, "-c", SERVE], **arguments) as process:
            process.url = process.stdout.readline().partition(": Ctrl-C")[0]
            process.errors = folder / "errors"
            yield process
            process.kill()


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip(f"none of the browsers {', '.join(BROWSERS)} is installed")
    with playwright.sync_playwright() as driver:
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []  # Chromium's sandbox refuses root
        opened = driver.chromium.launch(executable_path=found, args=arguments)
        yield opened
        opened.close()


@pytest.fixture
def page(server: subprocess.Popen, browser) -> Iterator[object]:
    """The loaded page; in the end, that it asked nothing of another host and had no error."""
    page = browser.new_page(viewport={"width": 1100, "height": 1000})
    page.set_default_timeout(SECONDS * 1000)
    asked, errors = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(server.url)
    page.wait_for_selector("#similarity-view svg")
    yield page
    page.close()
    assert [url for url in asked if not url.startswith((server.url, "data:", "blob:"))] == []
    assert errors == []


def fill(page, label: str, text: str) -> None:
    """
    Fill a field, and again until it keeps the text: for some milliseconds after its tab opens Gradio may still set it
    to its first value (1 of 6 fills at once were lost, none of 50 after 10 ms or more: nobody types so fast).
    """
    field = page.get_by_label(label, exact=True)
    for _ in range(SECONDS * 5):
        field.fill(text)
        page.wait_for_timeout(200)
        if field.input_value() == text:
            return
    pytest.fail(f"{label!r} does not keep {text!r}: it holds {field.input_value()!r}")


def press(page, name: str, selector: str, enter_in: str | None = None) -> None:
    """Press a view's button, or Enter in one of its fields, and wait for what it shows."""
    from playwright.sync_api import TimeoutError

    if enter_in is None:
        page.click(f"#{name}-button")
    else:
        page.get_by_label(enter_in, exact=True).press("Enter")
    try:
        page.wait_for_selector(f"#{name}-view {selector}")
    except TimeoutError:
        fields = [field.input_value() for field in page.locator("textarea, input[type=text]").all()]
        shown = page.inner_text(f"#{name}-view")
        pytest.fail(f"no {selector} in #{name}-view; it shows {shown!r}, the fields hold {fields}")


def holding(text: str) -> str:
    """A picture that holds a text."""
    return f"svg text:has-text('{text}')"


def test_the_first_picture_is_there_and_another_one_after_typing(page, tmp_path: Path) -> None:
    page.wait_for_selector(f"#similarity-view {holding('1.00')}")
    assert "“bank” and “bank”" in page.inner_html("#similarity-view svg")
    fill(page, "second sentence", "The river is deep.")
    fill(page, "word of the second", "river")
    press(page, "similarity", holding("“bank” and “river”"), enter_in="word of the second")
    assert "mean of all other pairs" in page.inner_html("#similarity-view svg")
    page.locator("#similarity-view").screenshot(path=tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 5000
    fill(page, "word of the first", "stone")
    press(page, "similarity", ":text(\"'stone' does not occur in the sentence\")")


def test_neighbors(page) -> None:
    page.get_by_role("tab", name="Neighbors").click()
    fill(page, "corpus, a sentence a line", "The bank of the river.\nNo word of it.\n<b>The bank</b> failed.")
    press(page, "neighbors", "table")
    rows = page.locator("#neighbors-view tr").all_inner_texts()
    assert len(rows) == 4
    assert any(row.endswith("line 1") for row in rows)
    assert page.locator("#neighbors-view td b").count() == 0  # what was typed is text


def test_substitutes(page) -> None:
    page.get_by_role("tab", name="Substitutes").click()
    press(page, "substitutes", "table")
    assert page.locator("#substitutes-view table").count() == 3
    assert page.locator("#substitutes-view tr").count() == 30


def test_plane(page) -> None:
    page.get_by_role("tab", name="Plane").click()
    fill(page, "sentences, one a line", "The old bank failed.\nA 서울 $5$ bank")
    page.get_by_label("layer 0 (characters)").check()
    press(page, "plane", holding("2: A 서울"))
    found = page.inner_html("#plane-view svg")
    assert found.count(">bank<") == 2
    assert "principal component" in found


def test_ctrl_c_ends_it(server: subprocess.Popen, browser) -> None:
    assert server.poll() is None
    server.send_signal(signal.SIGINT)
    server.communicate(timeout=SECONDS)
    errors = server.errors.read_text()
    assert server.returncode == 130
    assert errors.endswith("hf-elmo: stopped\n")
    assert "Traceback" not in errors
