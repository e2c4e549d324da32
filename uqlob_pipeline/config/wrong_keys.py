"""Error messages for a profile that pydantic refuses: every wrong key, the valid ones, and the most similar."""

import dataclasses
import difflib
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ValidationError

UNKNOWN_KEY = ("extra_forbidden", "unexpected_keyword_argument")  # pydantic's error types, of a model and of a dataclass


def explain(path: Path, error: ValidationError, model: type[BaseModel], tags: tuple[str, ...]) -> str:
    """One line per wrong key. `tags` are parts of a place that no key has."""
    lines = [f"profile {path} has {error.error_count()} wrong key(s):"]
    for problem in error.errors():
        place = [part for part in problem["loc"] if part not in tags]
        key = ".".join(str(part) for part in place) or "(the whole profile)"
        if problem["type"] in UNKNOWN_KEY:
            lines.append(f"  {key}: {_unknown_key(model, *place)}")
            continue
        given: Any = problem.get("input")
        shown = "" if isinstance(given, dict) else f" (found {given!r})"
        lines.append(f"  {key}: {problem['msg']}{shown}")
    return "\n".join(lines)


def _unknown_key(model: type[BaseModel], *place: int | str) -> str:
    """The valid keys at a place in the profile, and the one most similar to its last part."""
    section: Any = model
    for part in place[:-1]:
        if get_origin(section) in (dict, tuple):
            section = get_args(section)[1 if get_origin(section) is dict else 0]
        else:
            section = _keys(section)[str(part)]
        if get_origin(section) in (Union, UnionType):
            section = next(kind for kind in get_args(section) if kind is not NoneType)
        if get_origin(section) is Annotated:
            section = get_args(section)[0]
    known = list(_keys(section))
    similar = difflib.get_close_matches(str(place[-1]), known, n=1)
    return f"no such key{f' (did you mean {similar[0]}?)' if similar else ''}; valid keys are {', '.join(known)}"


def _keys(section: Any) -> dict[str, Any]:
    """The keys of a model or a dataclass, with their types."""
    if dataclasses.is_dataclass(section):
        hints = get_type_hints(section)
        return {field.name: hints[field.name] for field in dataclasses.fields(section)}
    return {name: field.annotation for name, field in section.model_fields.items()}
