"""Figures that are made but not drawn: drawing is a third of the DAG's time on a tiny market, and most of a report's."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure


@contextmanager
def undrawn_figures() -> Iterator[None]:
    """Every saved figure of this process is empty until the end of the block. For tests of what is written beside figures."""

    def write(_: Figure, target: Any, *, format: str, **__: Any) -> None:
        content = b"<svg/>" if format == "svg" else b"PNG"
        if isinstance(target, (str, Path)):
            Path(target).write_bytes(content)
        else:
            target.write(content)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", write)
        yield
