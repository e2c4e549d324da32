"""`uqlob bench status`: how long `uqlob status` takes over thousands of asset-days in a store.

The lake is made up: the files of every asset-day have the provenance of current tables and one row of data, since status reads no
more than that. Tables of events have the footer of as many row groups as those of a busy market, and no data. The store is a
directory, or the bucket that `--store` names.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    import pyarrow.parquet as pq

    from uqlob_pipeline.config.profile import Profile
    from uqlob_pipeline.lake.layout import Lake
    from uqlob_pipeline.lake.table import Table

TARGET_S = 10.0
ASSET_DAYS = 8_400  # of the larger data set that one instance should hold
FIRST = "2023-01-01"
OF_EVENTS = ("book_events", "event_features")  # one row per event; the other tables of a day fit into one row group
ROW_GROUPS = 70  # of such a table over 8.6 million events


def write_profile(path: Path, days: int) -> Path:
    """The paper's profile with splits over `days` days per symbol."""
    import datetime as dt
    import re

    from uqlob_pipeline.config.profile import profile_path

    first = dt.date.fromisoformat(FIRST)
    ends = [first + dt.timedelta(days=round(days * share)) for share in (0.0, 0.7, 0.85, 1.0)]
    lines = [
        f"{split} = {{ first = {start}, last = {end - dt.timedelta(days=1)} }}"
        for split, start, end in zip(("train", "validation", "test"), ends[:-1], ends[1:], strict=True)
    ]
    splits = "\n".join(["[splits]", *lines, "", ""])
    path.write_text(re.sub(r"\[splits\]\n(?:\w+ = .*\n)+\n", splits, profile_path("paper").read_text()))
    return path


def write_lake(lake: Lake, profile: Profile, row_groups: int = 0) -> int:
    """Every daily table and fit of the profile, as current as a made-up file can be; returns the number of asset-days.

    Tables of events have the footer of so many row groups; with 0 they are like the others.
    """
    import pyarrow as pa

    from uqlob_pipeline.lake.atomic_files import write_parquet
    from uqlob_pipeline.lake.data_quality import DataQuality, write_quality
    from uqlob_pipeline.lake.dump_hashes import hashes_of_dumps
    from uqlob_pipeline.lake.layout import AssetDay
    from uqlob_pipeline.lake.provenance import Provenance
    from uqlob_pipeline.lake.staleness import input_keys
    from uqlob_pipeline.lake.table import Key
    from uqlob_pipeline.lake.table_registry import ASSET_TABLES, RAW_DUMPS, REGISTRY, keys_of, table_path

    days = [AssetDay(symbol, date) for symbol in profile.symbols for date in profile.days(symbol, "train", "validation", "test")]
    dumps: dict[AssetDay, dict[str, str]] = {}
    for day in days:
        for channel in ("level3", "trade"):
            dump = lake.raw(channel, day) / "made-up.jsonl.zst"
            dump.parent.mkdir(parents=True)
            dump.write_bytes(f"{channel} {day}".encode())
        dumps[day] = hashes_of_dumps(lake, day)
    rows, versions = pa.table({"row": [0]}), dict[tuple[str, Key], str]()
    footers = {name: table_of_events(REGISTRY[name], row_groups) for name in OF_EVENTS if row_groups}
    for table in ASSET_TABLES:
        if table.grain not in ("day", "symbol"):
            continue
        for key in keys_of(table, profile.symbols, days, []):
            inputs: dict[str, str] = {}
            for source in table.inputs:
                if source.table == RAW_DUMPS:
                    assert isinstance(key, AssetDay)
                    inputs |= dumps[key]
                else:
                    inputs |= {name: versions[source.table, read] for name, read in input_keys(profile, table, source, key)}
            made = Provenance(table.name, table.code_version, table.settings_version(profile, key), inputs)
            versions[table.name, key] = made.data_version
            if table.name == "book_events":
                assert isinstance(key, AssetDay)
                numbers: dict[str, Any] = dict.fromkeys(DataQuality.__dataclass_fields__, 0)
                known = {"symbol": key.symbol, "date": key.date, "channel": "level3"}
                whole = {"has_trades": True, "prints": 1, "executions": 1}
                write_quality(lake, DataQuality(**{**numbers, **known, **whole}), made)
            if table.name in footers:
                write_footer(footers[table.name], table_path(lake, table.name, key), made.metadata())
            else:
                write_parquet(rows, table_path(lake, table.name, key), made.metadata())
    return len(days)


def table_of_events(table: Table, row_groups: int) -> pq.FileMetaData:
    """The footer of a table with its columns and so many row groups."""
    import io

    import pyarrow as pa
    import pyarrow.parquet as pq

    values = pa.array(range(200))
    rows = pa.table({column.name: values.cast(column.type) for column in table.columns})
    target = io.BytesIO()
    with pq.ParquetWriter(target, rows.schema, compression="zstd", write_page_checksum=True) as file:
        for _ in range(row_groups):
            file.write_table(rows)
    target.seek(0)
    return pq.read_metadata(target)


def write_footer(footer: pq.FileMetaData, path: Path, metadata: dict[bytes, bytes]) -> None:
    """A file of nothing but a footer with other metadata."""
    import io

    import pyarrow.parquet as pq

    from uqlob_pipeline.lake.atomic_files import atomic_path

    empty = io.BytesIO()
    pq.write_metadata(footer.schema.to_arrow_schema().with_metadata(metadata), empty)
    empty.seek(0)
    whole = pq.read_metadata(empty)
    whole.append_row_groups(footer)
    with atomic_path(path, hashed=True) as temporary:
        whole.write_metadata_file(temporary)


def publish_lake(lake: Lake, url: str) -> None:
    """Copy a lake of files to a store, as a step publishes what it has made."""
    from uqlob_pipeline.lake.shared_lake import open_lake, working_copy

    with working_copy(open_lake(url)) as copy:
        shutil.copytree(lake.root, copy.root, dirs_exist_ok=True, ignore=shutil.ignore_patterns("hashes"))


def timed_status(place: str, profile: Path, scratch: Path) -> dict[str, Any]:
    """Seconds of one `uqlob status --json` in a process of its own, and how many daily tables it calls current."""
    environment = {**os.environ, "UQLOB_SCRATCH": str(scratch), "DAGSTER_HOME": str(scratch / "dagster_home")}
    command = [sys.executable, "-m", "uqlob_pipeline.cli", "status", "--json", "--lake", place, "--profile", str(profile)]
    started, before = time.perf_counter(), os.times()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)  # noqa: S603 (our own command)
    seconds, after = time.perf_counter() - started, os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    if done.returncode != 0:
        raise RuntimeError(f"uqlob status failed: {done.stderr[-2000:]}")
    tables = json.loads(done.stdout)["tables"]
    current = {name: tables[name]["current"] for name in ("book_events", "window_labels")}
    return {"seconds": seconds, "cpu_seconds": cpu, "current": current}


def measure(root: Path, asset_days: int, store: str | None, row_groups: int = ROW_GROUPS) -> dict[str, Any]:
    """Make the lake below `root`, publish it, and time status on files and on the store.

    On the store the first time, when no machine has an index of it, again on the same machine, and on a new machine.
    """
    from uqlob_pipeline.config.profile import load_profile
    from uqlob_pipeline.lake.layout import Lake

    profile_file = write_profile(root / "profile.toml", days=asset_days // 7)
    profile, files = load_profile(str(profile_file)), Lake(root / "lake")
    made = write_lake(files, profile, row_groups)
    place = store or f"file://{root / 'store'}"
    publish_lake(files, place)
    found: dict[str, Any] = {"asset_days": made}
    for name, where, scratch in (
        ("files_first", str(files.root), "scratch"),  # hashes the dumps
        ("files", str(files.root), "scratch"),
        ("store_first", place, "scratch"),
        ("store_again", place, "scratch"),
        ("store_new_machine", place, "scratch of a new machine"),
    ):
        found[name] = {**timed_status(where, profile_file, root / scratch), "load": os.getloadavg()[0]}
    return {**found, "target_seconds": TARGET_S}


def status_speed(
    asset_days: Annotated[int, typer.Option(min=70, help="Size of the made-up lake, over seven symbols.")] = ASSET_DAYS,
    store: Annotated[str | None, typer.Option(help="s3://bucket/prefix to fill; default: a file:// store.")] = None,
    row_groups: Annotated[int, typer.Option(min=0, help="Of each table of events; 0: one row of data instead.")] = ROW_GROUPS,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Time `uqlob status` over many asset-days: on files, and on a store for the first time, again and on a new machine."""
    with tempfile.TemporaryDirectory() as root:
        found = measure(Path(root), asset_days, store, row_groups)
    if as_json:
        print(json.dumps(found))
        return
    for name, run in found.items():
        if isinstance(run, dict):
            times = f"{run['seconds']:.1f} s, {run['cpu_seconds']:.1f} s of CPU time, load {run['load']:.1f}"
            print(f"{name}: {times} over {found['asset_days']} asset-days (target {TARGET_S:.0f} s)")
