"""The code location loads fast, quietly and light."""

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys, warnings
warnings.simplefilter("error")
import dagster as dg
warnings.simplefilter("default")
with warnings.catch_warnings(record=True) as raised:
    from uqlob_pipeline.definitions import defs
    defs.resolve_all_asset_specs()
unwanted = (dg.BetaWarning, dg.PreviewWarning)
mine = [str(w.message) for w in raised if "uqlob" in (w.filename or "") or issubclass(w.category, unwanted)]
print("warnings:", mine)
print("heavy:", [name for name in ("torch", "mlflow", "numba", "matplotlib", "sklearn") if name in sys.modules])
print("specs:", sum(1 for spec in defs.resolve_all_asset_specs() if not (spec.description and spec.group_name)))
"""


def test_the_code_location_loads_without_warnings_and_without_torch_or_mlflow(tmp_path: Path) -> None:
    environment = {**os.environ, "UQLOB_LAKE": str(tmp_path), "UQLOB_PROFILE": "demo"}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True)
    output = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    assert output["warnings"] == "[]"
    assert not {"torch", "mlflow", "sklearn"} & set(eval(output["heavy"]))
    assert output["specs"] == "0", "every asset has a description and a group"
