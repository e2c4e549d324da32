"""The journal and the MLflow store behind it: nothing lost, nothing twice, no run left unmarked. Real SQLite store."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.features.synthetic import profile as made_up_profile
from uqlob_models.outcomes import TrainingInterrupted
from uqlob_pipeline.lake import Lake, ModelKey, file_hash
from uqlob_pipeline.tracking import Tracking, flattened
from uqlob_pipeline.tracking_journal import Journal, RunIdentity, open_journal
from uqlob_pipeline.tracking_store import ENDED_TAG

NOWHERE = "http://127.0.0.1:9"  # the discard port: nobody answers


@pytest.fixture(scope="module")
def lake(tmp_path_factory) -> Lake:
    return Lake(tmp_path_factory.mktemp("lake"))


@pytest.fixture(scope="module")
def tracking(lake) -> Tracking:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        return Tracking(lake, made_up_profile())


def the_run(tracking: Tracking, identity: RunIdentity):
    (found,) = tracking.store().search(identity.tags())
    return found


def test_mlflow_sends_nothing_home_unless_asked_to(tmp_path):
    """MLflow is silent under pytest and in CI: asked as a person's terminal would."""
    program = (
        "from tests.features.synthetic import profile; from uqlob_pipeline.lake import Lake\n"
        "from uqlob_pipeline.tracking import Tracking\n"
        f"Tracking(Lake({str(tmp_path)!r}), profile()).store()\n"
        "from mlflow.telemetry import get_telemetry_client; print(get_telemetry_client())"
    )
    outside = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "MLFLOW", "GITHUB"))}
    environment = {name: value for name, value in outside.items() if name not in ("CI", "DO_NOT_TRACK")}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "None\n"


def test_a_journal_keeps_what_is_refused_and_all_behind_it_in_order(tmp_path):
    journal = Journal(tmp_path / "a.jsonl", RunIdentity("a", "stage", "a"))
    for number in range(4):
        journal.add({"op": "metrics", "number": number})
    taken: list[int] = []

    def refuse_the_third(entry):
        if entry["number"] == 2:
            raise ConnectionError("away")
        taken.append(entry["number"])

    with pytest.raises(ConnectionError):
        journal.deliver(refuse_the_third)
    assert taken == [0, 1]
    again = open_journal(journal.path)
    assert again.identity == journal.identity
    again.deliver(lambda entry: taken.append(entry["number"]))
    assert taken == [0, 1, 2, 3]
    assert not journal.path.exists()


def test_a_line_cut_short_by_a_crash_does_not_hold_up_the_others(tmp_path):
    journal = Journal(tmp_path / "a.jsonl", RunIdentity("a", "stage", "a"))
    journal.add({"op": "tags", "values": {}})
    with open(journal.path, "a") as file:
        file.write('{"op": "metr')
    assert [entry["op"] for entry in journal.entries()] == ["tags"]


@pytest.mark.parametrize("torn", [1, 7, -1])
def test_an_entry_after_a_line_cut_short_is_kept_and_delivered(tmp_path, torn):
    """Wherever a crash or a full disk cut the file: in its first line, or in its last."""
    identity = RunIdentity("a", "stage", "a", parent=RunIdentity("p", "model", "a"))
    journal = Journal(tmp_path / "a.jsonl", identity)
    journal.add({"op": "tags", "number": 1})
    whole = journal.path.read_text()
    journal.path.write_text(whole[:torn])
    again = Journal(journal.path, identity)
    again.add({"op": "tags", "number": 2})
    again.add({"op": "tags", "number": 3})
    found = open_journal(journal.path)
    assert found is not None
    assert found.identity == identity
    taken: list[int] = []
    found.deliver(lambda entry: taken.append(entry["number"]))
    assert taken == [2, 3]  # the one cut short was never promised


def test_a_long_line_cut_short_is_cleared_away_whole(tmp_path):
    journal = Journal(tmp_path / "a.jsonl", RunIdentity("a", "stage", "a"))
    journal.add({"op": "tags", "number": 1})
    with open(journal.path, "a") as file:
        file.write('{"op": "epochs", "epochs": "' + "x" * 200_000)
    journal.add({"op": "tags", "number": 2})
    assert [json.loads(line)["op"] for line in journal.path.read_text().splitlines()] == ["run", "tags", "tags"]


def test_a_journal_that_cannot_be_read_is_counted_and_named(tmp_path):
    tracking = Tracking(Lake(tmp_path), made_up_profile(), uri=f"sqlite:///{tmp_path / 'mlflow.db'}")
    run = tracking.open(tracking.stage(ModelKey("BTC-USD", 5), "encoder", "v1"))
    run.metrics({"loss": 1.0})
    run.journal.path.write_text(run.journal.path.read_text()[:20])
    said: list[str] = []
    assert tracking.flush_pending(said.append) == 1
    assert str(run.journal.path) in said[0]
    assert "cut short" in said[0]
    run.metrics({"loss": 2.0})
    assert tracking.flush_pending() == 0
    assert the_run(tracking, run.journal.identity).data.metrics == {"loss": 2.0}


def test_one_run_an_identity_below_one_parent_a_model(tracking):
    key = ModelKey("BTC-USD", 5)
    for stage in ("encoder", "uq_regression"):
        for _ in range(2):  # the second time is a materialisation again
            with tracking.under_way(tracking.stage(key, stage, "v1")):
                pass
    runs = tracking.store().search({"uqlob.key": "BTC-USD 5s"})
    assert sorted(run.info.run_name for run in runs) == ["BTC-USD 5s", "BTC-USD 5s encoder", "BTC-USD 5s uq_regression"]
    parent = the_run(tracking, tracking.model(key))
    children = [run for run in runs if run.info.run_id != parent.info.run_id]
    assert {run.data.tags["mlflow.parentRunId"] for run in children} == {parent.info.run_id}
    assert {run.info.status for run in runs} == {"FINISHED"}
    assert (
        tracking.url(tracking.model(key)) == f"{tracking.ui}/#/experiments/{parent.info.experiment_id}/runs/{parent.info.run_id}"
    )


def test_a_run_says_how_it_ended_and_forgets_it_when_it_goes_on(tracking):
    identity = tracking.stage(ModelKey("BTC-USD", 10), "encoder", "v1")

    def ends(error: Exception) -> None:
        with tracking.under_way(identity):
            found = the_run(tracking, identity)
            assert found.info.status == "RUNNING"
            assert ENDED_TAG not in found.data.tags
            raise error

    with pytest.raises(TrainingInterrupted):
        ends(TrainingInterrupted(7, Path("somewhere")))
    ended = the_run(tracking, identity)
    assert ended.info.status == "KILLED"
    assert "step 7" in ended.data.tags[ENDED_TAG]
    with pytest.raises(ZeroDivisionError):
        ends(ZeroDivisionError())
    assert the_run(tracking, identity).info.status == "FAILED"
    with tracking.under_way(identity):
        pass
    finished = the_run(tracking, identity)
    assert finished.info.status == "FINISHED"
    assert ENDED_TAG not in finished.data.tags


def test_a_run_whose_process_died_is_marked_when_its_data_has_moved_on(tracking):
    key = ModelKey("BTC-USD", 15)
    dead = tracking.open(tracking.stage(key, "encoder", "v1"))
    dead.add("start")
    dead.deliver()
    assert the_run(tracking, dead.journal.identity).info.status == "RUNNING"
    with tracking.under_way(tracking.stage(key, "encoder", "v2")):
        pass
    marked = the_run(tracking, dead.journal.identity)
    assert marked.info.status == "KILLED"
    assert "died" in marked.data.tags[ENDED_TAG]


def test_many_long_and_changing_parameters_and_undefined_metrics_are_taken(tracking):
    run = tracking.open(tracking.stage(ModelKey("BTC-USD", 30), "encoder", "v1"))
    section = {"section": {f"parameter_{number}": number for number in range(230)}, "long": "x" * 9000, "device": "cpu"}
    run.params(section)
    run.params({**section, "device": "cuda"})
    run.metrics({"a": 1.5, "undefined": math.nan}, step=3)
    assert run.deliver(now=True)
    told = the_run(tracking, run.journal.identity).data
    assert len(told.params) == 232
    assert told.params["section.parameter_229"] == "229"
    assert len(told.params["long"]) == 6000
    assert told.params["device"] == "cpu"
    assert told.tags["changed.device"] == "cuda"
    assert told.metrics["a"] == 1.5
    assert math.isnan(told.metrics["undefined"])


def test_what_a_store_that_is_away_did_not_take_is_delivered_later(lake, tracking):
    said: list[str] = []
    away = Tracking(lake, tracking.profile, uri=NOWHERE)
    identity = away.stage(ModelKey("ETH-USD", 5), "uq_regression", "v1")
    journal = lake.model("uq_regression", ModelKey("ETH-USD", 5)) / "v1-tracking.jsonl"
    with away.under_way(identity, journal, said.append) as run:
        for epoch in (1, 2):
            run.metrics({"loss": 1 / epoch, "epoch": epoch}, step=epoch)
            run.deliver()
        assert run.url is None
    assert "does not take" in said[0]
    assert len(said) <= 3  # it does not ask at every epoch
    assert tracking.pending() == [journal]
    assert tracking.flush_pending() == 0
    assert tracking.pending() == []
    told = the_run(tracking, identity)
    assert told.info.status == "FINISHED"
    assert [point.value for point in tracking.store().client.get_metric_history(told.info.run_id, "loss")] == [1.0, 0.5]


def test_epochs_that_were_never_told_are_told_at_the_end_and_no_other_twice(tracking):
    run = tracking.open(tracking.stage(ModelKey("ETH-USD", 10), "encoder", "v1"))
    epochs = [{"epoch": float(number), "loss": 1 / number} for number in (1, 2, 3)]
    run.metrics(epochs[0], step=1)
    run.add("epochs", epochs=epochs, time=1)
    assert run.deliver(now=True)
    told = the_run(tracking, run.journal.identity)
    history = tracking.store().client.get_metric_history(told.info.run_id, "loss")
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
    told = the_run(tracking, identity)
    client = tracking.store().client
    assert len(client.get_metric_history(told.info.run_id, "loss")) == 1
    assert len(told.inputs.dataset_inputs) == 1
    assert [file.path for file in client.list_artifacts(told.info.run_id, "tables")] == ["tables/table.csv"]


def test_what_a_later_training_has_replaced_is_not_told_as_the_earlier_ones(tracking, tmp_path):
    """Its entry waited in the journal while the same directory was trained in afresh."""
    run = tracking.open(tracking.stage(ModelKey("ETH-USD", 30), "encoder", "v1"), tmp_path / "a.jsonl")
    for name in ("kept", "replaced"):
        weights = tmp_path / name / "weights.safetensors"
        weights.parent.mkdir()
        weights.write_bytes(b"first")
        run.artifact(weights, name, weights={str(weights): file_hash(weights)})
    weights.write_bytes(b"second")
    assert run.deliver(now=True)
    told = the_run(tracking, run.journal.identity)
    assert [file.path for file in tracking.store().client.list_artifacts(told.info.run_id)] == ["kept"]


def test_processes_that_start_together_make_one_store_one_experiment_and_one_parent(tmp_path):
    code = (
        "import sys; from tests.features.synthetic import profile; from uqlob_pipeline.lake import Lake, ModelKey;"
        "from uqlob_pipeline.tracking import Tracking; said = []; t = Tracking(Lake(sys.argv[1]), profile());"
        "run = t.open(t.stage(ModelKey('BTC-USD', 5), sys.argv[2], 'v'), say=said.append); run.metrics({'a': 1.0});"
        "ok = run.deliver(now=True); print(said); sys.exit(0 if ok else 1)"
    )
    started = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path), stage], stdout=subprocess.PIPE, text=True)
        for stage in ("encoder", "uq_regression", "uq_classification")
    ]
    assert [(process.wait(timeout=240), process.stdout.read()) for process in started] == [(0, "[]\n")] * 3
    tracking = Tracking(Lake(tmp_path), made_up_profile())
    assert [e.name for e in tracking.store().client.search_experiments()].count("uqlob made-up") == 1
    assert len(tracking.store().search({"uqlob.kind": "model"})) == 1


def test_nested_settings_become_dotted_names():
    assert flattened({"a": {"b": {"c": 1}}, "d": (1, 2)}) == {"a.b.c": 1, "d": (1, 2)}
    assert json.dumps(flattened({}), sort_keys=True) == "{}"
