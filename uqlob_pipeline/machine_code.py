"""Numba's cache looks only at the file of each function, not at the files of what it calls.

Where one file of a package changed, functions of another would go on running the old code, so all cached machine code that
is older than the newest source is dropped before any of it is loaded.
"""

from pathlib import Path


def drop_stale_machine_code(package: Path) -> int:
    """Remove the cached machine code of a package that is older than any of its sources; returns how many files."""
    newest = max(source.stat().st_mtime for source in package.glob("*.py"))
    dropped = 0
    for cached in [*package.glob("__pycache__/*.nbi"), *package.glob("__pycache__/*.nbc")]:
        try:
            if cached.stat().st_mtime < newest:
                cached.unlink()
                dropped += 1
        except OSError:
            continue  # another process was faster, or the installation is read-only
    return dropped
