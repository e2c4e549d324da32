"""The faults of the drill. Each disturbs its own copy of a lake and returns the action taken and the problems found."""

import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from uqlob_pipeline.devtools.drill.lakes import PROFILE, STAGES, Drill, Site, differences, kill, table_hashes, tables_of

Result = tuple[str, tuple[str, ...]]  # the action taken, and the problems found
Fault = Callable[[Drill], Result]
MLFLOW_START_S = 120.0
TRIES = 3


def faults_for(drill: Drill) -> list[tuple[str, Fault]]:
    """The faults of the selected stages."""
    faults: list[tuple[str, Fault]] = [
        (f"kill -9 in {stage}", partial(killed, stage)) for stage in STAGES if stage in drill.stages
    ]
    if "ingest" in drill.stages:
        faults += [("disk full", disk_full), ("corrupted dump", corrupted_dump), ("two runs of one day", two_ingests)]
    if "train" in drill.stages:
        faults += [("two trainings of one model", two_trainings), ("MLflow server down", mlflow_down)]
    return faults


def killed(stage: str, drill: Drill) -> Result:
    """Kill the stage at random times, then let it finish. One lake goes through all stages in turn."""
    site = Site(drill.root / "killed")
    if not site.lake.exists():
        drill.before["ingest"].copy(site.root)
        for earlier in STAGES:
            if earlier == stage:
                break
            if problems := site.run(*STAGES[earlier]):
                return f"could not be prepared for {stage}", problems
    moments: list[str] = []
    pace = 1.0
    for _ in range(TRIES * drill.kills):
        process = site.start(*STAGES[stage])
        moment = drill.rng.uniform(0.2, 0.95) * drill.seconds[stage] * pace
        time.sleep(moment)
        if kill(process):
            moments.append(f"{moment:.1f} s")
        else:  # it finished before the kill: delete its tables, and kill earlier
            pace *= 0.6
            delete_tables(site, stage)
        partial_files = partially_written(site, drill, stage)
        if partial_files:
            return f"killed after {', '.join(moments)}", partial_files
        if len(moments) == drill.kills:
            break
    problems = site.run(*STAGES[stage])
    problems += differences(drill.expected(stage), table_hashes(site.lake, tables_of(stage))) + site.leftovers()
    if stage in ("train", "evaluate"):
        problems += site.untidy_runs()
    problems += () if moments else ("it always finished before the kill",)
    return f"killed after {', '.join(moments)}, run again", problems


def delete_tables(site: Site, stage: str) -> None:
    for name in table_hashes(site.lake, tables_of(stage)):
        (site.lake / name).unlink()
    if stage == "train":
        shutil.rmtree(site.lake / "models", ignore_errors=True)


def partially_written(site: Site, drill: Drill, stage: str) -> tuple[str, ...]:
    """Files in the disturbed lake that differ from those of the undisturbed one: each must be complete or missing."""
    expected = drill.expected(stage)
    found = table_hashes(site.lake, tables_of(stage))
    return tuple(
        f"{name} is partially written"
        for name, digest in found.items()
        if digest != expected.get(name) and not name.startswith("models/")  # an unfinished training has its best model so far
    )


@contextmanager
def small_disk(at: Path, size: int) -> Iterator[bool]:
    """A tmpfs of `size` bytes; yields False if mounting is not allowed."""
    at.mkdir(parents=True)
    mounted = _as_root("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(at))
    try:
        yield mounted
    finally:
        if mounted:
            _as_root("umount", "-l", str(at))


def _as_root(*command: str) -> bool:
    tool = shutil.which(command[0])
    if tool is None:
        return False
    return subprocess.run([tool, *command[1:]], capture_output=True, check=False).returncode == 0  # noqa: S603


def disk_full(drill: Drill) -> Result:
    """Ingest onto a disk that is too small for the tables; then enlarge it and run again."""
    raw = sum(path.stat().st_size for path in drill.before["ingest"].lake.rglob("*") if path.is_file())
    at = drill.root / "small-disk"
    with small_disk(at, raw + 600_000) as mounted:
        site = drill.before["ingest"].copy(drill.root / "disk-full", elsewhere=at / "lake")
        limit = None if mounted else partial(_no_file_over, 200_000)
        process = site.start(*STAGES["ingest"], preexec=limit)
        code = process.wait()
        problems: tuple[str, ...] = () if code else ("the run on the full disk did not fail",)
        problems += partially_written(site, drill, "ingest")
        if mounted:
            _as_root("mount", "-o", f"remount,size={raw + 64_000_000}", str(at))
        problems += site.run(*STAGES["ingest"])
        problems += differences(drill.expected("ingest"), table_hashes(site.lake, tables_of("ingest"))) + site.leftovers()
    how = "a tmpfs with 0.6 MB free" if mounted else "files limited to 0.2 MB (mounting is not allowed here)"
    return f"{how}, then space added and run again", problems


def _no_file_over(limit: int) -> None:
    # Imported here so that other commands start fast; likewise below.
    import resource

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # the write fails, not the process
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))


def corrupted_dump(drill: Drill) -> Result:
    """Overwrite the middle of one dump: the other days must not change, and the original dump must restore its day."""
    site = drill.before["ingest"].copy(drill.root / "corrupted")
    dump = sorted((site.lake / "raw" / "level3").rglob("*.jsonl*"))[0]
    original = dump.read_bytes()
    middle = len(original) // 2
    dump.write_bytes(original[:middle] + drill.rng.randbytes(4096) + original[middle + 4096 :])
    process = site.start(*STAGES["ingest"])
    code = process.wait()
    symbol, day = dump.parent.parent.name, dump.parent.name
    problems = unnamed_failure(site, symbol, day) if code else unreported_damage(site, symbol, day, dump)
    expected = {name: digest for name, digest in drill.expected("ingest").items() if day not in name}
    found = {name: digest for name, digest in table_hashes(site.lake, tables_of("ingest")).items() if name in expected}
    problems += tuple(f"{name} has other bytes" for name, digest in found.items() if digest != expected[name])
    dump.write_bytes(original)
    problems += site.run(*STAGES["ingest"])
    problems += differences(drill.expected("ingest"), table_hashes(site.lake, tables_of("ingest")))
    how = "the day failed" if code else "its readable part was ingested"
    return f"4 kB of {day} overwritten ({how}), then restored and run again", problems


def unnamed_failure(site: Site, symbol: str, day: str) -> tuple[str, ...]:
    """A problem if the reason for the failure does not name the asset-day."""
    reason = " ".join(site.log_tail(20_000).split()).rpartition(" failed: ")[2]  # split: a terminal wraps lines anywhere
    return () if f"{symbol} {day}" in reason else (f"the failure does not name {symbol} {day}: {reason[-300:]}",)


def unreported_damage(site: Site, symbol: str, day: str, dump: Path) -> tuple[str, ...]:
    """A problem if the day's ingest report, which the checks and the UI show, does not mention the damaged dump."""
    from uqlob_pipeline.market.kraken.ingest_report import read_report

    path = site.lake / "book_events" / f"symbol={symbol}" / f"date={day}.parquet"
    if not path.is_file():
        return (f"the run succeeded, but {path.name} of {symbol} is missing",)
    report = read_report(path)
    if dump.name in report.truncated_files or report.quarantined or report.checksums_failed:
        return ()
    return (f"{symbol} {day} was ingested from a damaged {dump.name}, and its report does not mention it",)


def two_ingests(drill: Drill) -> Result:
    """Two processes ingest the same days at the same time."""
    site = drill.before["ingest"].copy(drill.root / "two-ingests")
    return _twice(drill, site, "ingest", STAGES["ingest"])


def two_trainings(drill: Drill) -> Result:
    """Two processes train the same model at the same time: the second waits and finds it finished."""
    site = drill.before["train"].copy(drill.root / "two-trainings")
    how, problems = _twice(drill, site, "train", ("encoder",))
    return how, problems + site.untidy_runs()


def _twice(drill: Drill, site: Site, stage: str, assets: tuple[str, ...]) -> Result:
    processes = [site.start(*assets), site.start(*assets)]
    codes = [process.wait() for process in processes]
    problems: tuple[str, ...] = () if codes == [0, 0] else (f"they ended with codes {codes}: {site.log_tail(400)}",)
    problems += differences(table_hashes(drill.reference.lake, assets), table_hashes(site.lake, assets)) + site.leftovers()
    return f"{', '.join(assets)} by two processes at the same time", problems


def mlflow_down(drill: Drill) -> Result:
    """Kill an MLflow server while a model trains: training continues, and everything is uploaded once the server is back."""
    from uqlob_pipeline.config.profile import load_profile
    from uqlob_pipeline.lake.layout import Lake
    from uqlob_pipeline.tracking.client import Tracking

    site = drill.before["train"].copy(drill.root / "mlflow-down")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    site.extra_environment["MLFLOW_TRACKING_URI"] = f"http://127.0.0.1:{port}"
    server = _mlflow_server(site, port)
    try:
        process = site.start("encoder")
        started = time.monotonic()
        while process.poll() is None and "training and" not in site.log_tail(4000) and time.monotonic() - started < 300:
            time.sleep(0.05)
        still_training = process.poll() is None
        kill(server)
        code = process.wait()
        problems: tuple[str, ...] = () if code == 0 else (f"training ended with code {code}: {site.log_tail(400)}",)
        problems += () if still_training else ("the server was killed too late: training had ended",)
        problems += differences(table_hashes(drill.reference.lake, ("encoder",)), table_hashes(site.lake, ("encoder",)))
        tracking = Tracking(Lake(site.lake), load_profile(PROFILE), site.extra_environment["MLFLOW_TRACKING_URI"])
        queued = len(tracking.pending())
        problems += () if queued else ("no outbox is queued although the server was down",)
        server = _mlflow_server(site, port)
        problems += site.run("uq_regression")
        problems += tuple(f"{path.name} was not uploaded" for path in tracking.pending()) + site.untidy_runs()
    finally:
        kill(server)
    return f"server killed during training, {queued} outbox(es) uploaded when it was back", problems


def _mlflow_server(site: Site, port: int) -> "subprocess.Popen[str]":
    place = site.root / "mlflow-server"
    place.mkdir(exist_ok=True)
    store = ["--backend-store-uri", f"sqlite:///{place / 'mlflow.db'}", "--artifacts-destination", str(place / "artifacts")]
    command = [
        str(Path(sys.executable).parent / "mlflow"),
        "server",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--workers",
        "1",
    ]
    with open(place / "server.log", "a", encoding="utf-8") as log:
        server = subprocess.Popen([*command, *store], stdout=log, stderr=log, start_new_session=True, text=True)  # noqa: S603
    started = time.monotonic()
    while time.monotonic() - started < MLFLOW_START_S:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2):
                return server
        except OSError:
            time.sleep(0.3)
    kill(server)
    raise RuntimeError(f"the MLflow server did not respond within {MLFLOW_START_S:.0f} s: see {place / 'server.log'}")
