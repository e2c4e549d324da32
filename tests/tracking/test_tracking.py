"""The outbox and a real SQLite MLflow store: every entry arrives once, and every run gets an end status."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tables.synthetic import profile as synthetic_profile
from uqlob_models.training_result import TrainingInterrupted
from uqlob_pipeline.lake.file_hashes import file_hash
from uqlob_pipeline.lake.layout import Lake, ModelKey
from uqlob_pipeline.tracking.client import Tracking, flattened, without_user
from uqlob_pipeline.tracking.mlflow_store import ENDED_TAG
from uqlob_pipeline.tracking.outbox import Outbox, RunIdentity, open_outbox

UNREACHABLE = "http://127.0.0.1:9"  # the discard port: no server answers


@pytest.fixture(scope="module")
def lake(tmp_path_factory) -> Lake:
    return Lake(tmp_path_factory.mktemp("lake"))


@pytest.fixture(scope="module")
def tracking(lake) -> Tracking:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        return Tracking(lake, synthetic_profile())


def find_run(tracking: Tracking, identity: RunIdentity):
    (found,) = tracking.store().search(identity.tags())
    return found


def test_mlflow_telemetry_is_disabled(tmp_path):
    """MLflow disables telemetry itself under pytest and in CI, so the subprocess runs without their variables."""
    program = (
        "from tests.tables.synthetic import profile; from uqlob_pipeline.lake.layout import Lake\n"
        "from uqlob_pipeline.tracking.client import Tracking\n"
        f"Tracking(Lake({str(tmp_path)!r}), profile()).store()\n"
        "from mlflow.telemetry import get_telemetry_client; print(get_telemetry_client())"
    )
    outside = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "MLFLOW", "GITHUB"))}
    environment = {name: value for name, value in outside.items() if name not in ("CI", "DO_NOT_TRACK")}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "None\n"


def test_an_outbox_keeps_a_rejected_entry_and_all_after_it_in_order(tmp_path):
    outbox = Outbox(tmp_path / "a.jsonl", RunIdentity("a", "stage", "a"))
    for number in range(4):
        outbox.add({"op": "metrics", "number": number})
    taken: list[int] = []

    def reject_the_third(entry):
        if entry["number"] == 2:
            raise ConnectionError("unreachable")
        taken.append(entry["number"])

    with pytest.raises(ConnectionError):
        outbox.deliver(reject_the_third)
    assert taken == [0, 1]
    again = open_outbox(outbox.path)
    assert again.identity == outbox.identity
    again.deliver(lambda entry: taken.append(entry["number"]))
    assert taken == [0, 1, 2, 3]
    assert not outbox.path.exists()


def test_a_truncated_last_line_is_skipped(tmp_path):
    outbox = Outbox(tmp_path / "a.jsonl", RunIdentity("a", "stage", "a"))
    outbox.add({"op": "tags", "values": {}})
    with open(outbox.path, "a") as file:
        file.write('{"op": "metr')
    assert [entry["op"] for entry in outbox.entries()] == ["tags"]


@pytest.mark.parametrize("length", [1, 7, -1])
def test_an_entry_after_a_truncated_line_is_kept_and_delivered(tmp_path, length):
    """Whether the first or the last line was truncated by a crash or a full disk."""
    identity = RunIdentity("a", "stage", "a", parent=RunIdentity("p", "model", "a"))
    outbox = Outbox(tmp_path / "a.jsonl", identity)
    outbox.add({"op": "tags", "number": 1})
    whole = outbox.path.read_text()
    outbox.path.write_text(whole[:length])
    again = Outbox(outbox.path, identity)
    again.add({"op": "tags", "number": 2})
    again.add({"op": "tags", "number": 3})
    found = open_outbox(outbox.path)
    assert found is not None
    assert found.identity == identity
    taken: list[int] = []
    found.deliver(lambda entry: taken.append(entry["number"]))
    assert taken == [2, 3]  # adding the truncated entry never succeeded


def test_a_long_truncated_line_is_removed_completely(tmp_path):
    outbox = Outbox(tmp_path / "a.jsonl", RunIdentity("a", "stage", "a"))
    outbox.add({"op": "tags", "number": 1})
    with open(outbox.path, "a") as file:
        file.write('{"op": "epochs", "epochs": "' + "x" * 200_000)
    outbox.add({"op": "tags", "number": 2})
    assert [json.loads(line)["op"] for line in outbox.path.read_text().splitlines()] == ["run", "tags", "tags"]


def test_an_unreadable_outbox_is_counted_and_its_path_is_logged(tmp_path):
    tracking = Tracking(Lake(tmp_path), synthetic_profile(), uri=f"sqlite:///{tmp_path / 'mlflow.db'}")
    run = tracking.open(tracking.stage(ModelKey("BTC-USD", 5), "encoder", "v1"))
    run.metrics({"loss": 1.0})
    run.outbox.path.write_text(run.outbox.path.read_text()[:20])
    lines: list[str] = []
    assert tracking.flush_pending(lines.append) == 1
    assert str(run.outbox.path) in lines[0]
    assert "truncated" in lines[0]
    run.metrics({"loss": 2.0})
    assert tracking.flush_pending() == 0
    assert find_run(tracking, run.outbox.identity).data.metrics == {"loss": 2.0}


def test_each_identity_has_one_run_below_one_parent_per_model(tracking):
    key = ModelKey("BTC-USD", 5)
    for stage in ("encoder", "uq_regression"):
        for _ in range(2):  # as when it is materialised again
            with tracking.start_run(tracking.stage(key, stage, "v1")):
                pass
    runs = tracking.store().search({"uqlob.key": "BTC-USD 5s"})
    assert sorted(run.info.run_name for run in runs) == ["BTC-USD 5s", "BTC-USD 5s encoder", "BTC-USD 5s uq_regression"]
    parent = find_run(tracking, tracking.model(key))
    children = [run for run in runs if run.info.run_id != parent.info.run_id]
    assert {run.data.tags["mlflow.parentRunId"] for run in children} == {parent.info.run_id}
    assert {run.info.status for run in runs} == {"FINISHED"}
    page = f"{tracking.ui}/#/experiments/{parent.info.experiment_id}/runs/{parent.info.run_id}"
    assert tracking.url(tracking.model(key)) == f"{page}?workflowType=machine_learning"  # the mode that training runs need


def test_a_run_records_how_it_ended_until_it_is_resumed(tracking):
    identity = tracking.stage(ModelKey("BTC-USD", 10), "encoder", "v1")

    def ends(error: Exception) -> None:
        with tracking.start_run(identity):
            found = find_run(tracking, identity)
            assert found.info.status == "RUNNING"
            assert ENDED_TAG not in found.data.tags
            raise error

    with pytest.raises(TrainingInterrupted):
        ends(TrainingInterrupted(7, Path("somewhere")))
    ended = find_run(tracking, identity)
    assert ended.info.status == "KILLED"
    assert "step 7" in ended.data.tags[ENDED_TAG]
    with pytest.raises(ZeroDivisionError):
        ends(ZeroDivisionError())
    assert find_run(tracking, identity).info.status == "FAILED"
    with tracking.start_run(identity):
        pass
    finished = find_run(tracking, identity)
    assert finished.info.status == "FINISHED"
    assert ENDED_TAG not in finished.data.tags


def test_a_run_of_a_dead_process_is_marked_killed_when_a_run_on_newer_data_starts(tracking):
    key = ModelKey("BTC-USD", 15)
    dead = tracking.open(tracking.stage(key, "encoder", "v1"))
    dead.add("start")
    dead.deliver()
    assert find_run(tracking, dead.outbox.identity).info.status == "RUNNING"
    with tracking.start_run(tracking.stage(key, "encoder", "v2")):
        pass
    marked = find_run(tracking, dead.outbox.identity)
    assert marked.info.status == "KILLED"
    assert "died" in marked.data.tags[ENDED_TAG]


def test_many_long_and_changed_parameters_and_undefined_metrics_are_accepted(tracking):
    run = tracking.open(tracking.stage(ModelKey("BTC-USD", 30), "encoder", "v1"))
    section = {"section": {f"parameter_{number}": number for number in range(230)}, "long": "x" * 9000, "device": "cpu"}
    run.params(section)
    run.params({**section, "device": "cuda"})
    run.metrics({"a": 1.5, "undefined": math.nan}, step=3)
    assert run.deliver(now=True)
    logged = find_run(tracking, run.outbox.identity).data
    assert len(logged.params) == 232
    assert logged.params["section.parameter_229"] == "229"
    assert len(logged.params["long"]) == 6000
    assert logged.params["device"] == "cpu"
    assert logged.tags["changed.device"] == "cuda"
    assert logged.metrics["a"] == 1.5
    assert math.isnan(logged.metrics["undefined"])


def test_entries_for_an_unreachable_store_are_delivered_later(lake, tracking):
    lines: list[str] = []
    unreachable = Tracking(lake, tracking.profile, uri=UNREACHABLE)
    identity = unreachable.stage(ModelKey("ETH-USD", 5), "uq_regression", "v1")
    outbox = lake.model("uq_regression", ModelKey("ETH-USD", 5)) / "v1-tracking.jsonl"
    with unreachable.start_run(identity, outbox, lines.append) as run:
        for epoch in (1, 2):
            run.metrics({"loss": 1 / epoch, "epoch": epoch}, step=epoch)
            run.deliver()
        assert run.url is None
    assert "upload to MLflow" in lines[0]
    assert len(lines) <= 3  # it does not retry at every epoch
    assert tracking.pending() == [outbox]
    assert tracking.flush_pending() == 0
    assert tracking.pending() == []
    logged = find_run(tracking, identity)
    assert logged.info.status == "FINISHED"
    assert [point.value for point in tracking.store().client.get_metric_history(logged.info.run_id, "loss")] == [1.0, 0.5]


SECRET = "http://someone:s3cr3t@127.0.0.1:9/base"  # an address with a user, of a server that does not answer


def test_a_password_in_the_address_is_not_logged(tmp_path, tracking):
    lines: list[str] = []
    unreachable = Tracking(Lake(tmp_path), tracking.profile, uri=SECRET)
    run = unreachable.open(unreachable.stage(ModelKey("ETH-USD", 5), "encoder", "v1"), log=lines.append)
    run.tags({"a": 1})
    assert not run.deliver(now=True)
    assert "upload to MLflow at http://127.0.0.1:9/base failed" in lines[0]
    assert "someone" not in lines[0]
    assert "s3cr3t" not in lines[0]


def test_a_password_in_the_address_is_not_stored_in_the_lake(tmp_path, tracking):
    lake = Lake(tmp_path)
    named = Tracking(lake, tracking.profile, uri=SECRET)
    named._store = Tracking(lake, tracking.profile).store()  # stands for a server that knows the password
    identity = named.stage(ModelKey("ETH-USD", 5), "encoder", "v1")
    run = named.open(identity)
    run.tags({"a": 1})
    assert run.deliver(now=True)
    named.mark_complete(run, "v1")
    written = [text for path in (tmp_path / "tracking").glob("*") if (text := path.read_text())]
    assert len(written) == 3  # the links of the stage and of its model, and that the stage is complete
    assert not [text for text in written if "s3cr3t" in text or "someone" in text]
    assert named.is_complete(identity, "v1")
    assert run.url is not None


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("https://user:pw@host/base", "https://host/base"),
        ("postgresql+psycopg2://user:p%40w@host:5432/mlflow", "postgresql+psycopg2://host:5432/mlflow"),
        ("https://token@host", "https://host"),
        ("https://host/a@b", "https://host/a@b"),
        ("sqlite:////srv/a@b/mlflow.db", "sqlite:////srv/a@b/mlflow.db"),
        ("", ""),
    ],
)
def test_an_address_is_shown_without_its_user(uri, shown):
    assert without_user(uri) == shown


def test_epochs_missing_from_mlflow_are_logged_at_the_end_and_no_epoch_twice(tracking):
    run = tracking.open(tracking.stage(ModelKey("ETH-USD", 10), "encoder", "v1"))
    epochs = [{"epoch": float(number), "loss": 1 / number} for number in (1, 2, 3)]
    run.metrics(epochs[0], step=1)
    run.add("epochs", epochs=epochs, time=1)
    assert run.deliver(now=True)
    logged = find_run(tracking, run.outbox.identity)
    history = tracking.store().client.get_metric_history(logged.info.run_id, "loss")
    assert sorted((point.step, point.value) for point in history) == [(1, 1.0), (2, 0.5), (3, 1 / 3)]


def test_delivering_twice_after_a_crash_changes_nothing(tracking, tmp_path):
    identity = tracking.stage(ModelKey("ETH-USD", 15), "encoder", "v1")
    path = tmp_path / "kept.jsonl"
    artefact = tmp_path / "table.csv"
    artefact.write_text("a,b\n1,2\n")
    run = tracking.open(identity, path)
    run.metrics({"loss": 0.25}, step=1)
    run.artifact(artefact, "tables")
    run.add("inputs", datasets=[{"name": "d", "digest": "1", "source": "{}", "profile": "{}", "context": "training"}])
    kept = path.read_text()
    assert run.deliver(now=True)
    path.write_text(kept)
    assert run.deliver(now=True)
    logged = find_run(tracking, identity)
    client = tracking.store().client
    assert len(client.get_metric_history(logged.info.run_id, "loss")) == 1
    assert len(logged.inputs.dataset_inputs) == 1
    assert [file.path for file in client.list_artifacts(logged.info.run_id, "tables")] == ["tables/table.csv"]


def test_artifacts_replaced_by_a_later_training_are_not_logged_to_the_earlier_run(tracking, tmp_path):
    """Its entry was queued while a fresh training wrote to the same directory."""
    run = tracking.open(tracking.stage(ModelKey("ETH-USD", 30), "encoder", "v1"), tmp_path / "a.jsonl")
    for name in ("kept", "replaced"):
        weights = tmp_path / name / "weights.safetensors"
        weights.parent.mkdir()
        weights.write_bytes(b"first")
        run.artifact(weights, name, weights={str(weights): file_hash(weights)})
    weights.write_bytes(b"second")
    assert run.deliver(now=True)
    logged = find_run(tracking, run.outbox.identity)
    assert [file.path for file in tracking.store().client.list_artifacts(logged.info.run_id)] == ["kept"]


def test_processes_that_start_together_create_one_store_one_experiment_and_one_parent(tmp_path):
    code = (
        "import sys; from tests.tables.synthetic import profile; from uqlob_pipeline.lake.layout import Lake, ModelKey;"
        "from uqlob_pipeline.tracking.client import Tracking; lines = []; t = Tracking(Lake(sys.argv[1]), profile());"
        "run = t.open(t.stage(ModelKey('BTC-USD', 5), sys.argv[2], 'v'), log=lines.append); run.metrics({'a': 1.0});"
        "ok = run.deliver(now=True); print(lines); sys.exit(0 if ok else 1)"
    )
    started = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path), stage], stdout=subprocess.PIPE, text=True)
        for stage in ("encoder", "uq_regression")
    ]
    assert [(process.wait(timeout=240), process.stdout.read()) for process in started] == [(0, "[]\n")] * 2
    tracking = Tracking(Lake(tmp_path), synthetic_profile())
    assert [e.name for e in tracking.store().client.search_experiments()].count("uqlob made-up") == 1
    assert len(tracking.store().search({"uqlob.kind": "model"})) == 1


def test_nested_settings_become_dotted_names():
    assert flattened({"a": {"b": {"c": 1}}, "d": (1, 2)}) == {"a.b.c": 1, "d": (1, 2)}
    assert json.dumps(flattened({}), sort_keys=True) == "{}"
