"""The recorder's log: one line per incident, as text or as JSON, with secrets redacted."""

import json
import sys
import time
from typing import Any, Literal, TextIO

from uqlob_pipeline.market.kraken.wire import time_text

LogStyle = Literal["text", "json"]


class EventLog:
    """Writes incidents to one stream (standard error). Strings passed to `hide` never appear in it."""

    def __init__(self, style: LogStyle = "text", stream: TextIO | None = None) -> None:
        self.style, self.stream = style, stream
        self._secrets: set[str] = set()

    def hide(self, secret: str) -> None:
        if secret:
            self._secrets.add(secret)

    def unhide(self, secret: str) -> None:
        self._secrets.discard(secret)

    def redact(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "[hidden]")
        return text

    def log(self, level: Literal["info", "warning", "error"], incident: str, **fields: Any) -> None:
        now = time_text(time.time_ns())
        if self.style == "json":
            line = json.dumps({"time": now, "level": level, "incident": incident, **fields}, default=str)
        else:
            values = " ".join(f"{name}={value}" for name, value in fields.items())
            line = f"{now[:23]}Z {level:7s} {incident} {values}".rstrip()
        # sys.stderr is looked up on each call, because a live display may replace it.
        print(self.redact(line), file=self.stream or sys.stderr, flush=True)
