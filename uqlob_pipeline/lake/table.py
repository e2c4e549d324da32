"""What a table of the lake is: its grain, columns, inputs, settings, code version and files."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.config.splits import SplitName
from uqlob_pipeline.lake.layout import AssetDay, ModelKey, StudyKey
from uqlob_pipeline.lake.pass_cache import once_per_pass
from uqlob_pipeline.lake.provenance import Provenance
from uqlob_pipeline.lake.warehouse import sql_version

Grain = Literal["day", "symbol", "model", "study", "all"]
Key = AssetDay | ModelKey | StudyKey | str | None
SettingsFn = Callable[[Profile, Key, Provenance | None], str]

TRAINING_SPLITS: tuple[SplitName, ...] = ("train", "validation")
ALL_SPLITS: tuple[SplitName, ...] = ("train", "validation", "test")


@dataclass(frozen=True)
class Column:
    name: str
    type: str
    description: str
    equation: str = ""  # as the paper has it


@dataclass(frozen=True)
class Input:
    """A table that another one reads. The grains of both say which partitions: a day reads the fit of its symbol, say.

    `splits` chooses the days where a fit or a model reads days. An optional input is left out where it is missing. With
    `must_only_exist` the provenance of the input is not checked. Every other input must agree with the profile and the lake.
    """

    table: str
    splits: tuple[SplitName, ...] = ()
    optional: bool = False
    must_only_exist: bool = False


@dataclass(frozen=True)
class Table:
    """One table of the lake, or one stage of a model, and how it is made."""

    name: str
    group: str
    grain: Grain  # what one partition is
    rows: str  # what one row is
    description: str
    made_by: str  # the file that makes it
    columns: tuple[Column, ...] = ()
    inputs: tuple[Input, ...] = ()
    settings: tuple[str, ...] = ()  # keys of the profile that change what comes out
    settings_fn: SettingsFn | None = None  # used where a list of keys is not sufficient; also given the provenance on disk
    sql: tuple[str, ...] = ()  # files of sql/; their content is the code version
    code: str = ""  # code version of tables without SQL: raised when the same inputs and settings would give another result
    companions: tuple[str, ...] = ()  # tables written with this one, before it: this one's provenance stands for all
    companion_of: str = ""
    on_request: bool = False  # made when requested, and not with the rest of the DAG; days are those after the validation split

    @cached_property
    def code_version(self) -> str:
        return self.code or sql_version(*self.sql)

    def settings_version(self, profile: Profile, key: Key, on_disk: Provenance | None = None) -> str:
        return self.settings_fn(profile, key, on_disk) if self.settings_fn else settings_version(profile, *self.settings)


@once_per_pass
def settings_version(profile: Profile, *keys: str) -> str:
    return profile.settings_version(*keys)
