"""The training loop: it learns, it resumes to the same bits, refuses checkpoints of other trainings, it never trains on NaN."""

import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tests.uqlob_models import training_process
from tests.uqlob_models.toy_windows import config, dataset, stage
from uqlob_models.checkpoints import CheckpointError, generations, load_model, read_newest_generation
from uqlob_models.config import EncoderConfig, HeadConfig, TrainingConfig
from uqlob_models.dataset import WindowDataset
from uqlob_models.training import train
from uqlob_models.training_result import NonFiniteLoss, TrainingInterrupted, TrainingResult

pytestmark = pytest.mark.usefixtures("one_thread")


def final_state(directory: Path) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    state = read_newest_generation(directory / "checkpoints")
    assert state is not None
    return state.weights, state.tensors


def assert_same_state(first: Path, second: Path) -> None:
    for ours, theirs in zip(final_state(first), final_state(second), strict=True):
        assert ours.keys() == theirs.keys()
        for name, tensor in ours.items():
            assert torch.equal(tensor, theirs[name]), name
    best = [load_file(path / "best" / "weights.safetensors") for path in (first, second)]
    assert all(torch.equal(tensor, best[1][name]) for name, tensor in best[0].items())


class StopAfter:
    """Returns true on the given call only. `train` calls it after every step and at the end of every epoch."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def __call__(self) -> bool:
        self.left -= 1
        return self.left == 0


@pytest.mark.parametrize("encoder", ["dtabl", "deeplob"])
def test_pretraining_and_fine_tuning_learn_a_known_signal(tmp_path: Path, encoder: str) -> None:
    toy = dataset(n=480)
    more = stage(epochs=6, encoder_rate=1e-2, head_rate=1e-2, mirror=True)
    settings = config(pretraining=more, regression=more, classification=more)
    settings = replace(settings, encoder=replace(settings.encoder, kind=encoder))
    records: list[dict[str, float]] = []
    first = train("pretraining", toy, settings, tmp_path / "encoder", on_epoch=records.append)
    assert first.best_metric > 0.5  # guessing by the priors scores a third
    assert records == first.history
    for objective in ("regression", "classification"):
        result = train(objective, toy, settings, tmp_path / objective, encoder=first.model)  # type: ignore[arg-type]
        assert result.best_metric > (0.5 if objective == "classification" else 0.3)
        last = result.history[-1]
        expected = {"train/loss", "rate/encoder", "rate/head", "windows_per_second", "eta_seconds"}
        if objective == "regression":
            expected |= {f"train/{term}" for term in ("nll", "weighted_mae", "directional", "calibration")}
            expected |= {f"validation/{name}" for name in ("nlpd", "coverage_68", "coverage_95", "weighted_r2")}
            assert 0.4 < last["validation/coverage_68"] < 0.95
        assert expected <= last.keys()
        assert last["validation/context_sensitivity"] > 0


def test_a_saved_model_is_complete_by_itself(tmp_path: Path) -> None:
    toy, settings = dataset(), config()
    toy.feature_mean, toy.feature_std = np.arange(7.0), np.arange(1.0, 8.0)
    result = train("regression", toy, settings, tmp_path)
    saved = load_model(result.model)
    model = saved.uq_model()
    assert saved.config == settings
    assert saved.data_version == toy.data_version()
    assert float(model.y_ref) == toy.y_ref == saved.y_ref
    assert model.encoder.input.mean.tolist() == toy.feature_mean.tolist()
    assert model.encoder.input.std.tolist() == toy.feature_std.tolist()
    assert saved.extra["epoch"] == result.best_epoch
    assert json.loads((result.model / "config.json").read_text())["objective"] == "regression"
    (result.model / "config.json").unlink()
    assert load_model(result.model).step == saved.step
    with pytest.raises(CheckpointError, match="train this model first"):
        load_model(tmp_path / "nowhere")


def test_mc_dropout_needs_dropout() -> None:
    without = {"encoder": EncoderConfig(dropout=0.0), "head": HeadConfig(dropout=0.0)}
    with pytest.raises(ValueError, match="mc_dropout_passes"):
        TrainingConfig(**without, mc_dropout_passes=8)
    assert TrainingConfig(**without | {"head": HeadConfig(dropout=0.1)}, mc_dropout_passes=8).mc_dropout_passes == 8
    with pytest.raises(ValueError, match="mc_dropout_passes"):
        TrainingConfig(mc_dropout_passes=-1)


def test_config_survives_json() -> None:
    settings = TrainingConfig(encoder=EncoderConfig(dropped_features=("qi",)))
    assert TrainingConfig(**json.loads(json.dumps(asdict(settings)))) == settings
    with pytest.raises(ValueError, match="unknown_key"):
        TrainingConfig(**asdict(settings), unknown_key=1)


@pytest.mark.parametrize("objective", ["pretraining", "regression", "classification"])
@pytest.mark.parametrize("sampling", ["blocks", "instances"])
def test_a_training_stopped_at_any_step_resumes_to_the_same_bits(tmp_path: Path, objective: str, sampling: str) -> None:
    toy = dataset(unknown=0.1)
    settings = config(**{objective: stage(sampling=sampling, mirror=True)})
    whole = train(objective, toy, settings, tmp_path / "whole")  # type: ignore[arg-type]
    stops: list[TrainingInterrupted] = []
    result: TrainingResult | None = None
    while result is None:
        try:
            result = train(objective, toy, settings, tmp_path / "pieces", stop=StopAfter(3))  # type: ignore[arg-type]
        except TrainingInterrupted as interrupted:
            stops.append(interrupted)
    stopped_at = [stop.step for stop in stops]
    assert stopped_at == sorted(set(stopped_at))
    assert len(stops) >= 3
    assert len(generations(tmp_path / "pieces" / "checkpoints")) == 2
    assert_same_state(tmp_path / "whole", tmp_path / "pieces")
    deterministic = [{k: v for k, v in record.items() if k.startswith(("train", "valid", "rate"))} for record in whole.history]
    assert deterministic == [{k: record[k] for k in same} for record, same in zip(result.history, deterministic, strict=True)]


def test_a_process_killed_with_sigkill_resumes_to_the_same_bits(tmp_path: Path) -> None:
    toy = dataset(n=400, unknown=0.1)
    whole = train("regression", toy, training_process.settings(), tmp_path / "whole")
    directory = tmp_path / "killed"
    command = [sys.executable, "-m", "tests.uqlob_models.training_process", str(directory)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[2])}
    for steps in ("8", "14"):  # once between two checkpoints of the first epoch, once in a later epoch
        with subprocess.Popen([*command, steps], env=environment, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "waiting\n"
            process.send_signal(signal.SIGKILL)
            assert process.wait() == -signal.SIGKILL
    assert len(generations(directory / "checkpoints")) >= 2
    finished = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert f"finished after {whole.steps} steps" in finished.stdout
    assert_same_state(tmp_path / "whole", directory)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_save_a_checkpoint_and_restore_the_previous_handlers(tmp_path: Path, number: signal.Signals) -> None:
    before = signal.getsignal(number)
    timer = StopAfter(4)

    def send() -> bool:
        if timer():
            os.kill(os.getpid(), number)
        return False

    with pytest.raises(TrainingInterrupted) as caught:
        train("regression", dataset(), config(), tmp_path, stop=send)
    assert caught.value.step in (4, 5)
    assert signal.getsignal(number) is before
    assert train("regression", dataset(), config(), tmp_path).epochs == 2


@pytest.mark.parametrize("during", ["validation", "on_epoch"])
def test_a_signal_in_the_last_validation_interrupts_and_the_next_call_returns_the_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, during: str
) -> None:
    from uqlob_models import training

    whole = train("regression", dataset(), config(), tmp_path / "whole")
    validate, calls = training.validate, []

    def send(*arguments: object) -> object:
        calls.append(1)
        if len(calls) == whole.epochs:
            os.kill(os.getpid(), signal.SIGINT)
        return validate(*arguments) if during == "validation" else None  # type: ignore[arg-type]

    if during == "validation":
        monkeypatch.setattr(training, "validate", send)
    with pytest.raises(TrainingInterrupted) as caught:
        train("regression", dataset(), config(), tmp_path / "cut", on_epoch=send if during == "on_epoch" else None)
    assert caught.value.step == whole.steps
    epochs: list[dict[str, float]] = []
    again = train("regression", dataset(), config(), tmp_path / "cut", on_epoch=epochs.append)
    assert epochs == []
    assert (again.steps, again.best_metric) == (whole.steps, whole.best_metric)
    assert_same_state(tmp_path / "whole", tmp_path / "cut")


def test_training_outside_the_main_thread_works_without_signals(tmp_path: Path) -> None:
    results: list[TrainingResult] = []
    thread = threading.Thread(target=lambda: results.append(train("pretraining", dataset(), config(), tmp_path)))
    thread.start()
    thread.join()
    assert results[0].epochs == 2


def test_a_damaged_newest_checkpoint_falls_back_to_the_one_before(tmp_path: Path) -> None:
    train("regression", dataset(), config(), tmp_path / "whole")
    with pytest.raises(TrainingInterrupted):
        train("regression", dataset(), config(), tmp_path / "damaged", stop=StopAfter(9))
    newest, _ = generations(tmp_path / "damaged" / "checkpoints")
    weights = newest / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    train("regression", dataset(), config(), tmp_path / "damaged")
    assert_same_state(tmp_path / "whole", tmp_path / "damaged")
    for path in generations(tmp_path / "damaged" / "checkpoints"):
        (path / "state.json").write_text("{")
    with pytest.raises(CheckpointError, match="train afresh"):
        train("regression", dataset(), config(), tmp_path / "damaged")


def test_a_checkpoint_whose_copy_broke_off_is_passed_over(tmp_path: Path) -> None:
    """As a machine leaves it in a store when it loses power while its first checkpoint is published."""
    train("regression", dataset(), config(), tmp_path / "whole")
    with pytest.raises(TrainingInterrupted):
        train("regression", dataset(), config(), tmp_path / "copied", stop=StopAfter(9))
    for path in generations(tmp_path / "copied" / "checkpoints"):
        (path / "state.json").unlink()
    assert read_newest_generation(tmp_path / "copied" / "checkpoints") is None
    train("regression", dataset(), config(), tmp_path / "copied")
    assert_same_state(tmp_path / "whole", tmp_path / "copied")


def test_a_complete_training_is_not_repeated_unless_afresh(tmp_path: Path) -> None:
    toy = dataset()
    first = train("pretraining", toy, config(), tmp_path)
    epochs: list[dict[str, float]] = []
    again = train("pretraining", toy, config(), tmp_path, on_epoch=epochs.append)
    assert epochs == []
    assert again == first
    train("pretraining", toy, config(), tmp_path, fresh=True, on_epoch=epochs.append)
    assert len(epochs) == 2


def test_a_state_of_other_data_or_settings_is_refused(tmp_path: Path) -> None:
    train("pretraining", dataset(), config(), tmp_path)
    with pytest.raises(CheckpointError, match="different: data_version"):
        train("pretraining", dataset(seed=1), config(), tmp_path)
    with pytest.raises(CheckpointError, match="different: stage"):
        train("pretraining", dataset(), config(pretraining=stage(epochs=3)), tmp_path)
    train("pretraining", dataset(), config(pretraining=stage(checkpoint_every=99)), tmp_path)  # changes no result
    train("pretraining", dataset(), config(regression=stage(epochs=9)), tmp_path)  # of another stage
    other = config()
    other = replace(other, encoder=replace(other.encoder, embedding=5))
    with pytest.raises(CheckpointError, match="other encoder settings"):
        train("regression", dataset(), other, tmp_path / "head", encoder=tmp_path / "best")


def poisoned(toy: WindowDataset, window: int) -> WindowDataset:
    store = toy.stores[0]
    continuous = np.array(store.continuous)
    continuous[window, 2, 3] = np.nan
    return replace(toy, stores=[replace(store, continuous=continuous)], _contexts={})


def test_a_loss_that_is_not_finite_stops_and_names_step_windows_and_checkpoint(tmp_path: Path) -> None:
    toy = dataset()
    target = int(toy.targets("train", 5)[30])
    settings = config(pretraining=stage(checkpoint_every=1))
    with pytest.raises(NonFiniteLoss) as caught:
        train("pretraining", poisoned(toy, target), settings, tmp_path)
    error = caught.value
    assert f"toy#{target}" in error.windows
    assert f"step {error.step}" in str(error)
    if error.checkpoint is not None:
        assert str(error.checkpoint) in str(error)
        assert int(error.checkpoint.name.removeprefix("step-").rstrip("b")) == error.step  # the state before the bad step
        weights = load_file(error.checkpoint / "weights.safetensors")
        assert all(bool(torch.isfinite(tensor).all()) for tensor in weights.values())


def test_the_device_itself_blocks_every_update_after_a_bad_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on CUDA, where the host checks every few steps: the weights stay those before the bad step."""
    from uqlob_models.learner import Learner

    toy = dataset()
    bad = poisoned(toy, int(toy.targets("train", 5)[30]))
    taken: list[dict[str, torch.Tensor]] = []
    learn = Learner.learn

    def watch(self: Learner, batch: object, step: int) -> None:
        taken.append({name: tensor.clone() for name, tensor in self.weights().items()})
        learn(self, batch, step)  # type: ignore[arg-type]

    monkeypatch.setattr(Learner, "learn", watch)
    first_bad_step, calls = Learner.first_bad_step, []

    def checked_late(self: Learner) -> int | None:
        calls.append(1)
        if len(calls) < 8:
            return None
        taken.append({name: tensor.clone() for name, tensor in self.weights().items()})
        return first_bad_step(self)

    monkeypatch.setattr(Learner, "first_bad_step", checked_late)
    with pytest.raises(NonFiniteLoss) as caught:
        train("pretraining", bad, config(pretraining=stage(checkpoint_every=1000)), tmp_path)
    before = taken[caught.value.step]
    assert len(taken) > caught.value.step + 1
    assert all(torch.equal(tensor, taken[-1][name]) for name, tensor in before.items())


def test_early_stopping_and_the_best_checkpoint_follow_the_validation_metric(tmp_path: Path) -> None:
    toy = dataset(signal=0.0)  # nothing to learn: the metric wanders
    result = train("pretraining", toy, config(pretraining=stage(epochs=30, patience=3)), tmp_path)
    scores = [record["validation/macro_f1"] for record in result.history]
    assert result.stopped_early
    assert result.epochs == result.best_epoch + 3
    assert result.best_metric == max(scores) == scores[result.best_epoch - 1]
    assert load_model(result.model).extra["value"] == result.best_metric


def test_patience_counts_validations_and_not_epochs(tmp_path: Path) -> None:
    toy = dataset(n=120, signal=0.0)
    rarely = stage(epochs=10, validate_every=5, patience=3)
    result = train("pretraining", toy, config(pretraining=rarely), tmp_path / "rarely")
    assert (result.epochs, result.stopped_early) == (10, False)
    impatient = stage(epochs=40, validate_every=2, patience=2, select_from=4)
    result = train("pretraining", toy, config(pretraining=impatient), tmp_path / "impatient")
    scores = [record.get("validation/macro_f1") for record in result.history]
    assert [score is not None for score in scores] == [epoch % 2 == 0 for epoch in range(1, result.epochs + 1)]
    assert result.stopped_early
    assert result.best_epoch >= 4
    assert result.epochs == result.best_epoch + 2 * 2


def test_the_time_left_counts_steps_and_validations_also_after_resuming_within_an_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a clock where a step takes a second and a validation a hundred."""
    from uqlob_models import training
    from uqlob_models.learner import Learner

    clock = [0.0]
    learn, validate = Learner.learn, training.validate

    def slow_learn(self: Learner, *arguments: object) -> None:
        clock[0] += 1
        learn(self, *arguments)  # type: ignore[arg-type]

    def slow_validate(*arguments: object) -> dict[str, float]:
        clock[0] += 100
        return validate(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(training.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(Learner, "learn", slow_learn)
    monkeypatch.setattr(training, "validate", slow_validate)
    monkeypatch.setattr(training, "REPORT_EVERY_S", 0.0)
    toy, settings = dataset(), config(pretraining=stage(epochs=5, validate_every=2, checkpoint_every=1000))
    per_epoch = -(-len(toy.targets("train", 0)) // 16)
    seen: list[float] = []
    for stop_after in (per_epoch + 2, per_epoch - 1):  # one step into the second epoch; then just after its last step
        with pytest.raises(TrainingInterrupted):
            train("pretraining", toy, settings, tmp_path, stop=StopAfter(stop_after))
    result = train("pretraining", toy, settings, tmp_path, on_progress=lambda progress: seen.append(progress.eta_seconds))
    left = [record["eta_seconds"] for record in result.history]
    assert left[1:] == [pytest.approx(3 * per_epoch + 200), 2 * per_epoch + 200, per_epoch + 100, 0]
    assert seen[0] == pytest.approx(3 * per_epoch - 1 + 200)
