"""A headless Chromium, and what the tests do with it: look for words, press buttons, take pictures."""

import io
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webdriver import WebDriver

PATIENCE_S = 240.0  # a bound for a machine under load; every wait ends with its condition
needs_chromium = pytest.mark.skipif(
    not (shutil.which("chromium") and shutil.which("chromedriver")), reason="needs Chromium and chromedriver"
)


class Screen:
    """One browser window."""

    def __init__(self, driver: WebDriver, directory: Path) -> None:
        self.driver, self.directory = driver, directory

    @classmethod
    def open(cls, user_data: Path, directory: Path) -> "Screen":
        options = webdriver.ChromeOptions()
        options.binary_location = str(shutil.which("chromium"))
        for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={user_data}"):
            options.add_argument(argument)
        return cls(
            webdriver.Chrome(options=options, service=webdriver.ChromeService(str(shutil.which("chromedriver")))), directory
        )

    def go(self, url: str, *, width: int = 1500, height: int = 1000) -> None:
        self.driver.set_window_size(width, height)
        self.driver.get(url)

    @property
    def text(self) -> str:
        return str(self.driver.find_element(By.TAG_NAME, "body").text)

    def until(self, what: str, ask: Callable[[], Any], *, patience: float = PATIENCE_S, reload_every: float = 0) -> Any:
        """What `ask` gives as soon as it gives something; where it never does, what the page said instead."""
        started = loaded = time.monotonic()
        while time.monotonic() - started < patience:
            try:
                found = ask()
            except StaleElementReferenceException:
                found = None
            if found:
                return found
            if reload_every and time.monotonic() - loaded > reload_every:
                self.driver.refresh()
                loaded = time.monotonic()
            time.sleep(0.5)
        raise AssertionError(f"{self.driver.current_url} never showed {what}; it said:\n{self.text[:3000]}")

    def see(self, *words: str, **waiting: float) -> str:
        """Wait until the page says all of these; returns what it says."""
        self.until(" and ".join(words), lambda: all(word in self.text for word in words), **waiting)
        return self.text

    def press(self, words: str) -> None:
        """The last enabled button that says these words: a dialog's comes after the page's."""

        def button() -> Any:
            every = self.driver.find_elements(By.TAG_NAME, "button")
            return [b for b in every if b.text.strip().startswith(words) and b.is_displayed() and b.is_enabled()]

        self.until(f"a button '{words}'", button)[-1].click()

    def links(self, to: str) -> list[str]:
        every = [str(a.get_attribute("href")) for a in self.driver.find_elements(By.TAG_NAME, "a")]
        return [link for link in every if link.startswith(to)]

    def ask(self, query: str, **variables: Any) -> Any:
        """GraphQL from within the page, as the page itself asks."""
        script = (
            "const [query, variables, done] = arguments;"
            "const body = JSON.stringify({query, variables});"
            "fetch('/graphql', {method: 'POST', headers: {'content-type': 'application/json'}, body})"
            ".then(answer => answer.json()).then(done)"
        )
        self.driver.set_script_timeout(60)
        answer = self.driver.execute_async_script(script, query, variables)
        assert not answer.get("errors"), answer["errors"]
        return answer["data"]

    def settle(self) -> None:
        """Wait until the page has looked the same for a while: colours and pictures arrive after the words."""

        def same() -> bool:
            before = self.driver.get_screenshot_as_png()
            time.sleep(4)
            return before == self.driver.get_screenshot_as_png()

        self.until("a page at rest", same)

    def shoot(self, name: str, *, width: int = 1500) -> Path:
        """A picture small enough for a repository: few colours, no wider than it is shown."""
        self.directory.mkdir(parents=True, exist_ok=True)
        picture = Image.open(io.BytesIO(self.driver.get_screenshot_as_png())).convert("RGB")
        if picture.width > width:
            picture = picture.resize((width, round(picture.height * width / picture.width)), Image.Resampling.LANCZOS)
        path = self.directory / f"{name}.png"
        picture.quantize(128, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE).save(path, optimize=True)
        return path
