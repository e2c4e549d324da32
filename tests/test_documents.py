"""The documents name only files, modules and messages that exist, and their relative links resolve."""

import importlib.util
import re
from pathlib import Path

import pytest

from uqlob_pipeline.defs.jobs import JOBS
from uqlob_pipeline.lake.warehouse import SQL

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")])
DEPLOYMENT = sorted(path for path in (ROOT / "docs" / "deploy").rglob("*") if path.is_file() and path.suffix != ".md")

PATH = re.compile(r"(?<![\w/.-])(?:uqlob_pipeline|uqlob_models|sql|tests|docs|dagster_home)/[\w./*-]*")
CODE = re.compile(r"`([^`\n]+)`")
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def code_spans(document: Path) -> list[str]:
    return CODE.findall(FENCED.sub("", document.read_text()))


def module_or_attribute_exists(name: str) -> bool:
    """Whether a dotted name is a module, or a name that a module defines."""
    try:
        if importlib.util.find_spec(name) is not None:
            return True
    except ModuleNotFoundError:
        pass
    module, _, attribute = name.rpartition(".")
    if "." not in module:
        return False
    source = ROOT / (module.replace(".", "/") + ".py")
    return source.is_file() and re.search(rf"^(def|class) {attribute}\b|^{attribute}\b", source.read_text(), re.M) is not None


def anchors(document: Path) -> set[str]:
    """The fragments that GitHub gives to the headings of a document."""
    headings = HEADING.findall(FENCED.sub("", document.read_text()))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", [*DOCUMENTS, *DEPLOYMENT], ids=lambda path: str(path.relative_to(ROOT)))
def test_every_path_in_a_document_exists(document):
    paths = [path.rstrip("/.") for path in PATH.findall(document.read_text())]
    assert [path for path in paths if not any(ROOT.glob(path))] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_module_in_a_document_exists(document):
    names = [span for span in code_spans(document) if re.fullmatch(r"uqlob_(pipeline|models)(\.\w+)+", span)]
    assert [name for name in names if not module_or_attribute_exists(name)] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_relative_link_resolves(document):
    broken = []
    for link in LINK.findall(document.read_text()):
        if link.startswith(("http://", "https://")):
            continue
        path, _, fragment = link.partition("#")
        target = document.parent / path if path else document
        if not target.exists() or (fragment and fragment not in anchors(target)):
            broken.append(link)
    assert broken == []


def test_every_name_that_the_glossary_finds_in_a_file_occurs_there():
    pointers = re.findall(r"`(\w+)` in `([\w./]+)`", (ROOT / "docs" / "glossary.md").read_text())
    assert pointers
    assert [(name, path) for name, path in pointers if name not in (ROOT / path).read_text()] == []


def test_every_message_that_operations_explains_is_one_of_the_code():
    """The words of each message between its dots stand in the source, so that an operator finds the row by searching."""
    source = "\n".join(path.read_text() for path in (ROOT / "uqlob_pipeline").rglob("*.py"))
    table = (ROOT / "docs" / "operations.md").read_text().partition("| message | what to do |")[2].partition("\n\n")[0]
    messages = [message for row in table.splitlines()[2:] for message in CODE.findall(row.split("|")[1])]
    assert len(messages) > 5
    words = [part.strip() for message in messages for part in message.split("...") if part.strip()]
    assert [part for part in words if part not in source] == []


def test_every_relative_path_of_the_paper_to_code_table_is_written_out():
    spans = code_spans(ROOT / "docs" / "paper-to-code.md")
    assert [span for span in spans if span.endswith((".py", ".sql", ".toml")) and "/" not in span] == []


@pytest.mark.parametrize("file", sorted(SQL.glob("*.sql")), ids=lambda path: path.name)
def test_every_sql_file_states_its_grain_and_exactly_the_parameters_that_it_binds(file):
    text = file.read_text()
    comments = "\n".join(re.findall(r"--.*", text))
    assert re.match(r"-- [\w/]+: one row per ", comments)
    assert "\n-- parameters: $" in comments or "\n-- relation: " in comments
    assert set(re.findall(r"\$\w+", comments)) == set(re.findall(r"\$\w+", re.sub(r"--.*", "", text)))


def test_the_readme_names_every_job_of_the_ui() -> None:
    section = (ROOT / "README.md").read_text().partition("## Backfilling new days")[2].partition("\n## ")[0]
    assert {job.name for job in JOBS} - set(re.findall(r"`(\w+)`", section)) == set()
