"""The Dagster instance that the terminal, the UI and the daemon share, and what a run looks like in a terminal."""

import fcntl
import logging
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg

from uqlob_pipeline.lake import atomic_path

PROJECT = Path(__file__).parent.parent
STEP_NOT_REACHED = re.compile(r"Dependencies for step \S+ .*Not executing\.")  # Dagster's word for what waits for a failed step
OWNER = ".lake"  # in DAGSTER_HOME: the lake whose runs the instance holds


class InstanceRefused(Exception):
    """The Dagster instance cannot be used; the message says why, and which can."""


def use_dagster_home() -> Path:
    """DAGSTER_HOME, or the project's own dagster_home, made known to everything started from here.

    One that is named and not there is made, with the project's settings.
    """
    ours = PROJECT / "dagster_home"
    home = Path(os.environ.get("DAGSTER_HOME") or ours).absolute()
    if not (home / "dagster.yaml").is_file():
        try:
            with atomic_path(home / "dagster.yaml") as temporary:
                shutil.copyfile(ours / "dagster.yaml", temporary)
        except OSError as error:
            raise InstanceRefused(f"DAGSTER_HOME {home} cannot be made with the settings of {ours}: {error}") from error
    os.environ["DAGSTER_HOME"] = str(home)
    return home


def claim_instance(lake: Path) -> None:
    """Make DAGSTER_HOME the lake's own. In one of another lake the UI would take that lake's runs for this one's."""
    home = use_dagster_home()
    with _alone_in(home):
        owner = Path((home / OWNER).read_text().strip()) if (home / OWNER).is_file() else None
        if owner is not None and owner.resolve() == lake.resolve():
            return
        if owner is not None and owner.is_dir():
            own = lake.with_name("dagster_home")
            free = own if own != home else lake.with_name(f"{lake.name}_dagster_home")
            raise InstanceRefused(
                f"the Dagster instance in {home} belongs to the lake {owner}, whose runs it would show as those of {lake}: "
                f"give this lake one of its own, which is made if it is not there: export DAGSTER_HOME={free}"
            )
        with atomic_path(home / OWNER) as temporary:
            temporary.write_text(f"{lake}\n")


@contextmanager
def _alone_in(home: Path) -> Iterator[None]:
    with open(home / ".opening.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def open_instance() -> dg.DagsterInstance:
    """The instance of DAGSTER_HOME. The first to open it makes its tables: two at once would trip over each other."""
    with _alone_in(use_dagster_home()):
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
