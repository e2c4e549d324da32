"""The page in a real browser, from disk."""

import shutil
from dataclasses import replace

import pytest
from synthetic_lake import PARAMETERS, SETTINGS

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
    inputs = read_report_inputs(lake, ["BTC-USD", "ETH-USD"], [5, 10], simulated=True)
    inputs = replace(inputs, parameters=PARAMETERS, hyperparameters=SETTINGS, profile_name="demo")
    path = build_report(inputs, tmp_path / "report")
    browser.get(path.as_uri())
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
