"""Dagster's global asset graph with every group unfolded, and where it draws an asset."""

from selenium.webdriver.common.action_chains import ActionChains

from tests.browser.screen import Screen

EMPTY = (620, 1400)  # a place of the page where the graph has no box
GROUPS = ("market", "features", "labels", "models", "evaluation", "economics", "study")
STORY = ("raw_dumps", "book_events", "event_features", "encoder", "uq_regression", "predictions", "paper_report")
LEFT = """const all = Array.from(document.querySelectorAll('foreignObject, foreignObject *'));
const found = all.filter(e => e.children.length === 0 && e.textContent === arguments[0]);
return found.length ? found[0].getBoundingClientRect().left : -1"""

# Whether the box of an asset has the green of what is materialised, which arrives after the graph.
GREEN = """const all = Array.from(document.querySelectorAll('foreignObject *'));
let box = all.find(e => e.children.length === 0 && e.textContent === arguments[0]);
for (; box && box.tagName !== 'foreignObject'; box = box.parentElement) {
  const [red, green] = getComputedStyle(box).backgroundColor.match(/[\\d.]+/g).map(Number);
  if (green > red + 8) return true;
}
return false"""


def left(screen: Screen, asset: str) -> float:
    """Where the asset's box begins; negative where the graph does not show it."""
    return float(screen.driver.execute_script(LEFT, asset))


def open_graph(screen: Screen, dagster: str, *assets: str) -> str:
    """The graph once it shows all of these; what the page says."""
    screen.go(dagster)
    screen.see("Overview")
    screen.driver.execute_script("localStorage.setItem('large-screen-nav-open', 'false')")
    expanded = "%2C".join(f"global%40global%3A{group}" for group in GROUPS)
    screen.go(f"{dagster}/asset-groups?expanded={expanded}", width=2100, height=2000)
    screen.until(f"the graph with {assets}", lambda: all(left(screen, asset) > 0 for asset in assets))
    return screen.text


def show_all(screen: Screen, *assets: str) -> None:
    """Fit the graph into the window, as a double click beside it does, and wait until these assets are shown as materialised."""
    ActionChains(screen.driver).move_by_offset(*EMPTY).double_click().perform()
    screen.until(f"{assets} in green", lambda: all(screen.driver.execute_script(GREEN, asset) for asset in assets))
