"""The profile's section `splits`: which days train, validate and test."""

import datetime as dt
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Discriminator, RootModel, Tag, model_validator

from uqlob_pipeline.config.section import Section


class Span(Section):
    first: dt.date
    last: dt.date

    @model_validator(mode="after")
    def _in_order(self) -> "Span":
        if self.last < self.first:
            raise ValueError(f"last ({self.last}) lies before first ({self.first})")
        return self

    def days(self) -> list[dt.date]:
        return [self.first + dt.timedelta(days=i) for i in range((self.last - self.first).days + 1)]

    def __contains__(self, day: dt.date) -> bool:
        return self.first <= day <= self.last


class DayList(RootModel[tuple[dt.date, ...]]):
    """Days that are not consecutive, such as the first day of each month."""

    model_config = ConfigDict(frozen=True)

    @model_validator(mode="after")
    def _in_order(self) -> "DayList":
        if not self.root:
            raise ValueError("a list of days needs at least one day")
        for day, following in pairwise(self.root):
            if following <= day:
                raise ValueError(f"days must be in order and different: {following} follows {day}")
        return self

    @property
    def first(self) -> dt.date:
        return self.root[0]

    @property
    def last(self) -> dt.date:
        return self.root[-1]

    def days(self) -> list[dt.date]:
        return list(self.root)

    def __contains__(self, day: dt.date) -> bool:
        return day in self.root


def _kind_of_days(value: Any) -> str:
    return "list" if isinstance(value, list | tuple | DayList) else "span"


DAYS_TAGS = ("span", "list")
SplitDays = Annotated[Annotated[Span, Tag("span")] | Annotated[DayList, Tag("list")], Discriminator(_kind_of_days)]
SplitName = Literal["train", "validation", "test"]


class Splits(Section):
    """By date: a span, or a list of days. The first half of the validation windows selects models, the second half calibrates."""

    train: SplitDays
    validation: SplitDays
    test: SplitDays

    @model_validator(mode="after")
    def _in_order(self) -> "Splits":
        if not self.train.last < self.validation.first <= self.validation.last < self.test.first:
            raise ValueError("train, validation and test must follow one another without overlap")
        return self

    def of(self, day: dt.date) -> SplitName | None:
        for name in ("train", "validation", "test"):
            if day in getattr(self, name):
                return name
        return None
