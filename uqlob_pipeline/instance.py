"""The Dagster instance that the terminal, the UI and the daemon share, and what a run looks like in a terminal."""

import fcntl
import logging
import os
import re
from pathlib import Path
from typing import Any

import dagster as dg

PROJECT = Path(__file__).parent.parent
STEP_NOT_REACHED = re.compile(r"Dependencies for step \S+ .*Not executing\.")  # Dagster's word for what waits for a failed step


def use_dagster_home() -> Path:
    """DAGSTER_HOME, or the project's own dagster_home, made known to everything started from here."""
    home = Path(os.environ.get("DAGSTER_HOME") or PROJECT / "dagster_home").absolute()
    if not (home / "dagster.yaml").is_file():
        raise FileNotFoundError(f"{home} has no dagster.yaml: set DAGSTER_HOME to the project's dagster_home directory")
    os.environ["DAGSTER_HOME"] = str(home)
    return home


def open_instance() -> dg.DagsterInstance:
    """The instance of DAGSTER_HOME. The first to open it makes its tables: two at once would trip over each other."""
    with open(use_dagster_home() / ".opening.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        instance = dg.DagsterInstance.get()
        instance.get_runs_count()
        return instance


class _TerminalHandler(logging.Handler):
    """Prints what an asset says, without Dagster's own bookkeeping around it."""

    def emit(self, record: logging.LogRecord) -> None:
        meta: dict[str, Any] = getattr(record, "dagster_meta", None) or {}
        if meta.get("dagster_event") is not None:
            return
        said = meta.get("orig_message") or record.getMessage()
        if STEP_NOT_REACHED.fullmatch(said):  # it would come before the reason of the failure, and hide it
            return
        mark = "" if record.levelno < logging.WARNING else f"{record.levelname.lower()}: "
        print(f"    {mark}{said}", flush=True)


@dg.logger(config_schema={}, description="What the assets say, one line each: for runs started from a terminal.")
def terminal_logger(_: dg.InitLoggerContext) -> logging.Logger:
    logger = logging.Logger("uqlob", level=logging.INFO)
    logger.addHandler(_TerminalHandler())
    return logger


TERMINAL_RUN_CONFIG: dict[str, Any] = {"loggers": {"terminal": {}}}
