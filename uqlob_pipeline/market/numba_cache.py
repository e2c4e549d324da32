"""Drops stale machine code from numba's cache.

Numba checks only the source file of each cached function, not the files of the functions that it calls. After a change in one
file of a package, functions of another would keep running the old code.
"""

from pathlib import Path


def drop_stale_numba_cache(package: Path) -> int:
    """Remove a package's cached machine code that is older than its newest source; returns the number of files."""
    newest = max(source.stat().st_mtime for source in package.glob("*.py"))
    dropped = 0
    for cached in [*package.glob("__pycache__/*.nbi"), *package.glob("__pycache__/*.nbc")]:
        try:
            if cached.stat().st_mtime < newest:
                cached.unlink()
                dropped += 1
        except OSError:
            continue  # removed by another process, or the installation is read-only
    return dropped
