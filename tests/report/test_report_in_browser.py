"""The page in a real browser, from disk."""

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from synthetic_lake import PARAMETERS, SETTINGS

from tests.conftest import day
from tests.tables.synthetic import whole_quality
from uqlob_pipeline.report import read_report_inputs
from uqlob_pipeline.report.page import build_report

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not (shutil.which("chromium") and shutil.which("chromedriver")), reason="needs Chromium and chromedriver"),
]


@pytest.fixture
def browser(tmp_path):
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = str(shutil.which("chromium"))
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1400,1200"):
        options.add_argument(argument)
    options.add_argument(f"--user-data-dir={tmp_path / 'browser'}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(str(shutil.which("chromedriver"))))
    yield driver
    driver.quit()


def test_the_page_renders_from_disk(lake, tmp_path, browser):
    from selenium.webdriver.support.ui import WebDriverWait

    inputs = read_report_inputs(lake, ["BTC-USD", "ETH-USD"], [5, 10], simulated=True)
    inputs = replace(inputs, parameters=PARAMETERS, hyperparameters=SETTINGS, profile_name="demo")
    path = build_report(inputs, tmp_path / "report")
    browser.get(path.as_uri())
    WebDriverWait(browser, 60).until(lambda page: page.execute_script("return document.readyState") == "complete")
    widths = browser.execute_script("return Array.from(document.images, image => image.naturalWidth)")
    assert len(widths) >= 12
    assert min(widths) > 300
    shown, values = browser.execute_script(
        "const cells = Array.from(document.querySelectorAll('table[data-view=calibration] td[data-value]'));"
        "return [cells.map(cell => cell.querySelector('.ours').innerText), cells.map(cell => Number(cell.dataset.value))]"
    )
    assert len(shown) >= 8
    assert all(abs(float(text) - value) < 0.006 for text, value in zip(shown, values, strict=True))
    overflow = browser.execute_script("return document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert overflow == 0
    assert not [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
    keep_screenshots(browser, "desktop")


PHONE = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
HIDDEN_BY_STICKY = """
const hidden = [];
for (const box of document.querySelectorAll('.scroll')) {
  const first = box.querySelector('tbody th:first-child');
  if (!first || box.offsetParent === null || box.scrollWidth <= box.clientWidth) continue;  // all of it is visible
  const free = box.clientWidth - first.getBoundingClientRect().width;
  const heads = [...box.querySelectorAll('tbody tr:first-child th')];
  const sticky = heads.filter(cell => getComputedStyle(cell).position === 'sticky').length;
  const view = box.querySelector('table').dataset.view;
  if (sticky > 1 || free < 0.6 * box.clientWidth) hidden.push([view, sticky, free]);
}
return hidden;
"""


def test_the_page_can_be_read_on_a_phone(lake, tmp_path, browser):
    inputs = read_report_inputs(lake, ["BTC-USD", "ETH-USD"], [5, 10], simulated=True)
    days = [replace(whole_quality(day(number), 40_000), lost_message_share=0.3 * number) for number in range(2)]
    facts = {"Made on": "2026-01-20 (UTC)", "Profile": "demo (1234abcd)", "Test days": "2026-01-13 to 2026-01-18"}
    inputs = replace(
        inputs, parameters=PARAMETERS, hyperparameters=SETTINGS, profile_name="demo", facts=facts, quality=days, refused={}
    )
    path = build_report(inputs, tmp_path / "report")
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", PHONE)
    browser.get(path.as_uri())
    keep_screenshots(browser, "phone")
    assert browser.execute_script("return document.documentElement.scrollWidth") == PHONE["width"], (
        "the page does not scroll sideways"
    )
    assert browser.execute_script(HIDDEN_BY_STICKY) == []
    narrow = (
        "return [...document.querySelectorAll('tbody th:first-child')].filter(cell => cell.offsetParent && cell.offsetWidth < 60)"
    )
    assert browser.execute_script(f"{narrow}.length") == 0, "a symbol fits on its line"
    widths = browser.execute_script("return Array.from(document.querySelectorAll('.picture img'), image => image.clientWidth)")
    assert min(widths) >= 800, "a figure of four panels keeps its size and scrolls"
    assert browser.execute_script("return getComputedStyle(document.querySelector('.picture')).overflowX") == "auto"
    assert "2026-01-13 to 2026-01-18" in browser.find_element("css selector", "header").text


def keep_screenshots(browser, name: str) -> None:
    """For a person to look at, where UQLOB_SCREENSHOTS names a directory."""
    directory = os.environ.get("UQLOB_SCREENSHOTS")
    if directory is None:
        return
    for number, place in enumerate(("#summary", "#calibration", "#gating", "#symbols", "#data", "#model")):
        browser.execute_script("document.querySelector(arguments[0])?.scrollIntoView({behavior: 'instant'})", place)
        browser.save_screenshot(str(Path(directory) / f"report-{name}-{number}-{place[1:]}.png"))
