"""`uqlob bench all`: one benchmark after the other, each in a process of its own."""

import subprocess
import sys

import typer

BENCHMARKS = ("ingest", "features", "training", "evaluation", "record", "learning")


def every() -> None:
    """Run every benchmark; each prints one JSON object. Takes a while, and wants an idle machine."""
    failed = []
    for name in BENCHMARKS:
        typer.echo(f"{name} ...", err=True)
        command = [sys.executable, "-m", "uqlob_pipeline", "bench", name, "--json"]
        if subprocess.run(command, check=False).returncode != 0:  # noqa: S603
            failed.append(name)
    if failed:
        typer.secho(f"failed: {', '.join(failed)}", fg="red", err=True)
        raise typer.Exit(1)
