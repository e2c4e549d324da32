"""`uqlob drill --random N`: kills, damages, delays, fills disks and cuts connections at random, and compares bytes.

Every fault follows from the seed and its number: `--first` repeats one. Kill times are a share of the step's own CPU time, so
that they land on a loaded machine as well.
"""

import json
import os
import random
import resource
import shutil
import signal
import time
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path

from uqlob_pipeline.devtools.drill.child import STEP_LIMIT_S, Child, import_listed, load_compiled, run_and_list_imports
from uqlob_pipeline.devtools.drill.damage import flip_bit, play_damaged_captures, play_damaged_dumps
from uqlob_pipeline.devtools.drill.outputs import HASHED, compared, output_hashes, partial_files
from uqlob_pipeline.devtools.drill.steps import (
    CAPTURE,
    CAPTURE_LINES,
    STEPS,
    Step,
    days_of,
    import_capture,
    profile_of_drill,
    record_frames,
)
from uqlob_pipeline.devtools.drill.tally import Tally
from uqlob_pipeline.lake.layout import Lake
from uqlob_pipeline.lake.log_function import LogFn

DAMAGED_AT_ONCE = {"import": 130, "recorder": 130, "replay": 8}  # the replay reads whole days
FLIPPED_AT_ONCE = 4
PREPARATION_LIMIT_S = 3600.0  # compiles everything on a fresh installation
SHORT_CPU_S = 0.5  # a shorter step may end before this process is scheduled to kill it
AFTER_CPU_S = 0.02  # a kill comes up to this much later than its CPU time: some land while the process waits for the disk
IMPORTED_BEFORE = (
    "uqlob_models.training",
    "uqlob_models.prediction",
    "uqlob_pipeline.market.kraken.ingest",
    "uqlob_pipeline.market.importer.import_dumps",
    "uqlob_pipeline.market.recorder.connection",
    "uqlob_pipeline.models.gated_evaluation",
)
FAULTS = {
    "import": ("kill", "kill", "damage", "damage", "delay", "full disk"),
    "replay": ("kill", "kill", "damage", "delay", "full disk"),
    "features": ("kill", "kill", "flip", "delay", "full disk"),
    "training": ("kill", "kill", "flip", "delay"),
    "evaluation": ("kill", "kill", "flip", "full disk"),
    "recorder": ("kill", "cut", "damage"),
}
INPUTS = {  # files that a step reads and whose bytes are hashed
    "features": ("book_events", "window_prices"),
    "training": ("event_features", "window_labels", "feature_scales", "label_thresholds"),
    "evaluation": ("event_features", "window_labels", "models"),
}


@dataclass
class RandomDrill:
    """The undisturbed lake after each step, and what was done to copies of it."""

    root: Path
    seed: int
    log: LogFn
    steps: tuple[str, ...] = tuple(step.name for step in STEPS)
    seconds: dict[str, float] = field(default_factory=dict)
    cpu_seconds: dict[str, float] = field(default_factory=dict)
    tally: Tally = field(default_factory=Tally)
    problems: list[str] = field(default_factory=list)

    def prepare(self) -> None:
        """Simulate the market, and run every step once, undisturbed."""
        from uqlob_pipeline.market.kraken.dump_reader import read_lines
        from uqlob_pipeline.market.simulator import MarketSettings, simulate_day

        for module in IMPORTED_BEFORE:  # once here instead of in every process
            import_module(module)
        self.profile = profile_of_drill()
        assert self.profile.simulation is not None
        market = MarketSettings(seed=self.profile.simulation.seed, hours=self.profile.simulation.hours)
        needed = self._needed()
        lake, first = Lake(self.root / "undisturbed" / "lake"), days_of(self.profile)[0]

        def simulate() -> None:
            for day in days_of(self.profile) if needed - {"import", "recorder"} else [first]:
                simulate_day(lake.root, day.symbol, day.date, market)

        self._require(Child(simulate, self.root / "error"), "simulation")
        lines = [line for file in lake.dumps("level3", first) for _, line in read_lines(file)][:CAPTURE_LINES]
        self.capture = lines
        for step in STEPS:
            if step.name not in needed:
                continue
            own = Lake(self.root / "undisturbed" / step.name / "lake") if step.outputs == ("raw",) else lake
            own.root.mkdir(parents=True, exist_ok=True)
            (own.root.parent / CAPTURE).write_bytes(b"\n".join(lines) + b"\n")
            before = self.root / "before" / step.name
            shutil.copytree(own.root.parent, before, ignore=shutil.ignore_patterns("import", "recorder"))
            run = partial(run_and_list_imports, partial(step.run, own, self.profile), self.root / "imported")
            self._require(Child(run, self.root / "error"), step.name)
            if step.name in self.steps:
                import_listed(self.root / "imported")
                load_compiled()  # what the step has just compiled
                self._time(step, before)
                for _ in range(4 if self.cpu_seconds[step.name] < SHORT_CPU_S else 0):  # the shortest is the least disturbed
                    self._time(step, before)

    def _time(self, step: Step, before: Path) -> None:
        """Run the step once more in a copy: what is compiled is loaded now, and the bytes must be the same."""
        again = self.root / "again"
        shutil.copytree(before, again)
        started = time.monotonic()
        child = Child(partial(step.run, Lake(again / "lake"), self.profile), self.root / "error")
        self._require(child, step.name)
        seconds, cpu = time.monotonic() - started, child.used_cpu
        if different := compared(self.expected(step), output_hashes(again / "lake", step)):
            raise RuntimeError(f"two undisturbed runs of {step.name} are not the same: {different[0]}")
        shutil.rmtree(again)
        if cpu < self.cpu_seconds.get(step.name, float("inf")):
            self.seconds[step.name], self.cpu_seconds[step.name] = seconds, cpu
            self.log(f"undisturbed {step.name}: {seconds:.1f} s, {cpu:.3f} s of CPU time")

    def _needed(self) -> set[str]:
        """The steps to disturb, and those that make what they read."""
        chain = [step.name for step in STEPS if step.outputs != ("raw",)]
        last = max((chain.index(name) for name in self.steps if name in chain), default=-1)
        return {*self.steps, *chain[: last + 1]}

    def _require(self, child: Child, what: str) -> None:
        code = child.wait(PREPARATION_LIMIT_S)
        if code != 0:
            raise RuntimeError(f"the undisturbed {what} {'did not end' if code is None else 'failed'}: {child.why()}")

    def expected(self, step: Step) -> dict[str, str]:
        own = self.root / "undisturbed" / (step.name if step.outputs == ("raw",) else "") / "lake"
        return output_hashes(own, step)

    def play(self, number: int) -> str:
        """One fault; what went wrong is kept with its number. Returns what was played."""
        draw = random.Random(f"{self.seed}/{number}")  # noqa: S311 (faults, not secrets)
        step = draw.choice([step for step in STEPS if step.name in self.steps])
        fault = draw.choice(FAULTS[step.name])
        site = self.root / f"fault-{number}"
        shutil.copytree(self.root / "before" / step.name, site)
        lake = Lake(site / "lake")
        lake.root.mkdir(exist_ok=True)
        self.tally.add(step.name, "faults")
        self.tally.drawn[f"{fault} in {step.name}"] += 1
        found = getattr(self, f"_{fault.replace(' ', '_')}")(step, lake, draw, number)
        self.tally.add(step.name, "failed" if found else "repaired", len(found) or fault not in ("damage", "flip"))
        self.problems += [f"fault {number}, {fault} in {step.name}: {problem}" for problem in found]
        shutil.rmtree(site, ignore_errors=True)
        return f"{fault} in {step.name}"

    # ---- faults

    def _start(self, step: Step, lake: Lake) -> Child:
        return Child(partial(step.run, lake, self.profile), lake.root.parent / "error")

    def _finish(self, step: Step, lake: Lake) -> list[str]:
        """Run the step to its end and compare its bytes with the undisturbed ones."""
        from uqlob_pipeline.lake.atomic_files import sweep_temporaries

        child = self._start(step, lake)
        code = child.wait()
        if code != 0:
            return [f"the next run ended with {'no end' if code is None else code}: {child.why()}"]
        sweep_temporaries(lake.root)
        left = [f"{path.name} was left behind" for path in lake.root.rglob(".*.tmp")]
        return left + compared(self.expected(step), output_hashes(lake.root, step))

    def _kill(self, step: Step, lake: Lake, draw: random.Random, number: int) -> list[str]:
        problems = []
        for _ in range(draw.randint(2, 5)):
            self._start_and_kill(step, lake, draw)
            if step.name == "recorder":  # what a second one appends is not what the undisturbed one wrote
                problems += self._recorded_prefix(lake)
                shutil.rmtree(lake.root)
                lake.root.mkdir()
            elif step.name != "training":  # an unfinished training has its best model so far
                problems += partial_files(self.expected(step), output_hashes(lake.root, step))
        return problems if step.name == "recorder" else problems + self._finish(step, lake)

    def _start_and_kill(self, step: Step, lake: Lake, draw: random.Random) -> None:
        """Start a step and kill it after a random share of its CPU time: half of the kills land while it computes."""
        after, computing = draw.uniform(0.0, 1.0) * self.cpu_seconds[step.name], draw.random() < 0.5
        computing = computing or self.cpu_seconds[step.name] < SHORT_CPU_S
        child = Child(partial(step.run, lake, self.profile), lake.root.parent / "error", after if computing else None)
        if not computing:
            child.wait_for_cpu(after)
            time.sleep(draw.uniform(0.0, AFTER_CPU_S))
            child.signal(signal.SIGKILL)
        child.wait()
        self.tally.add(step.name, "kills" if child.killed else "late kills")

    def _recorded_prefix(self, lake: Lake) -> list[str]:
        """What a killed recorder wrote is what the undisturbed one wrote first."""
        whole = self._recorded(Lake(self.root / "undisturbed" / "recorder" / "lake"))
        complete = self._recorded(lake)[:-1]  # the last line may be cut off
        return [] if complete == whole[: len(complete)] else ["the recorder wrote other lines than the undisturbed one"]

    def _recorded(self, lake: Lake) -> list[bytes]:
        from uqlob_pipeline.market.kraken.dump_reader import read_lines

        return [line.partition(b',"received_at"')[0] for file in sorted(lake.root.rglob("*.zst")) for _, line in read_lines(file)]

    def _cut(self, step: Step, lake: Lake, draw: random.Random, number: int) -> list[str]:
        """The connection is lost and never comes back with a snapshot: what was recorded until then is what was received."""
        cut = draw.randrange(2, CAPTURE_LINES)
        child = Child(partial(record_frames, lake, self.profile, (cut,)), lake.root.parent / "error")
        if child.wait() != 0:
            return [f"the recorder ended: {child.why()}"]
        received = {frame.rstrip()[:-1] for frame in self.capture[:cut]}  # without the brace that `received_at` is put before
        whole = self._recorded(Lake(self.root / "undisturbed" / "recorder" / "lake"))
        same = self._recorded(lake) == [line for line in whole if line in received]
        return [] if same else [f"after the cut at frame {cut} other lines are there"]

    def _delay(self, step: Step, lake: Lake, draw: random.Random, number: int) -> list[str]:
        child = self._start(step, lake)
        for _ in range(3):
            time.sleep(draw.uniform(0.0, 0.3) * self.seconds[step.name])
            child.signal(signal.SIGSTOP)
            time.sleep(draw.uniform(0.05, 0.5))
            child.signal(signal.SIGCONT)
        code = child.wait()
        return (
            [f"it ended with {code}: {child.why()}"]
            if code != 0
            else compared(self.expected(step), output_hashes(lake.root, step))
        )

    def _full_disk(self, step: Step, lake: Lake, draw: random.Random, number: int) -> list[str]:
        limit = int(10 ** draw.uniform(2.5, 5.5))

        def limited() -> None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # the write fails, not the process
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
            step.run(lake, self.profile)

        code = Child(limited, lake.root.parent / "error").wait()
        problems = [] if code in (0, 1) else [f"with files of at most {limit} bytes it ended with {code}"]
        return problems + partial_files(self.expected(step), output_hashes(lake.root, step)) + self._finish(step, lake)

    def _flip(self, step: Step, lake: Lake, draw: random.Random, number: int) -> list[str]:
        """One flipped bit in one input at a time: the step fails by name, or gives the undisturbed bytes."""
        found = [path for table in INPUTS[step.name] for path in sorted((lake.root / table).rglob("*")) if path.is_file()]
        files = [path for path in found if path.suffix in HASHED and not path.name.startswith(".")]
        files = [path for path in files if "checkpoints" not in path.parts]
        return [problem for _ in range(FLIPPED_AT_ONCE) for problem in self._flip_one(step, lake, draw.choice(files), draw)]

    def _flip_one(self, step: Step, lake: Lake, flipped: Path, draw: random.Random) -> list[str]:
        stat, content = flipped.stat(), flipped.read_bytes()
        flip_bit(flipped, draw)
        child = self._start(step, lake)
        code = child.wait()
        self.tally.add(step.name, "damaged inputs")
        self.tally.drawn[f"flip in {flipped.relative_to(lake.root).parts[0]}"] += 1
        if code == 0:
            problems = compared(self.expected(step), output_hashes(lake.root, step))
            self.tally.add(step.name, "identical", not problems)
        else:
            why = child.why()
            named = any(str(path) in why for path in (flipped, flipped.parent))  # weights are named by their directory
            named = named and code == 1 and ("is damaged" in why or "cannot be read" in why)
            problems = [] if named else [f"with a flipped bit in {flipped.name} it ended with {code}: {why}"]
            self.tally.add(step.name, "refused", named)
        flipped.write_bytes(content)
        os.utime(flipped, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        for output in step.outputs:
            shutil.rmtree(lake.root / output, ignore_errors=True)
        return problems

    def _damage(self, step: Step, lake: Lake, draw: random.Random, number: int) -> list[str]:
        """Damaged inputs of import, recorder or replay: each is refused, reported or makes no difference."""
        results, work, seed = lake.root.parent / "results", lake.root.parent / "damaged", f"{self.seed}/{number}"
        many = (seed, DAMAGED_AT_ONCE[step.name], results)
        if step.name == "replay":
            day = draw.choice(days_of(self.profile))
            play = partial(play_damaged_dumps, work, lake.root / "raw", self.profile, day, *many)
        else:
            fill = record_frames if step.name == "recorder" else import_capture
            play = partial(play_damaged_captures, work, self.capture, self.profile, fill, *many)
        child = Child(play, lake.root.parent / "error")
        code = child.wait(2 * STEP_LIMIT_S)
        entries = [json.loads(line) for line in results.read_text().splitlines()] if results.is_file() else []
        what = {entry["number"]: entry["damage"] for entry in entries if "damage" in entry}
        outcomes = {entry["number"]: entry["outcome"] for entry in entries if "outcome" in entry}
        self.tally.add(step.name, "damaged inputs", len(what))
        for one, outcome in outcomes.items():
            self.tally.drawn[f"{what[one].partition(' ')[0]} in an input of {step.name}: {outcome}"] += 1
            if outcome != "failed":  # counted with its problem
                self.tally.add(step.name, outcome)
        problems = [f"{what[one]} changed events silently" for one, outcome in outcomes.items() if outcome == "failed"]
        if code != 0:
            last = what[max(what)] if what else "the first"
            problems.append(f"{last} ended the process with {'no end' if code is None else code}: {child.why()}")
        return problems
