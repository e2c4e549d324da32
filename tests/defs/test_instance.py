"""A Dagster instance belongs to one lake; the commands make it where it is not there and refuse another lake's."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from uqlob_pipeline.defs.instance import PROJECT, InstanceRefused, claim_instance, claim_profile, dagster_home, sole_ui

UQLOB = Path(sys.executable).with_name("uqlob")
SETTINGS = (PROJECT / "dagster_home" / "dagster.yaml").read_text()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "homes" / "own"))
    return tmp_path / "homes" / "own"


@pytest.fixture
def lakes(tmp_path: Path) -> tuple[Path, Path]:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    return first, second


def uqlob(*words: str, home: Path, lake: Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    own = {**os.environ, "UQLOB_PROFILE": "demo", "DAGSTER_HOME": str(home), "UQLOB_LAKE": str(lake), **environment}
    return subprocess.run([UQLOB, *words], env=own, capture_output=True, text=True, timeout=120, check=False)


def test_a_home_that_is_named_is_made_with_the_projects_settings(home: Path) -> None:
    assert dagster_home() == home
    assert (home / "dagster.yaml").read_text() == SETTINGS
    (home / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
    dagster_home()
    assert "concurrency" not in (home / "dagster.yaml").read_text()  # one's own settings are left alone


def test_a_home_that_cannot_be_made_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "file" / "home"))
    with pytest.raises(InstanceRefused, match=f"DAGSTER_HOME {tmp_path}/file/home cannot be made"):
        dagster_home()


def test_an_instance_belongs_to_the_lake_that_used_it_first(home: Path, lakes: tuple[Path, Path], tmp_path: Path) -> None:
    first, second = lakes
    claim_instance(first)
    claim_instance(first)
    (tmp_path / "link").symlink_to(first)
    claim_instance(tmp_path / "link")
    assert (home / ".lake").read_text() == f"{first}\n"
    with pytest.raises(InstanceRefused) as refused:
        claim_instance(second)
    assert str(refused.value) == (
        f"the Dagster instance in {home} belongs to the lake {first}, whose runs it would show as those of {second}: "
        f"give this lake an instance of its own, which is created if missing: export DAGSTER_HOME={tmp_path}/dagster_home"
    )
    assert (home / ".lake").read_text() == f"{first}\n"


def test_the_home_that_is_advised_is_never_the_one_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lakes) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "dagster_home"))
    claim_instance(lakes[0])
    with pytest.raises(InstanceRefused, match=f"export DAGSTER_HOME={tmp_path}/second_dagster_home$"):
        claim_instance(lakes[1])


def test_an_instance_whose_lake_is_gone_is_taken_over(home: Path, lakes: tuple[Path, Path]) -> None:
    first, second = lakes
    claim_instance(first)
    shutil.rmtree(first)
    claim_instance(second)
    assert (home / ".lake").read_text() == f"{second}\n"


@pytest.mark.parametrize("command", ["materialize", "demo", "ui"])
def test_the_commands_that_use_an_instance_refuse_that_of_another_lake(command: str, home: Path, lakes) -> None:
    claim_instance(lakes[0])
    done = uqlob(command, home=home, lake=lakes[1], COLUMNS="40")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1
    assert f"belongs to the lake {lakes[0]}" in done.stderr
    assert list(lakes[1].iterdir()) == []


def test_status_reads_any_lake_and_makes_no_instance(home: Path, lakes: tuple[Path, Path]) -> None:
    assert uqlob("status", home=home, lake=lakes[1]).returncode == 0
    assert not home.exists()


@pytest.mark.parametrize(("given", "used"), [({}, str(PROJECT / "dagster_home")), ({"DAGSTER_HOME": "/own"}, "/own")])
def test_make_keeps_the_home_of_the_environment(given: dict[str, str], used: str) -> None:
    outside = {name: value for name, value in os.environ.items() if name not in ("DAGSTER_HOME", "MAKEFLAGS", "MFLAGS")}
    probe = "probe:\n\t@echo $$DAGSTER_HOME"
    command = ["make", "--no-print-directory", "-f", "Makefile", "--eval", probe, "probe"]
    done = subprocess.run(command, env={**outside, **given}, cwd=PROJECT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == used


def test_an_instance_works_with_one_profile_and_refuses_another_of_the_same_name(home: Path, tmp_path: Path) -> None:
    text = (PROJECT / "uqlob_pipeline" / "config" / "profiles" / "demo.toml").read_text()
    same, other = tmp_path / "same.toml", tmp_path / "other.toml"
    same.write_text(f"# a copy\n{text}")
    other.write_text(text.replace("2026-01-18", "2026-01-20"))
    claim_profile("demo")
    claim_profile(str(same))  # the same settings in another file
    with pytest.raises(InstanceRefused) as refused:
        claim_profile(str(other))
    reason = str(refused.value)
    assert f"works with profile 'demo' of {same}, and {other} differs in splits.test.last" in reason
    assert f"UQLOB_PROFILE={same}" in reason
    assert f"delete {home / '.profile'}" in reason
    same.unlink()
    claim_profile(str(other))
    assert (home / ".profile").read_text() == f"{other}\n"


def test_a_terminal_with_another_profile_than_the_instance_is_refused_in_one_line(
    home: Path, lakes: tuple[Path, Path], tmp_path: Path
) -> None:
    claim_instance(lakes[0])
    claim_profile("demo")
    other = tmp_path / "other.toml"
    text = (PROJECT / "uqlob_pipeline" / "config" / "profiles" / "demo.toml").read_text()
    other.write_text(text.replace("2026-01-18", "2026-01-20"))
    done = uqlob("materialize", home=home, lake=lakes[0], UQLOB_PROFILE=str(other))
    assert done.returncode == 1
    assert "differs in splits.test.last" in done.stderr


def test_a_second_ui_of_an_instance_is_refused_with_the_address_of_the_first(home: Path) -> None:
    refusal = pytest.raises(InstanceRefused, match=r"running already .* open http://127.0.0.1:3000, or stop it")
    with sole_ui("http://127.0.0.1:3000"), refusal, sole_ui("http://127.0.0.1:3001"):
        pass
    with sole_ui("http://127.0.0.1:3001"):
        assert (home / ".ui").read_text() == "http://127.0.0.1:3001\n"
