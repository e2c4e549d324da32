"""Machine code that numba cached does not outlive a change in any file that it was compiled from."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import uqlob_pipeline
from uqlob_pipeline.market.numba_cache import COMPILED_PACKAGES, drop_stale_numba_cache

ROOT = Path(uqlob_pipeline.__file__).parent


def test_every_package_with_compiled_functions_is_known_and_drops_its_stale_code() -> None:
    compiles = re.compile(r"^\s*@(numba\.)?njit", re.MULTILINE)
    found = {path.parent for path in ROOT.rglob("*.py") if compiles.search(path.read_text())}
    assert found == set(COMPILED_PACKAGES)
    for package in found:
        assert any("drop_stale_numba_cache(Path(__file__).parent)" in path.read_text() for path in package.glob("*.py")), package


def test_code_older_than_the_newest_source_of_any_compiled_package_is_dropped(tmp_path: Path) -> None:
    own, other = tmp_path / "own", tmp_path / "other"
    (own / "__pycache__").mkdir(parents=True)
    other.mkdir()
    source, used = own / "a.py", other / "b.py"
    index, code = own / "__pycache__" / "a.f.nbi", own / "__pycache__" / "a.f.1.nbc"
    for path in (source, used, index, code):
        path.write_text("")
    os.utime(source, (100, 100))
    for used_at, dropped in ((100, 0), (300, 2)):
        os.utime(used, (used_at, used_at))
        os.utime(index, (200, 200))
        os.utime(code, (200, 200))
        assert drop_stale_numba_cache(own, [other]) == dropped
    assert not index.exists()
    assert not code.exists()


@pytest.mark.parametrize("package", ["market/importer", "economics", "market/simulator"])
def test_importing_a_package_drops_code_that_is_older_than_the_books(package: str, tmp_path: Path) -> None:
    """In a copy of the sources: the book's file is newer than a cached function of the package."""
    for directory in ("market", "economics", "config", "lake"):
        for source in [*(ROOT / directory).rglob("*.py"), *(ROOT / directory).rglob("*.toml")]:
            copy = tmp_path / "uqlob_pipeline" / source.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(source.read_bytes())
            os.utime(copy, (100, 100))
    (tmp_path / "uqlob_pipeline" / "__init__.py").write_bytes((ROOT / "__init__.py").read_bytes())
    cached = tmp_path / "uqlob_pipeline" / package / "__pycache__" / "x.f.nbi"
    cached.parent.mkdir()
    cached.write_text("")
    os.utime(cached, (200, 200))
    os.utime(tmp_path / "uqlob_pipeline" / "market" / "kraken" / "book.py", (300, 300))
    module = f"uqlob_pipeline.{package.replace('/', '.')}" + (".day" if package.endswith("simulator") else "")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1", "NUMBA_DISABLE_JIT": "1"}
    subprocess.run([sys.executable, "-c", f"import {module}"], env=environment, cwd=tmp_path, check=True)
    assert not cached.exists()
