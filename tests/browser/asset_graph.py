"""Dagster's global asset graph with every group unfolded, and where it draws an asset."""

from tests.browser.screen import Screen

GROUPS = ("market", "features", "labels", "models", "evaluation", "economics")
STORY = ("raw_dumps", "book_events", "event_features", "encoder", "uq_regression", "predictions", "paper_report")
LEFT = """const all = Array.from(document.querySelectorAll('foreignObject, foreignObject *'));
const found = all.filter(e => e.children.length === 0 && e.textContent === arguments[0]);
return found.length ? found[0].getBoundingClientRect().left : -1"""


def left(screen: Screen, asset: str) -> float:
    """Where the asset's box begins; negative where the graph does not show it."""
    return float(screen.driver.execute_script(LEFT, asset))


def open_graph(screen: Screen, dagster: str, *assets: str) -> str:
    """The graph once it shows all of these; what the page says."""
    screen.go(dagster)
    screen.see("Overview")
    screen.driver.execute_script("localStorage.setItem('large-screen-nav-open', 'false')")
    expanded = "%2C".join(f"global%40global%3A{group}" for group in GROUPS)
    screen.go(f"{dagster}/asset-groups?expanded={expanded}", width=2100, height=1620)
    screen.until(f"the graph with {assets}", lambda: all(left(screen, asset) > 0 for asset in assets))
    return screen.text
