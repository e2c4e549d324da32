"""The Dagster instance that the terminal, the UI and the daemon share, and what a run looks like in a terminal."""

import logging
import os
import re
import shutil
from pathlib import Path
from typing import Any

import dagster as dg
from filelock import FileLock

from uqlob_pipeline.lake.atomic_files import atomic_path

PROJECT = Path(__file__).parents[2]
STEP_NOT_REACHED = re.compile(r"Dependencies for step \S+ .*Not executing\.")  # Dagster's word for what waits for a failed step
OWNER = ".lake"  # in DAGSTER_HOME: the lake whose runs the instance holds


class InstanceRefused(Exception):
    """The Dagster instance cannot be used; the message says why, and which can."""


def dagster_home() -> Path:
    """DAGSTER_HOME, or the project's own dagster_home. A missing one is created with the project's settings."""
    ours = PROJECT / "dagster_home"
    home = Path(os.environ.get("DAGSTER_HOME") or ours).absolute()
    if not (home / "dagster.yaml").is_file():
        try:
            with atomic_path(home / "dagster.yaml") as temporary:
                shutil.copyfile(ours / "dagster.yaml", temporary)
        except OSError as error:
            raise InstanceRefused(f"DAGSTER_HOME {home} cannot be made with the settings of {ours}: {error}") from error
    return home


def claim_instance(lake: Path) -> None:
    """Bind DAGSTER_HOME to the lake: an instance shared by two lakes would show the runs of one as those of the other."""
    home = dagster_home()
    with _opening_lock(home):
        owner = Path((home / OWNER).read_text().strip()) if (home / OWNER).is_file() else None
        if owner is not None and owner.resolve() == lake.resolve():
            return
        if owner is not None and owner.is_dir():
            own = lake.with_name("dagster_home")
            free = own if own != home else lake.with_name(f"{lake.name}_dagster_home")
            raise InstanceRefused(
                f"the Dagster instance in {home} belongs to the lake {owner}, whose runs it would show as those of {lake}: "
                f"give this lake an instance of its own, which is created if missing: export DAGSTER_HOME={free}"
            )
        with atomic_path(home / OWNER) as temporary:
            temporary.write_text(f"{lake}\n")


def _opening_lock(home: Path) -> FileLock:
    return FileLock(home / ".opening.lock")


def open_instance() -> dg.DagsterInstance:
    """The instance of DAGSTER_HOME. The first process creates its tables, under a lock."""
    home = dagster_home()
    with _opening_lock(home):
        instance = dg.DagsterInstance.from_config(str(home))
        instance.get_runs_count()
        return instance


class _TerminalHandler(logging.Handler):
    """Prints the log lines of assets without Dagster's own events."""

    def emit(self, record: logging.LogRecord) -> None:
        meta: dict[str, Any] = getattr(record, "dagster_meta", None) or {}
        if meta.get("dagster_event") is not None:
            return
        message = meta.get("orig_message") or record.getMessage()
        if STEP_NOT_REACHED.fullmatch(message):  # it would hide the reason of the failure, which comes after it
            return
        mark = "" if record.levelno < logging.WARNING else f"{record.levelname.lower()}: "
        print(f"    {mark}{message}", flush=True)


@dg.logger(config_schema={}, description="The log lines of the assets, for runs started from a terminal.")
def terminal_logger(_: dg.InitLoggerContext) -> logging.Logger:
    logger = logging.Logger("uqlob", level=logging.INFO)
    logger.addHandler(_TerminalHandler())
    return logger


TERMINAL_RUN_CONFIG: dict[str, Any] = {"loggers": {"terminal": {}}}
