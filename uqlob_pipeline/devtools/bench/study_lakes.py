"""The lakes of `uqlob bench study`: markets of the demo's kind, BTC-USD at the shortest horizon, with the rows of the study.

A shifted market has the training and validation days, encoders and trained heads of its seed's market, and test days in another
regime. Nothing is trained for it; plain models are fitted again on the same days. Every step is resumed after a kill.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from uqlob_pipeline.devtools.bench.interval_lakes import DONE, LEFT_OUT, profile_text

if TYPE_CHECKING:
    from uqlob_pipeline.config.profile import Profile
    from uqlob_pipeline.config.study import Variant
    from uqlob_pipeline.lake.layout import Lake, StudyKey

HEADLINE = ("uq-regression-end-to-end", "uq-classification-end-to-end")  # trained with the first seed alone


@dataclass(frozen=True)
class StudyMarket:
    """One lake in its own directory, with its profile beside it."""

    workdir: Path
    seed: int
    training_seeds: int
    shifted: bool = False
    variants: tuple[str, ...] = ()  # empty: all but optional ones
    end_to_end: bool = True

    def __str__(self) -> str:
        return f"seed {self.seed}{', shifted' if self.shifted else ''}"

    @property
    def directory(self) -> Path:
        return self.workdir / f"seed-{self.seed}" / ("shifted" if self.shifted else "market")

    @property
    def lake(self) -> Lake:
        from uqlob_pipeline.lake.layout import Lake

        return Lake(self.directory / "lake")

    @property
    def unshifted(self) -> StudyMarket:
        return replace(self, shifted=False)

    def profile(self) -> Profile:
        """As first written: a later change of the demo's recipe does not mix two recipes."""
        from uqlob_pipeline.config.profile import PROFILES, load_profile

        path = self.directory / "profile.toml"
        if not path.exists():
            if self.shifted:
                first = self.unshifted.profile().splits.test.first
                text = profile_text((self.unshifted.directory / path.name).read_text(), self.seed, "shift", str(first))
            else:
                text = profile_text((PROFILES / "demo.toml").read_text(), self.seed, "short", "")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        found = load_profile(str(path))
        study = found.study.model_copy(update={"seeds": self.training_seeds, "keep_models": True})
        return found.model_copy(update={"study": study})

    def row_keys(self) -> list[StudyKey]:
        """The rows of this market, seed by seed, those that are trained end to end last."""
        from uqlob_pipeline.lake.study_keys import study_keys

        profile, variants = self.profile(), self.chosen()
        rows = study_keys(profile, {name: one for name, one in variants.items() if name not in HEADLINE})
        late = study_keys(profile, {name: variants[name] for name in HEADLINE if name in variants})
        return [*rows, *(key for key in late if key.seed == 1)]

    def chosen(self) -> dict[str, Variant]:
        from uqlob_pipeline.config.study import read_variants

        known = read_variants(self.profile().study)
        names = self.variants or tuple(name for name, one in known.items() if not one.optional)
        return {name: known[name] for name in (*names, *(HEADLINE if self.end_to_end else ()))}


def prepare(market: StudyMarket) -> None:
    """Simulates the days and writes every table that a row reads; returns at once if that is done."""
    from uqlob_pipeline.cli.simulate import market_of
    from uqlob_pipeline.devtools.bench.learning_lake import write_days
    from uqlob_pipeline.lake.layout import AssetDay
    from uqlob_pipeline.models.inputs import ALL_SPLITS

    one_thread()
    if (market.directory / DONE).exists():
        if market.shifted:
            link_new_models(market.unshifted.lake.study, market.lake.study)
        return
    started, profile, lake = time.monotonic(), market.profile(), market.lake
    assert profile.simulation is not None
    (symbol,) = profile.symbols
    splits = ("test",) if market.shifted else ALL_SPLITS
    days = [AssetDay(symbol, date) for date in profile.days(symbol, *splits)]
    if market.shifted:
        shutil.rmtree(lake.root, ignore_errors=True)  # what a kill left
        left_out = shutil.ignore_patterns(*LEFT_OUT, "study_rows", "study_statistics", ".lock")
        shutil.copytree(market.unshifted.lake.root, lake.root, copy_function=os.link, ignore=left_out)
    write_days(lake, profile, market_of(profile.simulation), days, fit=not market.shifted)
    (market.directory / DONE).touch()
    log(f"{market}: {len(days)} days simulated in {time.monotonic() - started:.0f} s")


def link_new_models(source: Path, target: Path) -> None:
    """Links directories of encoders and trained heads that the market has made since its shifted days were prepared."""
    for directory in sorted(path for path in source.rglob("*") if path.is_dir()):
        own = target / directory.relative_to(source)
        if not own.exists():
            shutil.copytree(directory, own, copy_function=os.link, ignore=shutil.ignore_patterns(".lock"))


@dataclass(frozen=True)
class Progress:
    """How much of all rows is done, by weight: what a row costs relative to a frozen head."""

    markets: tuple[StudyMarket, ...]
    started: float = field(default_factory=time.time)
    done_before: float = 0.0

    def rows(self) -> Iterator[tuple[float, bool]]:
        from uqlob_pipeline.models.study.rows import ROWS

        for market in self.markets:
            variants = market.chosen()
            for key in market.row_keys():
                plain = variants[key.variant].method not in ("head", "encoder")
                weight = 0.05 if plain else 0.2 if market.shifted else 6.0 if key.variant in HEADLINE else 1.0
                yield weight, market.lake.by_study_row(ROWS, key).exists()

    def line(self) -> str:
        rows = list(self.rows())
        done, every = (sum(weight for weight, is_done in rows if is_done or whole) for whole in (False, True))
        left = (time.time() - self.started) / max(done - self.done_before, 1e-9) * (every - done)
        minutes = f", about {left / 60:.0f} min left" if done > self.done_before else ""
        return f"{sum(is_done for _, is_done in rows)} of {len(rows)} rows{minutes}"


def make_rows(market: StudyMarket, training_seed: int, progress: Progress) -> list[str]:
    """Makes the rows of one training seed that are missing or stale. Returns what failed; the other rows are made anyway.

    Nothing of the result is logged: a judgement looks once, at the end.
    """
    from uqlob_models.training_result import TrainingInterrupted
    from uqlob_pipeline.models.study.rows import why_row_stale, write_study_row

    one_thread()
    profile, lake, variants = market.profile(), market.lake, market.chosen()
    failed: list[str] = []
    for key in market.row_keys():
        if key.seed != training_seed or not why_row_stale(lake, profile, variants[key.variant], key):
            continue
        started = time.monotonic()
        try:
            write_study_row(lake, profile, key, lambda _: None)
        except TrainingInterrupted:
            return [*failed, f"{market}, {key}: interrupted; the same command resumes"]
        except Exception as error:  # one broken row is reported and does not cost the others
            failed.append(f"{market}, {key}: {type(error).__name__}: {error}")
            log(f"FAILED {failed[-1]}")
            continue
        log(f"{market}, {key}: done in {time.monotonic() - started:.0f} s; {progress.line()}")
    return failed


def trains_nothing(market: StudyMarket) -> None:
    """The encoders of a shifted market are those of its seed's market: none was pretrained for it."""
    both = (market, market.unshifted)
    own, other = ({path.parent.name for path in one.lake.study.glob("encoders/*/*/*/encoder.json")} for one in both)
    if own != other:
        raise RuntimeError(f"{market}: an encoder was pretrained for shifted days, which must not happen: {sorted(own ^ other)}")


def end_with(parent: int) -> None:
    """Ends this process soon after its parent: those of a killed benchmark would otherwise train beside its next start."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def one_thread() -> None:
    import torch

    torch.set_num_threads(1)


def log(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)
