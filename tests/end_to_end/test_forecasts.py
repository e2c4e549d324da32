"""Forecasts of new days: the models in use, no other split or profile, and the same numbers as predictions and served model."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from tests.end_to_end import tiny_market
from tests.end_to_end.conftest import copy_of
from tests.end_to_end.tiny_market import DAYS, HOURS, KEY, SYMBOL, day
from uqlob_models.checkpoints import load_members
from uqlob_models.evaluation import headline
from uqlob_models.prediction import predict_instances, predict_regression
from uqlob_pipeline.cli.execution import materialize_choice
from uqlob_pipeline.cli.planning import Choice, runs_for, table_groups
from uqlob_pipeline.cli.predict import FORECAST_ASSETS
from uqlob_pipeline.cli.simulate import next_days
from uqlob_pipeline.defs.build_defs import build_defs
from uqlob_pipeline.lake.available_days import recorded_partitions
from uqlob_pipeline.lake.layout import Lake
from uqlob_pipeline.lake.staleness import NotReady, staleness_by_table, why_stale
from uqlob_pipeline.market.simulator import MarketSettings, simulate_day
from uqlob_pipeline.models.forecasts import day_windows, published, trained_heads, write_forecasts
from uqlob_pipeline.models.predictions import head_columns
from uqlob_pipeline.models.serving import served_instances

NEW = day(DAYS)  # after the profile's test split


def rows(path) -> dict[tuple[int, int], dict]:
    return {(row["horizon_s"], row["window"]): row for row in pq.read_table(path, partitioning=None).to_pylist()}


def planned(lake: Lake, profile, choice: Choice) -> list[tuple[list[str], list[str]]]:
    groups = table_groups(choice)
    return [(run.tables, [str(key) for key in run.keys]) for group in groups for run in runs_for(group, lake, profile, choice)]


@pytest.fixture(scope="module")
def lake(trained, tmp_path_factory) -> Lake:
    """The trained lake with one more recorded day."""
    made = copy_of(trained[0], tmp_path_factory.mktemp("new") / "lake")
    simulate_day(made.root, SYMBOL, NEW.date, MarketSettings(seed=3, hours=HOURS))
    return made


def test_a_test_day_is_forecast_as_in_predictions(lake, profile):
    done = write_forecasts(lake, profile, day(DAYS - 1), print)
    found = rows(lake.forecasts(day(DAYS - 1)))
    assert done.rows == len(found)
    assert done.models == [str(KEY)]
    expected = [
        row
        for row in pq.read_table(lake.predictions(KEY), partitioning=None).to_pylist()
        if row["split"] == "test" and (KEY.horizon_s, row["window"]) in found
    ]
    assert len(expected) > 50
    for row in expected:
        forecast = found[KEY.horizon_s, row["window"]]
        assert (forecast["t"], forecast["label"]) == (row["t"], row["label"])
        for column, own in (("raw_mu", "mu"), ("raw_sigma", "sigma"), ("p_up", "p_up"), ("y", "y")):
            rounding = 1e-6 * row["sigma"]  # of float32, for a mean that is small beside the sigma
            assert forecast[column] == pytest.approx(row[own], rel=1e-5, abs=rounding), column
        assert forecast["lower_95"] <= forecast["lower_68"] <= forecast["upper_68"] <= forecast["upper_95"]
    assert len(found) > len(expected), "windows whose outcome is not known are forecast too"


def test_published_forecasts_know_no_outcome_before_its_time(lake, profile, tmp_path):
    """Outcomes of the day after a moment, changed or deleted, change no published forecast before it is realised."""
    heads, test_day = trained_heads(lake, KEY), day(DAYS - 1)
    dataset = day_windows(lake, profile, KEY, test_day)
    targets = dataset.targets(None, profile.training.head.context, labelled=False)
    columns = {"t": dataset.t_end[targets], "y": dataset.y[targets], **head_columns(profile, heads, dataset, targets)}
    before = published(lake, profile, KEY, pa.table(columns))
    cut = len(targets) // 2
    later = pa.table(columns | {"y": np.concatenate([columns["y"][:cut], columns["y"][cut:] * 50 + 1000])})
    after = published(lake, profile, KEY, later)
    known_from = columns["t"][cut] + profile.labels.latency_us * 1000 + KEY.horizon_s * 10**9
    early = columns["t"] < known_from
    assert np.array_equal(before["sigma"].to_numpy()[early], after["sigma"].to_numpy()[early])
    assert not np.array_equal(before["sigma"].to_numpy(), after["sigma"].to_numpy()), "realised outcomes do count"


def test_only_a_new_day_is_computed_and_nothing_else_becomes_stale(lake, profile, instance):
    choice = Choice(assets=FORECAST_ASSETS, first=profile.splits.test.first)
    write_forecasts(lake, profile, day(DAYS - 1), print)
    daily = ["book_events", "window_prices", "event_features", "window_labels"]
    assert planned(lake, profile, choice) == [(daily, [str(NEW)]), (["forecasts"], [str(NEW)])]
    assert materialize_choice(build_defs(profile, lake), lake, profile, choice, print, instance) == 2
    assert planned(lake, profile, choice) == []
    assert why_stale(lake, profile, "forecasts", NEW) == ""
    stale = staleness_by_table(lake, profile, recorded_partitions(lake, profile))
    assert not any(why for reasons in stale.values() for why in reasons.values())


def test_the_command_forecasts_what_is_missing_and_leaves_the_rest_alone(lake, tmp_path):
    settings = tiny_market.write_profile(tmp_path)
    (tmp_path / "dagster_home").mkdir()
    environment = {**os.environ, "DAGSTER_HOME": str(tmp_path / "dagster_home")}

    def predict(*options: str) -> subprocess.CompletedProcess[str]:
        place = ["--lake", str(lake.root), "--profile", str(settings)]
        command = [sys.executable, "-m", "uqlob_pipeline.cli", "predict", *place, *options]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    lake.forecasts(NEW).unlink(missing_ok=True)
    first = predict()
    assert first.returncode == 0, first.stderr
    count = pq.read_metadata(lake.forecasts(NEW)).num_rows
    assert f"{NEW}  {count:,} forecasts  {lake.forecasts(NEW)}" in first.stdout
    written = lake.forecasts(NEW).stat().st_mtime_ns
    assert predict().returncode == 0
    assert lake.forecasts(NEW).stat().st_mtime_ns == written, "a day that is forecast already is left alone"
    refused = predict("--from", str(day(0).date))
    assert refused.returncode == 2
    assert "learnt from" in refused.stderr


def test_a_day_that_the_models_learnt_from_is_not_forecast(lake, profile):
    with pytest.raises(NotReady, match="the models learnt from this day"):
        write_forecasts(lake, profile, day(0), print)
    assert planned(lake, profile, Choice(assets=("forecasts",), last=day(2).date)) == []


def test_without_a_model_the_remedy_is_named(ingested, profile):
    with pytest.raises(NotReady, match="no model of BTC-USD is trained"):
        write_forecasts(ingested, profile, day(DAYS - 1), print)


def test_instances_for_the_served_model_are_those_of_the_forecast(lake, profile):
    test_day = day(DAYS - 1)
    instances = served_instances(lake, profile, KEY, test_day, last=3)
    size, length = profile.training.head.context, profile.features.window
    assert instances["tokens"].shape == (3, size + 1, length)
    assert instances["continuous"].shape == (3, size + 1, 7, length)
    assert instances["context_displacement"].shape == (3, size)
    assert np.isfinite(instances["context_displacement"]).all()
    dataset = day_windows(lake, profile, KEY, test_day)
    last = dataset.targets(None, size, labelled=False)[-3:]
    members = load_members(trained_heads(lake, KEY)["uq_regression"].members)
    tensors = [torch.from_numpy(instances[name]) for name in ("tokens", "continuous", "context_displacement")]
    served = predict_instances(members, *tensors)
    assert served.mean == pytest.approx(predict_regression(members, dataset, last).mean, rel=1e-4)


def test_the_market_of_a_profile_goes_on_after_its_last_recorded_day(tmp_path, profile):
    lake = Lake(tmp_path / "lake")
    assert next_days(lake, profile, 1) == [(SYMBOL, profile.first_day)]
    for number in (0, 2):
        lake.raw("level3", day(number)).mkdir(parents=True)
        (lake.raw("level3", day(number)) / "a.jsonl").write_text("")
    assert next_days(lake, profile, 2) == [(SYMBOL, day(3).date), (SYMBOL, day(4).date)]
    assert profile.simulation.hours == tiny_market.HOURS


def examples(document: str) -> list[str]:
    """The Python examples of a document."""
    text = (Path(__file__).parents[2] / document).read_text()
    return re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)


def run_example(example: str, lake: Lake, directory: Path) -> list[str]:
    """What an example prints for this lake."""
    settings = tiny_market.write_profile(directory)
    environment = {**os.environ, "UQLOB_LAKE": str(lake.root), "UQLOB_PROFILE": str(settings)}
    environment.pop("MLFLOW_TRACKING_URI", None)
    done = subprocess.run([sys.executable, "-c", example], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_the_best_model_is_found_as_documented(lake, profile, tmp_path):
    (example,) = examples("docs/operations.md")
    header, *rows_printed = run_example(example, lake, tmp_path)
    assert header.split() == ["params.symbol", "params.horizon_s", "metrics.regression/directional_f1_top10"]
    row, *_ = rows_printed  # the best first
    scores = headline(pq.read_table(lake.by_model("gated_evaluation", KEY), partitioning=None))
    assert row.split()[1:3] == [SYMBOL, "5"]
    assert float(row.split()[3]) == pytest.approx(scores["regression/directional_f1_top10"], abs=1e-4)


def test_the_example_of_the_documentation_runs_as_printed(lake, profile, tmp_path):
    header, *answers = run_example(examples("docs/serving.md")[0], lake, tmp_path)
    assert header.split()[:2] == ["mean", "std"]
    found = pq.read_table(
        lake.forecasts([made for made in lake.recorded_days() if lake.forecasts(made).is_file()][-1]), partitioning=None
    )
    for place, column in ((1, "mu"), (2, "sigma"), (header.split().index("raw_mean") + 1, "raw_mu")):
        served = [float(answer.split()[place]) for answer in answers]
        assert served == pytest.approx(found[column].to_pylist()[-3:], rel=2e-3, abs=1e-4), column


def test_the_example_of_the_readme_gives_the_last_forecasts_of_the_day(lake, profile, tmp_path):
    new = day(DAYS - 1)
    write_forecasts(lake, profile, new, print)
    (example,) = examples("README.md")
    here = example.replace("date(2026, 1, 21)", f"date({new.date:%Y, %-m, %-d})").replace("-demo@", f"-{profile.name}@")
    printed = {words[0]: words[1:] for line in run_example(here, lake, tmp_path) if (words := line.split())}
    assert set(printed["class_name"]) <= {"down", "stationary", "up"}
    published = rows(lake.forecasts(new))
    expected = [published[key]["mu"] for key in sorted(key for key in published if key[0] == KEY.horizon_s)][-3:]
    assert [float(word) for word in printed["mean"]] == pytest.approx(expected, rel=2e-3, abs=1e-4)


@pytest.fixture
def served_model(lake, tmp_path) -> Iterator[str]:
    """`mlflow models serve` of the regression model in use; its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{probe.getsockname()[1]}"
    words = ["models", "serve", "--env-manager", "local", "--host", "127.0.0.1", "--port", address.rpartition(":")[2]]
    command = [Path(sys.executable).parent / "mlflow", *words, "-m", f"models:/uqlob-{SYMBOL}-5s-regression-tiny@in_use"]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # as activated: MLflow looks for uvicorn there
    environment = {**os.environ, "MLFLOW_TRACKING_URI": f"sqlite:///{lake.root}/mlflow/mlflow.db", "PATH": path}
    with open(log := tmp_path / "serve.log", "w") as out:
        server = subprocess.Popen(command, env=environment, stdout=out, stderr=out, start_new_session=True)
    try:
        until = time.monotonic() + 300
        while "Application startup complete" not in log.read_text():
            assert server.poll() is None, log.read_text()
            assert time.monotonic() < until, log.read_text()
            time.sleep(0.3)
        yield address
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGTERM)
        server.wait(60)


def test_the_server_of_the_documentation_answers_with_the_forecasts_and_refuses_with_the_reason(
    lake, profile, tmp_path, served_model
):
    write_forecasts(lake, profile, day(DAYS - 1), print)
    request = "\n".join(examples("docs/serving.md")).replace("http://127.0.0.1:5001", served_model)
    header, *lines = run_example(request, lake, tmp_path)
    table, answers = [line.split() for line in lines[:3]], [line.split() for line in lines[3:]]
    columns = ["class_name", "mean", "lower_68", "upper_68", "acts"]
    for row, answer in zip(table, answers, strict=True):
        in_process = [row[1 + header.split().index(name)] for name in columns]
        assert (answer[0], answer[4]) == (in_process[0], in_process[4])
        assert [float(word) for word in answer[1:4]] == pytest.approx([float(word) for word in in_process[1:4]], rel=1e-5)

    instances = served_instances(lake, profile, KEY, day(DAYS - 1), last=1)
    instances["tokens"][0, 0, 0] = 10**6
    body = json.dumps({"inputs": {name: values.tolist() for name, values in instances.items()}}).encode()
    wrong = urllib.request.Request(f"{served_model}/invocations", body, {"Content-Type": "application/json"})
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(wrong, timeout=60)
    assert refused.value.code == 400
    assert "token" in refused.value.read().decode()
