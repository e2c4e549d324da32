"""From a model in Dagster to its run in MLflow and back."""

import re

import pyarrow.parquet as pq
import pytest
from PIL import Image
from selenium.webdriver.common.by import By

from tests.browser.conftest import Place
from tests.browser.screen import Screen, needs_chromium
from tests.end_to_end.tiny_market import KEY, SYMBOL
from uqlob_models.evaluation import headline
from uqlob_pipeline.models.stages import read_record
from uqlob_pipeline.models.training_figures import CONFUSION, CURVES

pytestmark = [pytest.mark.browser, needs_chromium]


def look_at_training(screen: Screen) -> None:
    """MLflow opens with its assistant and the menu of language models: leave the place to the runs."""
    for path in (
        "//*[text()='Model training']",
        "//*[text()='MLflow Assistant']/ancestor::*[count(.//button)>2][1]//button[last()]",
    ):
        for found in screen.driver.find_elements(By.XPATH, path)[-1:]:
            screen.driver.execute_script("arguments[0].click()", found)


def number_after(words: str, text: str) -> float:
    """The number that a page shows right behind some words."""
    found = re.search(rf"(?m)^{re.escape(words)}\s+(-?\d[\d.]*(?:e-?\d+)?)", text)
    assert found, f"no number behind '{words}' in:\n{text[:3000]}"
    return float(found[1])


def test_the_link_of_a_model_leads_to_its_run_with_metrics_and_figures(place: Place, screen: Screen) -> None:
    record = read_record(place.lake.model("uq_regression", KEY))
    assert record is not None
    screen.go(f"{place.mlflow}/#/experiments/1/runs")
    screen.see("matching runs")
    look_at_training(screen)
    screen.go(f"{place.dagster}/assets/uq_regression?view=partitions&partition=5s%7C{SYMBOL}", height=1100)
    text = screen.see("Latest materialization", "MLflow", "selection nlpd")
    assert number_after("selection nlpd", text) == pytest.approx(record.validation["nlpd"], rel=1e-4)
    (link, *_) = screen.until("the link to MLflow", lambda: screen.links(f"{place.mlflow}/#/experiments/"))
    screen.driver.execute_script("Array.from(document.links).find(a => a.href === arguments[0]).target = '_self'", link)
    screen.driver.execute_script("Array.from(document.links).find(a => a.href === arguments[0]).click()", link)

    text = screen.see(f"{SYMBOL} 5s uq_regression", "validation/nlpd", "test/cov68")
    last = record.history()["epochs"][-1]
    test = headline(pq.read_table(place.lake.by_model("gated_evaluation", KEY)))
    assert number_after("validation/nlpd", text) == pytest.approx(last["validation/nlpd"], rel=1e-3)
    assert number_after("test/cov68", text) == pytest.approx(test["regression/cov68"], rel=1e-3)
    assert "Finished" in text
    screen.settle()
    screen.shoot("mlflow_run")

    figures = sorted(path.name for path in record.directory.glob("*.png"))
    assert figures == [CONFUSION, CURVES]
    assert link.endswith("?workflowType=machine_learning")  # the mode that training runs need
    screen.go(f"{link.partition('?')[0]}/artifacts/figures/{figures[0]}", height=900)
    screen.see(*figures)
    for name in figures:
        screen.until(name, lambda name=name: screen.driver.find_elements(By.XPATH, f"//*[text()='{name}']"))[0].click()
        screen.see(f"figures/{name}")
        size = list(Image.open(record.directory / name).size)
        screen.until(f"{name} of {size} pixels", lambda size=size: size in screen.driver.execute_script(DRAWN))


# The sizes of the pictures that the page has loaded.
DRAWN = "return Array.from(document.images).filter(i => i.complete).map(i => [i.naturalWidth, i.naturalHeight])"


def test_the_experiment_lists_every_run_and_none_ended_before_it_began(place: Place, screen: Screen) -> None:
    screen.go(f"{place.mlflow}/#/experiments/1/runs", height=850, width=1700)
    text = screen.see(f"{SYMBOL} 5s", "dataset profile", "paper report", "matching runs")
    assert "7 matching runs" in text
    assert not re.search(r"-\d+m?s\b", text), "a run that ended before it began"
    look_at_training(screen)
    screen.settle()
    screen.shoot("mlflow_runs")


def test_two_runs_are_compared_with_their_symbol_horizon_and_head(place: Place, screen: Screen) -> None:
    screen.go(f"{place.mlflow}/#/experiments/1/runs", height=850, width=1700)
    screen.see(f"{SYMBOL} 5s", "matching runs")
    look_at_training(screen)
    row_of = "//*[@role='row'][.//*[normalize-space(text())='{}']]"
    parent = row_of.format(f"{SYMBOL} 5s") + "//*[contains(@col-id, 'Run Name')]//button"
    screen.until("the runs below the model", lambda: screen.driver.find_elements(By.XPATH, parent))[0].click()
    for stage in ("uq_regression", "uq_classification"):
        path = row_of.format(f"{SYMBOL} 5s {stage}") + "//input[contains(@class, 'ag-checkbox-input')]"
        box = screen.until(f"the box of {stage}", lambda path=path: screen.driver.find_elements(By.XPATH, path))[0]
        screen.driver.execute_script("arguments[0].click()", box)
    screen.press("Compare")
    screen.see("Comparing 2 Runs", "Parameters", f"{SYMBOL} 5s uq_regression", f"{SYMBOL} 5s uq_classification")
    shown = screen.until("the parameters side by side", lambda: parameters(screen))
    assert shown["symbol"] == [SYMBOL, SYMBOL]
    assert shown["horizon_s"] == ["5", "5"]
    assert sorted(shown["head"]) == ["classification", "regression"]
    screen.driver.execute_script(TO_HEAD)
    screen.settle()
    screen.shoot("mlflow_compare")


ROWS = """return Array.from(document.querySelectorAll('tr')).map(row =>
  Array.from(row.querySelectorAll('th, td')).map(cell => cell.innerText.trim()))"""


TO_HEAD = """Array.from(document.querySelectorAll('tr')).find(row => row.cells[0].innerText.trim() === 'head')
  .scrollIntoView({block: 'center', inline: 'start'})"""


def parameters(screen: Screen) -> dict[str, list[str]] | None:
    """The rows of the comparison by name, once they are there."""
    rows = {row[0]: row[1:] for row in screen.driver.execute_script(ROWS) if len(row) == 3}
    return rows if {"symbol", "horizon_s", "head"} <= set(rows) else None
