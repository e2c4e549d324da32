"""The faults of the drill. Each takes the drill, does its harm to a lake of its own, and says what was done and what differed."""

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

from uqlob_pipeline.drill import PROFILE, STAGES, Drill, Site, differences, kill, table_hashes, tables_of

Done = tuple[str, tuple[str, ...]]
Fault = Callable[[Drill], Done]
MLFLOW_START_S = 120.0
TRIES = 3


def faults_for(drill: Drill) -> list[tuple[str, Fault]]:
    """Every fault that the chosen stages allow."""
    faults: list[tuple[str, Fault]] = [
        (f"kill -9 in {stage}", partial(killed, stage)) for stage in STAGES if stage in drill.stages
    ]
    if "ingest" in drill.stages:
        faults += [("disk full", disk_full), ("corrupted dump", corrupted_dump), ("two runs of a day", two_ingests)]
    if "train" in drill.stages:
        faults += [("two trainings of a model", two_trainings), ("MLflow away", mlflow_away)]
    return faults


def killed(stage: str, drill: Drill) -> Done:
    """Kill the stage at random moments, then let it finish. One lake goes through all stages, each begun where the last ended."""
    site = Site(drill.root / "killed")
    if not site.lake.exists():
        drill.before["ingest"].copy(site.root)
        for earlier in STAGES:
            if earlier == stage:
                break
            if problems := site.run(*STAGES[earlier]):
                return f"could not be brought to {stage}", problems
    moments: list[str] = []
    pace = 1.0
    for _ in range(TRIES * drill.kills):
        process = site.start(*STAGES[stage])
        moment = drill.rng.uniform(0.2, 0.95) * drill.seconds[stage] * pace
        time.sleep(moment)
        if kill(process):
            moments.append(f"{moment:.1f} s")
        else:  # it was faster than the undisturbed one: take what it made away, and be quicker
            pace *= 0.6
            take_away(site, stage)
        half_written = readable_or_absent(site, drill, stage)
        if half_written:
            return f"killed after {', '.join(moments)}", half_written
        if len(moments) == drill.kills:
            break
    problems = site.run(*STAGES[stage])
    problems += differences(drill.wanted(stage), table_hashes(site.lake, tables_of(stage))) + site.leftovers()
    if stage in ("train", "evaluate"):
        problems += site.untidy_runs()
    problems += () if moments else ("it always ended before it could be killed",)
    return f"killed after {', '.join(moments)}, run again", problems


def take_away(site: Site, stage: str) -> None:
    for name in table_hashes(site.lake, tables_of(stage)):
        (site.lake / name).unlink()
    if stage == "train":
        shutil.rmtree(site.lake / "models", ignore_errors=True)


def readable_or_absent(site: Site, drill: Drill, stage: str) -> tuple[str, ...]:
    """Whatever stands in the lake right after the harm is already the very file of the undisturbed lake."""
    wanted = drill.wanted(stage)
    found = table_hashes(site.lake, tables_of(stage))
    return tuple(
        f"{name} was half-written"
        for name, digest in found.items()
        if digest != wanted.get(name) and not name.startswith("models/")  # a training under way has a best so far
    )


@contextmanager
def small_disk(at: Path, size: int) -> Iterator[bool]:
    """A tmpfs of so many bytes, where mounting is allowed; yields whether it was."""
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


def disk_full(drill: Drill) -> Done:
    """Ingest onto a disk with hardly room for the dumps; then make room and run again."""
    raw = sum(path.stat().st_size for path in drill.before["ingest"].lake.rglob("*") if path.is_file())
    at = drill.root / "small-disk"
    with small_disk(at, raw + 600_000) as mounted:
        site = drill.before["ingest"].copy(drill.root / "disk-full", elsewhere=at / "lake")
        limit = None if mounted else partial(_no_file_over, 200_000)
        process = site.start(*STAGES["ingest"], preexec=limit)
        code = process.wait()
        problems: tuple[str, ...] = () if code else ("the run on the full disk did not fail",)
        problems += readable_or_absent(site, drill, "ingest")
        if mounted:
            _as_root("mount", "-o", f"remount,size={raw + 64_000_000}", str(at))
        problems += site.run(*STAGES["ingest"])
        problems += differences(drill.wanted("ingest"), table_hashes(site.lake, tables_of("ingest"))) + site.leftovers()
    how = "a tmpfs with 0.6 MB to spare" if mounted else "files limited to 0.2 MB (mounting is not allowed here)"
    return f"{how}, then room made and run again", problems


def _no_file_over(limit: int) -> None:
    import resource

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # so that the write fails instead of the process
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))


def corrupted_dump(drill: Drill) -> Done:
    """Overwrite the middle of one dump; the other days must not notice, and the true dump must mend its day."""
    site = drill.before["ingest"].copy(drill.root / "corrupted")
    dump = sorted((site.lake / "raw" / "level3").rglob("*.jsonl*"))[0]
    true = dump.read_bytes()
    middle = len(true) // 2
    dump.write_bytes(true[:middle] + drill.rng.randbytes(4096) + true[middle + 4096 :])
    process = site.start(*STAGES["ingest"])
    code = process.wait()
    symbol, day = dump.parent.parent.name, dump.parent.name
    problems = refusal_unsaid(site, symbol, day) if code else warning_unsaid(site, symbol, day, dump)
    wanted = {name: digest for name, digest in drill.wanted("ingest").items() if day not in name}
    found = {name: digest for name, digest in table_hashes(site.lake, tables_of("ingest")).items() if name in wanted}
    problems += tuple(f"{name} has other bytes" for name, digest in found.items() if digest != wanted[name])
    dump.write_bytes(true)
    problems += site.run(*STAGES["ingest"])
    problems += differences(drill.wanted("ingest"), table_hashes(site.lake, tables_of("ingest")))
    how = "the day refused" if code else "its readable part taken"
    return f"4 kB of {day} overwritten ({how}), then mended and run again", problems


def refusal_unsaid(site: Site, symbol: str, day: str) -> tuple[str, ...]:
    """Whether the run's last word, why it failed, leaves the asset-day out: that the run began with it is no answer."""
    why = " ".join(site.said(20_000).split()).rpartition(" failed: ")[2]  # a terminal breaks lines where it likes
    return () if f"{symbol} {day}" in why else (f"the failure does not name {symbol} {day}: {why[-300:]}",)


def warning_unsaid(site: Site, symbol: str, day: str, dump: Path) -> tuple[str, ...]:
    """Whether the day was made of a damaged dump without a word of it in its report, which the checks and the UI show."""
    from uqlob_pipeline.kraken.ingest_report import read_report

    made = site.lake / "book_events" / f"symbol={symbol}" / f"date={day}.parquet"
    if not made.is_file():
        return (f"the run ended well and {made.name} of {symbol} is not there",)
    report = read_report(made)
    if dump.name in report.truncated_files or report.quarantined or report.checksums_failed:
        return ()
    return (f"{symbol} {day} was made of a damaged {dump.name}, and its report says nothing of it",)


def two_ingests(drill: Drill) -> Done:
    """The same days twice at once."""
    site = drill.before["ingest"].copy(drill.root / "two-ingests")
    return _both(drill, site, "ingest", STAGES["ingest"])


def two_trainings(drill: Drill) -> Done:
    """The same model twice at once: the second waits and finds it done."""
    site = drill.before["train"].copy(drill.root / "two-trainings")
    how, problems = _both(drill, site, "train", ("encoder",))
    return how, problems + site.untidy_runs()


def _both(drill: Drill, site: Site, stage: str, assets: tuple[str, ...]) -> Done:
    processes = [site.start(*assets), site.start(*assets)]
    codes = [process.wait() for process in processes]
    problems: tuple[str, ...] = () if codes == [0, 0] else (f"they ended with codes {codes}: {site.said(400)}",)
    wanted = table_hashes(drill.reference.lake, assets)
    problems += differences(wanted, table_hashes(site.lake, assets)) + site.leftovers()
    return f"{', '.join(assets)} by two processes at once", problems


def mlflow_away(drill: Drill) -> Done:
    """A real MLflow server, killed while a model trains; training goes on, and all is told once the server is back."""
    from uqlob_pipeline.lake import Lake
    from uqlob_pipeline.profile import load_profile
    from uqlob_pipeline.tracking import Tracking

    site = drill.before["train"].copy(drill.root / "mlflow-away")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    site.extra["MLFLOW_TRACKING_URI"] = f"http://127.0.0.1:{port}"
    server = _mlflow_server(site, port)
    try:
        process = site.start("encoder")
        started = time.monotonic()
        while process.poll() is None and "training and" not in site.said(4000) and time.monotonic() - started < 300:
            time.sleep(0.05)
        during = process.poll() is None
        kill(server)
        code = process.wait()
        problems: tuple[str, ...] = () if code == 0 else (f"training ended with code {code}: {site.said(400)}",)
        problems += () if during else ("the server was killed too late: training was over",)
        problems += differences(table_hashes(drill.reference.lake, ("encoder",)), table_hashes(site.lake, ("encoder",)))
        tracking = Tracking(Lake(site.lake), load_profile(PROFILE), site.extra["MLFLOW_TRACKING_URI"])
        waiting = len(tracking.pending())
        problems += () if waiting else ("nothing waits in the journal although the server was away",)
        server = _mlflow_server(site, port)
        problems += site.run("uq_regression")
        problems += tuple(f"{path.name} was not delivered" for path in tracking.pending()) + site.untidy_runs()
    finally:
        kill(server)
    return f"server killed during training, {waiting} journal(s) delivered when it was back", problems


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
    raise RuntimeError(f"the MLflow server did not answer within {MLFLOW_START_S:.0f} s: see {place / 'server.log'}")
