"""What the recorder tells people: one line an incident, as text or as JSON, with secrets blotted out."""

import json
import sys
from typing import Any, Literal, TextIO

from uqlob_pipeline.kraken.snapshot import time_text

LogStyle = Literal["text", "json"]


class Journal:
    """Incidents go to one stream (standard error). Strings handed to `hide` never appear in it."""

    def __init__(self, style: LogStyle = "text", stream: TextIO | None = None) -> None:
        self.style, self.stream = style, stream
        self._secrets: set[str] = set()

    def hide(self, secret: str) -> None:
        if secret:
            self._secrets.add(secret)

    def forget(self, secret: str) -> None:
        self._secrets.discard(secret)

    def redact(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "[hidden]")
        return text

    def tell(self, received_at: int, level: Literal["info", "warning", "error"], incident: str, **facts: Any) -> None:
        if self.style == "json":
            line = json.dumps({"time": time_text(received_at), "level": level, "incident": incident, **facts}, default=str)
        else:
            said = " ".join(f"{name}={value}" for name, value in facts.items())
            line = f"{time_text(received_at)[:23]}Z {level:7s} {incident} {said}".rstrip()
        # Looked up each time: a live display may stand in for standard error.
        print(self.redact(line), file=self.stream or sys.stderr, flush=True)
