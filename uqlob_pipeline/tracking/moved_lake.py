"""A lake that was copied or moved: MLflow's database stores absolute paths of artefacts, which would be those of the old place.

Uploads of the copy would land in the original lake. The paths are rewritten before the database is used.
"""

import sqlite3
from contextlib import closing
from pathlib import Path

# Every column of MLflow's schema that holds the location of a local artefact.
LOCATIONS = (
    ("experiments", "artifact_location"),
    ("runs", "artifact_uri"),
    ("logged_models", "artifact_location"),
    ("model_versions", "source"),
    ("model_versions", "storage_location"),
)


def adopt_artifacts(database: Path, artifacts: Path) -> list[str]:
    """Point everything that a copied database has below another lake's artefacts to `artifacts`; returns the old places."""
    if not database.is_file():
        return []
    here = artifacts.as_uri()
    with closing(sqlite3.connect(database, timeout=60)) as connection, connection:
        if not connection.execute("select 1 from sqlite_master where name = 'experiments'").fetchone():
            return []
        located = connection.execute("select distinct artifact_location from experiments where name like 'uqlob %'").fetchall()
        foreign = [str(row[0]) for row in located if row[0] and row[0].startswith("file:") and row[0] != here]
        for old in foreign:
            for table, column in LOCATIONS:
                # Names of tables and columns cannot be bound; they are the constants above.
                connection.execute(
                    f"update {table} set {column} = :here || substr({column}, length(:old) + 1) "  # noqa: S608
                    f"where {column} = :old or substr({column}, 1, length(:old) + 1) = :old || '/'",
                    {"here": here, "old": old},
                )
    return foreign
