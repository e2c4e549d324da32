"""The processes of `uqlob drill --random`: forked from one that has imported and compiled everything that a step needs.

Hundreds of them can be killed in minutes, and a kill hits the step's work instead of its imports.
"""

import contextlib
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

STEP_LIMIT_S = 600.0


def load_compiled() -> int:
    """Load the machine code of every imported compiled function that is in numba's cache; returns their number.

    Every forked process would load it again otherwise, and most kills would hit that instead of the step. Numba has no public
    function for it. A function that is not in the cache is compiled where it is first called, as ever.
    """
    from numba.core.dispatcher import Dispatcher

    loaded = 0
    for name, module in list(sys.modules.items()):
        if not name.startswith("uqlob_pipeline."):
            continue
        functions: list[Any] = [one for one in vars(module).values() if isinstance(one, Dispatcher) and one.__module__ == name]
        for function in (one for one in functions if not one.overloads):
            for signature, *_ in function._cache._cache_file._load_index():
                function.compile(signature)
                loaded += 1
    return loaded


def run_and_list_imports(work: Callable[[], object], listed: Path) -> None:
    """Run a function, and write the names of the modules that it imported into a file, in their order."""
    before = set(sys.modules)
    work()
    listed.write_text("\n".join(name for name in list(sys.modules) if name not in before))


def import_listed(listed: Path) -> None:
    """Import what `run_and_list_imports` listed: a process forked from now on does not import it again."""
    for name in listed.read_text().splitlines():
        with contextlib.suppress(Exception):  # some modules are made by others and cannot be imported by name
            import_module(name)


class Child:
    """A forked process that runs one function; its error, if any, is in a file.

    After `killed_after_cpu_s` seconds of CPU time the kernel ends it by SIGPROF, which nothing here handles: like SIGKILL, it
    lets the process do nothing more.
    """

    def __init__(
        self, work: Callable[[], object], error: Path, killed_after_cpu_s: float | None = None, own_session: bool = False
    ) -> None:
        self.error = error
        self.code: int | None = None
        self.used_cpu = 0.0  # once it has ended
        error.unlink(missing_ok=True)
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            code = 0
            try:
                os.environ["OMP_NUM_THREADS"] = "1"
                if own_session:
                    os.setsid()
                if killed_after_cpu_s is not None:  # by the kernel, on time on a loaded machine too
                    signal.setitimer(signal.ITIMER_PROF, max(killed_after_cpu_s, 1e-6))
                work()
            except BaseException as failure:
                code = 1
                with contextlib.suppress(OSError):  # its disk may be full
                    error.write_text(f"{type(failure).__name__}: {failure}\n{traceback.format_exc()}")
            finally:
                os._exit(code)  # never back into the code of the process that it was forked from

    def cpu_seconds(self) -> float:
        """CPU time of the process so far: unlike the clock on the wall it does not depend on the machine's other load."""
        return time.clock_gettime(~self.pid << 3 | 2)  # the clock id that clock_getcpuclockid(3) returns

    def wait_for_cpu(self, seconds: float) -> None:
        """Wait until the process has used this much CPU time, or has ended."""
        deadline = time.monotonic() + STEP_LIMIT_S
        while self.exit_code() is None and self.cpu_seconds() < seconds and time.monotonic() < deadline:
            time.sleep(0.001)

    def exit_code(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        if self.code is None:
            done, status, usage = os.wait4(self.pid, os.WNOHANG)
            if done:
                self.code = os.waitstatus_to_exitcode(status)
                self.used_cpu = usage.ru_utime + usage.ru_stime
        return self.code

    def wait(self, limit_s: float = STEP_LIMIT_S) -> int | None:
        """The exit code, negative for a signal; None where it did not end in time and was killed."""
        deadline = time.monotonic() + limit_s
        try:
            while time.monotonic() < deadline:
                if (code := self.exit_code()) is not None:
                    return code
                time.sleep(0.005)
        except KeyboardInterrupt:
            self.signal(signal.SIGKILL)
            raise
        self.signal(signal.SIGKILL)
        os.waitpid(self.pid, 0)
        return None

    @property
    def killed(self) -> bool:
        """Whether a kill ended it, rather than its own end."""
        return self.code in (-signal.SIGKILL, -signal.SIGPROF)

    def signal(self, number: int) -> None:
        if self.code is None:
            os.kill(self.pid, number)

    def end_session(self) -> None:
        """Kill a process with a session of its own and all that it started."""
        if self.exit_code() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            self.wait()

    def why(self) -> str:
        return self.error.read_text().partition("\n")[0][:300] if self.error.is_file() else ""
