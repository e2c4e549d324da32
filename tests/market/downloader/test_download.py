"""`uqlob download` against a server on loopback that cuts connections, refuses and redirects."""

import contextlib
import datetime as dt
import email.utils
import gzip
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from tests.market.downloader.file_server import KEY, FileServer, running_server
from tests.market.importer.tardis_files import book_rows, trade_rows
from tests.market.kraken.one_day import stream_of
from uqlob_pipeline.cli.app import app
from uqlob_pipeline.market.downloader import file_client
from uqlob_pipeline.market.downloader.file_client import ATTEMPTS, DownloadFailed, FileClient, FileMissing, KeyNeeded
from uqlob_pipeline.market.downloader.tardis import TardisFile, days_between

CONTENT = gzip.compress(np.random.default_rng(1).bytes(300_000))
PATH = "/v1/kraken/trades/2026/01/01/ETH-USD.csv.gz"


@pytest.fixture
def server() -> Iterator[FileServer]:
    with running_server() as running:
        yield running


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TARDIS_API_KEY", raising=False)
    monkeypatch.setattr(file_client, "FIRST_WAIT_S", 0.01)


class Fetch:
    """Fetches PATH, with the waits that the client asked for."""

    def __init__(self, server: FileServer, target: Path, key: str | None = None) -> None:
        self.waits: list[float] = []
        self.target = target
        self.client = FileClient(server.address, key, self.waits.append)

    def __call__(self, path: str = PATH) -> bytes:
        try:
            self.client.fetch(path, self.target, lambda have, total: None)
        finally:
            self.client.close()
        return self.target.read_bytes()


def files_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_a_cut_connection_is_resumed_where_it_ended(server: FileServer, tmp_path: Path) -> None:
    server.files[PATH], server.tags[PATH], server.cuts[PATH] = CONTENT, '"a"', [100_000, 50_000]
    fetch = Fetch(server, tmp_path / "a.csv.gz")
    assert fetch() == CONTENT
    assert [headers.get("Range") for _, headers in server.requests] == [None, "bytes=100000-", "bytes=150000-"]
    assert len(fetch.waits) == 2
    assert files_in(tmp_path) == ["a.csv.gz"]


def test_a_later_call_resumes_unless_the_file_has_changed(server: FileServer, tmp_path: Path) -> None:
    server.files[PATH], server.tags[PATH] = CONTENT, '"new"'
    for tag, first in (('"new"', "bytes=1000-"), ('"old"', "bytes=1000-"), (None, None)):
        target = tmp_path / f"{first}{tag}".replace('"', "").replace("=", "")
        target.with_name(f"{target.name}.part").write_bytes(CONTENT[:1000] if tag == '"new"' else b"x" * 1000)
        if tag:
            target.with_name(f"{target.name}.part.tag").write_text(tag)
        assert Fetch(server, target)() == CONTENT
        assert server.requests[-1][1].get("Range") == first


def test_without_an_entity_tag_a_cut_file_begins_again(server: FileServer, tmp_path: Path) -> None:
    server.files[PATH], server.cuts[PATH] = CONTENT, [100_000]
    assert Fetch(server, tmp_path / "a.csv.gz")() == CONTENT
    assert [headers.get("Range") for _, headers in server.requests] == [None, None]


def test_a_server_that_never_sends_more_is_given_up_and_what_was_received_is_kept(server: FileServer, tmp_path: Path) -> None:
    server.files[PATH], server.tags[PATH], server.cuts[PATH] = CONTENT, '"a"', [1000] + [0] * 50
    with pytest.raises(DownloadFailed, match=rf"tried {ATTEMPTS} times. 1,000 bytes were received and are kept: run the same"):
        Fetch(server, tmp_path / "a.csv.gz")()
    assert (tmp_path / "a.csv.gz.part").read_bytes() == CONTENT[:1000]


@pytest.mark.parametrize("asked", ["7", "date"])
def test_too_many_requests_are_answered_by_waiting_as_long_as_asked(server: FileServer, tmp_path: Path, asked: str) -> None:
    after = asked if asked != "date" else email.utils.formatdate(time.time() + 100, usegmt=True)
    server.files[PATH], server.answers[PATH] = CONTENT, [(429, {"Retry-After": after}, b""), (503, {}, b"busy")]
    fetch = Fetch(server, tmp_path / "a.csv.gz")
    assert fetch() == CONTENT
    first, second = fetch.waits
    assert first == 7 if asked == "7" else 80 < first <= 100
    assert second < 1


def test_refusals_are_not_tried_again(server: FileServer, tmp_path: Path) -> None:
    server.files[PATH] = CONTENT
    server.needs_key.add(PATH)
    with pytest.raises(KeyNeeded, match="answers 401"):
        Fetch(server, tmp_path / "a")()
    with pytest.raises(KeyNeeded, match=r"not for Bearer \*\*\*"):  # the server repeats the key
        Fetch(server, tmp_path / "a", "a-wrong-key")()
    with pytest.raises(FileMissing, match=r"answers 404 .*no such file"):
        Fetch(server, tmp_path / "a")("/nothing")
    server.answers[PATH] = [(418, {}, b"")]
    with pytest.raises(DownloadFailed, match="answers 418"):
        Fetch(server, tmp_path / "a")()
    assert len(server.requests) == 4
    assert Fetch(server, tmp_path / "a", KEY)() == CONTENT


def test_a_file_of_the_right_length_that_is_no_archive_is_not_kept(server: FileServer, tmp_path: Path) -> None:
    damaged = CONTENT[:5000] + b"xxxxxxxxxxxxxxxx" + CONTENT[5016:]
    for content, reason in (
        (b"<html>maintenance</html>", "no gzip archive"),
        (damaged, "damaged"),
        (CONTENT[:-9], "ends before"),
    ):
        server.files[PATH] = content
        with pytest.raises(DownloadFailed, match=reason):
            Fetch(server, tmp_path / "a.csv.gz")()
        assert not (tmp_path / "a.csv.gz").exists()


def test_a_redirect_is_followed_without_the_key(server: FileServer, tmp_path: Path) -> None:
    with running_server() as other:
        other.files["/stored"], other.tags["/stored"], other.cuts["/stored"] = CONTENT, '"a"', [1000]
        server.answers[PATH] = [(302, {"Location": f"{other.address}/stored"}, b"")] * 2
        assert Fetch(server, tmp_path / "a.csv.gz", KEY)() == CONTENT
        assert [headers.get("Authorization") for _, headers in server.requests] == [f"Bearer {KEY}"] * 2
        assert [headers.get("Authorization") for _, headers in other.requests] == [None, None]


def test_redirects_to_unencrypted_addresses_and_in_circles_are_refused(server: FileServer, tmp_path: Path) -> None:
    server.answers[PATH] = [(302, {"Location": "http://example.org/a"}, b"")]
    with pytest.raises(DownloadFailed, match=r"'http://example\.org/a' is not an https:// address"):
        Fetch(server, tmp_path / "a")()
    server.answers[PATH] = [(302, {"Location": PATH}, b"")] * 20
    with pytest.raises(DownloadFailed, match="more than 5 times"):
        Fetch(server, tmp_path / "a")()


@pytest.mark.parametrize(
    "location", ["https://[", "https://a:port/", "https://a:99999/x", "https://" + "a" * 70_000, "//", "http://127.0.0.1:0x1/"]
)
def test_a_redirect_to_an_address_that_cannot_be_read_is_refused(server: FileServer, tmp_path: Path, location: str) -> None:
    server.answers[PATH] = [(302, {"Location": location}, b"")] * 20
    with pytest.raises(DownloadFailed):
        Fetch(server, tmp_path / "a", KEY)()


def test_a_refusal_with_a_body_that_cannot_be_decoded_is_a_refusal(server: FileServer, tmp_path: Path) -> None:
    server.answers[PATH] = [(404, {"Content-Encoding": "gzip", "Content-Length": "7"}, b"no gzip")]
    with pytest.raises(FileMissing, match="answers 404"):
        Fetch(server, tmp_path / "a")()


@pytest.mark.parametrize("after", ["Mon, 01 Jan 0001 00:00:00 -0000", "Fri, 31 Dec 9999 23:59:59 -2359", "٣", "-7", "1e9"])
def test_any_retry_after_is_a_bounded_wait(server: FileServer, tmp_path: Path, after: str) -> None:
    server.files[PATH], server.answers[PATH] = CONTENT, [(429, {"Retry-After": after}, b"")]
    fetch = Fetch(server, tmp_path / "a.csv.gz")
    assert fetch() == CONTENT
    assert 0 <= fetch.waits[0] <= file_client.LONGEST_ASKED_WAIT_S


@pytest.mark.parametrize("address", ["http://datasets.tardis.dev", "ftp://127.0.0.1", "https://", "datasets.tardis.dev"])
def test_an_unencrypted_server_is_refused(address: str) -> None:
    with pytest.raises(DownloadFailed, match="is not an https:// address"):
        FileClient(address, None)


def test_the_path_of_the_address_is_kept(server: FileServer, tmp_path: Path) -> None:
    server.files[f"/mirror/tardis{PATH}"] = CONTENT
    for address in (f"{server.address}/mirror/tardis", f"{server.address}/mirror/tardis/"):
        target = tmp_path / f"{len(address)}.csv.gz"
        with contextlib.closing(FileClient(address, None)) as client:
            client.fetch(PATH, target, lambda have, total: None)
        assert target.read_bytes() == CONTENT


# ---- the command


def download(server: FileServer, tmp_path: Path, *options: str, env: dict[str, str] | None = None) -> Result:
    arguments = ["download", "--source", "tardis", "--lake", str(tmp_path / "lake"), *options]
    return CliRunner().invoke(app, arguments, env={"UQLOB_TARDIS": server.address, **(env or {})})


def serve(server: FileServer, name: str, day: str = "2026/01/01") -> None:
    stream = stream_of(20, "book")
    for kind, rows in (("incremental_book_L2", book_rows(stream)), ("trades", trade_rows(stream))):
        server.files[f"/v1/kraken/{kind}/{day}/{name}.csv.gz"] = gzip.compress(b"\n".join(rows) + b"\n")


def test_the_command_tries_both_spellings_skips_what_is_there_and_says_what_failed(server: FileServer, tmp_path: Path) -> None:
    serve(server, "XBT-USD")
    serve(server, "BTC-USD", "2026/02/01")
    chosen = ["--symbols", "BTC-USD,eth/usd", "--days", "first-of-month", "--from", "2026-01", "--to", "2026-02"]
    result = download(server, tmp_path, *chosen)
    assert result.exit_code == 1
    assert "4 of 8 files failed" in result.output
    assert "ETH-USD.csv.gz: the server answers 404 Not Found (no such file): the symbol or the day is not" in result.output
    names = [f"kraken_{kind}_2026-0{m}-01_BTC-USD.csv.gz" for kind in ("incremental_book_L2", "trades") for m in (1, 2)]
    assert files_in(tmp_path / "lake" / "downloads") == sorted(names)
    serve(server, "ETH-USD")
    serve(server, "ETH-USD", "2026/02/01")
    server.requests.clear()
    again = download(server, tmp_path, *chosen)
    assert again.exit_code == 0, again.output
    assert again.output.count("there already") == 4
    assert all("ETH-USD" in path for path in server.paths())
    assert "Next: uqlob import" in again.output


def test_a_key_from_the_environment_is_used_and_never_shown(server: FileServer, tmp_path: Path) -> None:
    serve(server, "ETH-USD", "2026/01/02")
    server.needs_key.update(server.files)
    chosen = ["--symbols", "ETH-USD", "--days", "all", "--from", "2026-01-02", "--to", "2026-01-02"]
    without = download(server, tmp_path, *chosen)
    assert without.exit_code == 1
    assert "TARDIS_API_KEY is not set. The first day of each month needs no key" in without.output
    wrong = download(server, tmp_path, *chosen, env={"TARDIS_API_KEY": "a-wrong-key"})
    assert "TARDIS_API_KEY is not valid for it" in wrong.output
    assert "a-wrong-key" not in wrong.output
    right = download(server, tmp_path, *chosen, env={"TARDIS_API_KEY": KEY})
    assert right.exit_code == 0, right.output
    assert KEY not in right.output


def test_no_more_files_are_fetched_at_once_than_asked(server: FileServer, tmp_path: Path) -> None:
    for month in range(1, 7):
        serve(server, "ETH-USD", f"2026/0{month}/01")
    result = download(server, tmp_path, "--symbols", "ETH-USD", "--from", "2026-01", "--to", "2026-06", "--parallel", "2")
    assert result.exit_code == 0, result.output
    assert len(server.requests) == 12
    assert server.most_busy <= 2


def test_options_that_make_no_sense_are_refused(server: FileServer, tmp_path: Path) -> None:
    good = {"--symbols": "ETH-USD", "--from": "2026-01", "--to": "2026-02"}
    for option, value, reason in (
        ("--symbols", "../etc", "is not a symbol"),
        ("--from", "January", "neither a month"),
        ("--to", "2025-12", "lies before"),
        ("--days", "some", "first-of-month, all"),
        ("--source", "nobody", "tardis"),
    ):
        options = [part for pair in {**good, option: value}.items() for part in pair]
        result = download(server, tmp_path, *options)
        assert result.exit_code == 2
        assert reason in " ".join(result.output.replace("│", " ").split())
    assert server.requests == []


def test_days_and_paths() -> None:
    assert days_between("2025-11", "2026-01", True) == [dt.date(2025, 11, 1), dt.date(2025, 12, 1), dt.date(2026, 1, 1)]
    assert len(days_between("2026-02", "2026-02", False)) == 28
    assert days_between("2026-01-15", "2026-02-10", True) == [dt.date(2026, 2, 1)]
    day = dt.date(2026, 1, 1)
    assert TardisFile("trades", "DOGE-USD", day).paths() == [
        "/v1/kraken/trades/2026/01/01/XDG-USD.csv.gz",
        "/v1/kraken/trades/2026/01/01/DOGE-USD.csv.gz",
    ]
    assert TardisFile("trades", "SOL-USD", day).paths() == ["/v1/kraken/trades/2026/01/01/SOL-USD.csv.gz"]
