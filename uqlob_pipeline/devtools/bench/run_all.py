"""`uqlob bench all`: every benchmark, each in its own process."""

import subprocess
import sys

import typer

BENCHMARKS = ("ingest", "import", "features", "training", "evaluation", "economics", "backfill", "record", "market", "learning")


def every() -> None:
    """Run every benchmark; each prints one JSON object. Needs an idle machine and many minutes."""
    failed = []
    for name in BENCHMARKS:
        typer.echo(f"{name} ...", err=True)
        command = [sys.executable, "-m", "uqlob_pipeline.devtools", "bench", name, "--json"]
        if subprocess.run(command, check=False).returncode != 0:  # noqa: S603
            failed.append(name)
    if failed:
        typer.secho(f"failed: {', '.join(failed)}", fg="red", err=True)
        raise typer.Exit(1)
