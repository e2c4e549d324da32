"""Drops stale machine code from numba's cache.

Numba checks only the source file of each cached function, not the files of the functions that it calls or of the constants that
it froze. After a change in one file, functions of another, also of another package, would keep running the old code.
"""

from collections.abc import Sequence
from pathlib import Path

_ROOT = Path(__file__).parents[1]
COMPILED_PACKAGES = tuple(
    _ROOT / name for name in ("market/kraken", "market/importer", "market/simulator", "economics")
)  # each uses compiled functions or constants of the first


def drop_stale_numba_cache(package: Path, sources: Sequence[Path] = COMPILED_PACKAGES) -> int:
    """Remove a package's cached machine code that is older than the newest source of any compiled package.

    Returns the number of files.
    """
    newest = max(source.stat().st_mtime for directory in {package, *sources} for source in directory.glob("*.py"))
    dropped = 0
    for cached in [*package.glob("__pycache__/*.nbi"), *package.glob("__pycache__/*.nbc")]:
        try:
            if cached.stat().st_mtime < newest:
                cached.unlink()
                dropped += 1
        except OSError:
            continue  # removed by another process, or the installation is read-only
    return dropped
