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
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "GRADIO_TEMP_DIR": str(tmp_path_factory.mktemp("gradio"))}
    arguments = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": environment}
    with subprocess.Popen([sys.executable, "-c", SERVE], **arguments) as process:
        process.url = process.stdout.readline().partition(": Ctrl-C")[0]
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


def picture(page, name: str, holding: str) -> str:
    """The text of a view's picture, once it holds a certain one."""
    page.wait_for_selector(f"#{name}-view svg text:has-text('{holding}')")
    return page.inner_html(f"#{name}-view svg")


def test_the_first_picture_is_there_and_another_one_after_typing(page, tmp_path: Path) -> None:
    assert "“bank” and “bank”" in picture(page, "similarity", "1.00")
    page.get_by_label("second sentence").fill("The river is deep.")
    page.get_by_label("word of the second").fill("river")
    page.get_by_label("word of the second").press("Enter")
    assert "mean of all other pairs" in picture(page, "similarity", "“bank” and “river”")
    page.locator("#similarity-view").screenshot(path=tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 5000
    page.get_by_label("word of the first").fill("stone")
    page.click("#similarity-button")
    page.wait_for_selector("#similarity-view :text(\"'stone' does not occur in the sentence\")")


def test_neighbors(page) -> None:
    page.get_by_role("tab", name="Neighbors").click()
    page.get_by_label("corpus, a sentence a line").fill(
        "The bank of the river.\nNo word of it.\n<b>The bank</b> failed."
    )
    page.click("#neighbors-button")
    page.wait_for_selector("#neighbors-view table")
    rows = page.locator("#neighbors-view tr").all_inner_texts()
    assert len(rows) == 4
    assert any(row.endswith("line 1") for row in rows)
    assert page.locator("#neighbors-view td b").count() == 0  # what was typed is text


def test_substitutes(page) -> None:
    page.get_by_role("tab", name="Substitutes").click()
    page.click("#substitutes-button")
    page.wait_for_selector("#substitutes-view table")
    assert page.locator("#substitutes-view table").count() == 3
    assert page.locator("#substitutes-view tr").count() == 30


def test_plane(page) -> None:
    page.get_by_role("tab", name="Plane").click()
    page.get_by_label("sentences, one a line").fill("The old bank failed.\nA 서울 $5$ bank")
    page.get_by_label("layer 0 (characters)").check()
    page.click("#plane-button")
    found = picture(page, "plane", "2: A 서울")
    assert found.count(">bank<") == 2
    assert "principal component" in found


def test_ctrl_c_ends_it(server: subprocess.Popen, browser) -> None:
    assert server.poll() is None
    server.send_signal(signal.SIGINT)
    _, errors = server.communicate(timeout=SECONDS)
    assert server.returncode == 130
    assert errors.endswith("hf-elmo: stopped\n")
    assert "Traceback" not in errors
