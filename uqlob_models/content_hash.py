"""Hashes that a file of weights, a training state and a window store carry with them, so that a flipped bit is seen at load."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

CONTENT = "content_hash"  # in the description of a weights file, and in a JSON description of other files
HEADER_BYTES = 8  # a safetensors file begins with the length of its JSON header


class DamagedContent(ValueError):
    """The bytes are not those that were written."""


def file_hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def described(about: dict[str, Any], directory: Path, *files: str) -> dict[str, Any]:
    """A JSON description together with the hashes of the files beside it, and a hash of itself."""
    whole = {**about, "files": {name: file_hash(directory / name) for name in files}}
    return {**whole, CONTENT: _text_hash(whole)}


def require_described(about: dict[str, Any], directory: Path) -> dict[str, Any]:
    """The description as it was given to `described`; DamagedContent where it or a file beside it is not what was written."""
    whole = {name: value for name, value in about.items() if name != CONTENT}
    if about.get(CONTENT) != _text_hash(whole):
        raise DamagedContent(f"the description in {directory} is damaged")
    for name, known in about["files"].items():
        if file_hash(directory / name) != known:
            raise DamagedContent(f"{directory / name} is damaged: hash mismatch")
    return {name: value for name, value in whole.items() if name != "files"}


def _text_hash(value: Any) -> str:
    return hashlib.blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=16).hexdigest()


def weights_hash(content: bytes) -> str:
    """A hash of a weights file: its tensors, and its header without the hash itself."""
    end = HEADER_BYTES + int.from_bytes(content[:HEADER_BYTES], "little")
    header = json.loads(content[HEADER_BYTES:end])
    metadata = header.get("__metadata__", {})
    metadata.pop(CONTENT, None)  # where an earlier version kept it
    about = json.loads(metadata.get("about", "{}"))
    if about.pop(CONTENT, None) is not None:
        metadata["about"] = json.dumps(about, indent=1)
    return hashlib.blake2b(_text_hash(header).encode() + content[end:], digest_size=16).hexdigest()


def require_weights(path: Path) -> bool:
    """DamagedContent where a weights file is not what was written; False where it carries no hash, True otherwise."""
    content = path.read_bytes()
    try:
        end = HEADER_BYTES + int.from_bytes(content[:HEADER_BYTES], "little")
        metadata = json.loads(content[HEADER_BYTES:end]).get("__metadata__", {})
        known = metadata.get(CONTENT) or json.loads(metadata.get("about", "{}")).get(CONTENT)
        intact = known is None or weights_hash(content) == known
    except (ValueError, AttributeError, RecursionError) as error:  # the header is no JSON object
        raise DamagedContent(f"{path} is damaged: its header cannot be read ({error})") from error
    if not intact:
        raise DamagedContent(f"{path} is damaged: its weights are not those that were written")
    return known is not None
