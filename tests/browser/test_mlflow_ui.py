"""From a model in Dagster to its run in MLflow and back."""

import re

import pytest
from selenium.webdriver.common.by import By

from tests.browser.conftest import Place
from tests.browser.screen import Screen, needs_chromium
from tests.end_to_end.tiny_market import SYMBOL

pytestmark = [pytest.mark.browser, needs_chromium]


def look_at_training(screen: Screen) -> None:
    """MLflow opens with its assistant and the menu of language models: leave the place to the runs."""
    for path in (
        "//*[text()='Model training']",
        "//*[text()='MLflow Assistant']/ancestor::*[count(.//button)>2][1]//button[last()]",
    ):
        for found in screen.driver.find_elements(By.XPATH, path)[-1:]:
            screen.driver.execute_script("arguments[0].click()", found)


def test_the_link_of_a_model_leads_to_its_run_with_metrics_and_figures(place: Place, screen: Screen) -> None:
    screen.go(f"{place.mlflow}/#/experiments/1/runs")
    screen.see("matching runs")
    look_at_training(screen)
    screen.go(f"{place.dagster}/assets/uq_regression?view=partitions&partition=5s%7C{SYMBOL}", height=1100)
    screen.see("Latest materialization", "MLflow", "selection nlpd")
    (link, *_) = screen.until("the link to MLflow", lambda: screen.links(f"{place.mlflow}/#/experiments/"))
    screen.driver.execute_script("Array.from(document.links).find(a => a.href === arguments[0]).target = '_self'", link)
    screen.driver.execute_script("Array.from(document.links).find(a => a.href === arguments[0]).click()", link)
    screen.see(f"{SYMBOL} 5s uq_regression", "validation/nlpd", "test/cov68")
    screen.settle()
    screen.shoot("mlflow_run")
    screen.go(f"{link}/artifacts/figures", height=900)
    screen.see("figures", "checkpoint")
    for name in ("figures", "training_curves.png"):
        screen.until(name, lambda name=name: [e for e in screen.driver.find_elements(By.XPATH, f"//*[text()='{name}']")])[
            0
        ].click()
    drawn = "return Array.from(document.images).filter(i => i.naturalWidth > 300).length"
    screen.until("a figure", lambda: screen.driver.execute_script(drawn))


def test_the_experiment_lists_every_run_and_none_ended_before_it_began(place: Place, screen: Screen) -> None:
    screen.go(f"{place.mlflow}/#/experiments/1/runs", height=850, width=1700)
    said = screen.see(f"{SYMBOL} 5s", "dataset profile", "paper report", "matching runs")
    assert "7 matching runs" in said
    assert not re.search(r"-\d+m?s\b", said), "a run that ended before it began"
    look_at_training(screen)
    screen.settle()
    screen.shoot("mlflow_runs")
