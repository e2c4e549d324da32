"""Writes `paper_report` from the tables of the lake, with its provenance and staleness."""

import json
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.lake.atomic_files import atomic_path
from uqlob_pipeline.lake.layout import Lake
from uqlob_pipeline.lake.provenance import Provenance
from uqlob_pipeline.lake.staleness import NotReady, expected_provenance, stale_partitions
from uqlob_pipeline.lake.table_registry import REGISTRY
from uqlob_pipeline.models.gated_evaluation import bootstrap
from uqlob_pipeline.models.study.captions import caption
from uqlob_pipeline.models.study.study_tables import (
    COLUMNS,
    StudyCell,
    fill_command,
    missing_rows,
    read_rows,
    study_cells,
)
from uqlob_pipeline.report.day_tables import daily_coverage, report_facts, split_quality
from uqlob_pipeline.report.page import build_report
from uqlob_pipeline.report.report_inputs import ReportInputs, read_report_inputs

REPORT_PROVENANCE = "provenance.json"
REPORT_PATH = "/uqlob/report"  # where `uqlob ui` serves it, on the address of the Dagster UI


@dataclass(frozen=True)
class ReportDone:
    provenance: Provenance
    page: Path
    inputs: ReportInputs


def report_inputs(lake: Lake, profile: Profile) -> ReportInputs:
    """Everything that the lake has for the report of a profile."""
    # Imported here to keep torch out of the code server.
    from uqlob_models.parameter_table import parameter_table  # imports torch, which the code server must not load

    stages = {"regression": profile.training.regression, "classification": profile.training.classification}
    derived = {name: {"targets_per_step": stage.targets_per_step} for name, stage in stages.items()}
    study, captions, missing = study_inputs(lake, profile)
    return replace(
        read_report_inputs(lake, profile.symbols, profile.evaluation.horizons_s, simulated=profile.simulated),
        parameters=[dict(row._asdict()) for row in parameter_table(profile.training)],
        hyperparameters={**profile.model_dump(mode="json"), "derived": derived},
        profile_name=profile.name,
        facts=report_facts(lake, profile),
        quality=(quality := split_quality(lake, profile)),
        refused={day.day: beyond for day in quality if (beyond := day.beyond_limits(profile.book))},
        daily_coverage=daily_coverage(lake, profile),
        study=study,
        study_captions=captions,
        study_missing=missing,
        stale=stale_partitions(lake, profile, *(source.table for source in REGISTRY["paper_report"].inputs)),
    )


def study_inputs(lake: Lake, profile: Profile) -> tuple[list[StudyCell], dict[str, str], list[str]]:
    """Both tables of the study with their captions, and the commands that fill missing rows. A study not begun is no fault."""
    rows = read_rows([lake], profile)
    if not rows:
        return [], {}, []
    cells = {table: study_cells(rows, profile, table) for table in COLUMNS}
    missing = list(dict.fromkeys(fill_command(key) for key in missing_rows([lake], profile)))
    named = missing if len(missing) < 4 else ["uqlob study run"]
    captions = {table: caption(found, profile) for table, found in cells.items()}
    return [cell for found in cells.values() for cell in found], captions, named


def write_report(
    lake: Lake, profile: Profile, output: Path | None = None, progress: Callable[[str], None] | None = None
) -> ReportDone:
    """Write the page from the tables of the lake; NotReady if no model has been evaluated."""
    directory = output or lake.report
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=directory):  # a directory that cannot be written fails here, not after minutes of drawing
        pass
    provenance, inputs = expected_provenance(lake, profile, "paper_report", None), report_inputs(lake, profile)
    if not inputs.evaluations:
        raise NotReady(f"paper_report: no model is evaluated in {lake.name}. Materialise gated_evaluation for some models first")
    page = build_report(inputs, directory, bootstrap=bootstrap(profile), progress=progress)
    with atomic_path(directory / REPORT_PROVENANCE, hashed=True) as temporary:
        temporary.write_text(
            json.dumps({**asdict(provenance), "data_version": provenance.data_version}, indent=1, sort_keys=True)
        )
    return ReportDone(provenance, page, inputs)
