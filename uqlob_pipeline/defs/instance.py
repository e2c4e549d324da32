"""The Dagster instance that the terminal, the UI and the daemon share, and what a run looks like in a terminal."""

import logging
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
from filelock import FileLock, Timeout

from uqlob_pipeline.config.profile import Profile, load_profile, profile_path
from uqlob_pipeline.lake.atomic_files import atomic_path
from uqlob_pipeline.lake.store import is_url
from uqlob_pipeline.tracking.client import flattened

PROJECT = Path(__file__).parents[2]
STEP_NOT_REACHED = re.compile(r"Dependencies for step \S+ .*Not executing\.")  # Dagster's word for what waits for a failed step
OWNER = ".lake"  # in DAGSTER_HOME: the lake whose runs the instance holds
PROFILE = ".profile"  # in DAGSTER_HOME: the file of the profile with which they were made


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


def claim_instance(lake: Path | str) -> None:
    """Bind DAGSTER_HOME to the lake: an instance shared by two lakes would show the runs of one as those of the other.

    A lake in a store is given by its URL.
    """
    home = dagster_home()
    with _opening_lock(home):
        owner = (home / OWNER).read_text().strip() if (home / OWNER).is_file() else None
        if owner is not None and _same_lake(owner, str(lake)):
            return
        if owner is not None and (is_url(owner) or Path(owner).is_dir()):
            place = Path("lake").absolute() if is_url(str(lake)) else Path(lake)
            own = place.with_name("dagster_home")
            free = own if own != home else place.with_name(f"{place.name}_dagster_home")
            raise InstanceRefused(
                f"the Dagster instance in {home} belongs to the lake {owner}, whose runs it would show as those of {lake}: "
                f"give this lake an instance of its own, which is created if missing: export DAGSTER_HOME={free}"
            )
        with atomic_path(home / OWNER) as temporary:
            temporary.write_text(f"{lake}\n")
        (home / PROFILE).unlink(missing_ok=True)  # that of the lake before


def _same_lake(one: str, other: str) -> bool:
    if is_url(one) or is_url(other):
        return one.rstrip("/") == other.rstrip("/")
    return Path(one).resolve() == Path(other).resolve()


def claim_profile(name: str) -> None:
    """Bind DAGSTER_HOME to a profile: UI and terminal with different settings would redo each other's tables.

    A profile that was edited in place stays the instance's; one of the same content may be in another file.
    """
    home, path, profile = dagster_home(), profile_path(name), load_profile(name)
    with _opening_lock(home):
        known = Path((home / PROFILE).read_text().strip()) if (home / PROFILE).is_file() else None
        if known is not None and known != path and known.is_file():
            other = load_profile(str(known))
            if other.fingerprint != profile.fingerprint:
                raise InstanceRefused(
                    f"the Dagster instance in {home} works with profile '{other.name}' of {known}, and {path} differs in "
                    f"{different_settings(other, profile)}: tables made with one would be stale with the other. Use "
                    f"UQLOB_PROFILE={known}, give this profile an instance and a lake of its own (DAGSTER_HOME, UQLOB_LAKE), "
                    f"or delete {home / PROFILE} to switch this instance to the other profile"
                )
        if known != path:
            with atomic_path(home / PROFILE) as temporary:
                temporary.write_text(f"{path}\n")


def different_settings(one: Profile, other: Profile) -> str:
    """The settings in which two profiles differ: the first few, and how many more."""
    settings = [flattened(profile.model_dump(mode="json")) for profile in (one, other)]
    names = [name for name in {**settings[0], **settings[1]} if settings[0].get(name) != settings[1].get(name)]
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


@contextmanager
def sole_ui(url: str) -> Iterator[None]:
    """Hold the instance for one `uqlob ui`: a second daemon would launch every queued run a second time."""
    home = dagster_home()
    lock, address = FileLock(home / ".ui.lock"), home / ".ui"
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        where = address.read_text().strip() if address.is_file() else "another address"
        raise InstanceRefused(
            f"uqlob ui is running already for the Dagster instance in {home}: open {where}, or stop it with Ctrl-C first. "
            "uqlob ui --read-only starts a second UI without a daemon"
        ) from error
    try:
        address.write_text(f"{url}\n")
        yield
    finally:
        lock.release()


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
