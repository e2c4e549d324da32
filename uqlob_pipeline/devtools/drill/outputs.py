"""The outputs of a step as hashes, and how they differ from the undisturbed ones."""

from pathlib import Path

from uqlob_pipeline.devtools.drill.steps import Step

HASHED = (".parquet", ".json", ".safetensors")


def output_hashes(root: Path, step: Step) -> dict[str, str]:
    """Hash of every visible output of a step; of a model its record and its best weights, of a recorder nothing."""
    from uqlob_pipeline.lake.file_hashes import file_hash

    if step.name == "recorder":
        return {}
    patterns = (
        ("*/*/*/model.json", "*/*/*/*/best/weights.safetensors") if step.name == "training" else ("**/*.parquet", "**/*.zst")
    )
    found = [path for output in step.outputs for pattern in patterns for path in (root / output).glob(pattern)]
    visible = [path for path in found if not path.name.startswith(".")]
    return {str(path.relative_to(root)): file_hash(path) for path in sorted(visible)}


def compared(expected: dict[str, str], found: dict[str, str]) -> list[str]:
    names = sorted({*expected, *found})
    return [f"{name} differs from the undisturbed one" for name in names if expected.get(name) != found.get(name)]


def partial_files(expected: dict[str, str], found: dict[str, str]) -> list[str]:
    return [f"{name} is partially written" for name, digest in found.items() if digest != expected.get(name)]
