"""Reloads the definitions of a running Dagster UI when a day is recorded or the profile is edited.

The dates of the partitions end at the last day that is recorded or planned, and are fixed when the definitions are loaded. Page
and daemon share one code server, so that both see the new definitions within a second or two.
"""

import json
import time
import urllib.error
import urllib.request

from uqlob_pipeline.config.profile import ProfileError, profile_path, read_profile
from uqlob_pipeline.defs.partitions import last_day
from uqlob_pipeline.lake.layout import Lake

EVERY_S = 10.0
MUTATION = "mutation { reloadWorkspace { __typename } }"


class DefinitionsReload:
    """Compares, every ten seconds, what the definitions depend on with what it was."""

    def __init__(self, dagster_url: str, lake: Lake, profile_name: str) -> None:
        self.url, self.lake, self.profile_name = dagster_url, lake, profile_name
        self.loaded = self._state()
        self.next_check = time.monotonic() + EVERY_S

    def reload_if_changed(self) -> bool:
        """Reload if something has changed; True if it did."""
        if time.monotonic() < self.next_check:
            return False
        self.next_check = time.monotonic() + EVERY_S
        now = self._state()
        if now == self.loaded or not reload_definitions(self.url):
            return False
        self.loaded = now
        return True

    def _state(self) -> tuple[str, str]:
        path = profile_path(self.profile_name)
        try:
            profile = read_profile(path)
        except (ProfileError, OSError):  # being edited: the next look sees the whole file
            return self.loaded if hasattr(self, "loaded") else ("", "")
        self.lake.refresh()
        return profile.fingerprint, last_day(profile, self.lake).isoformat()


def reload_definitions(dagster_url: str) -> bool:
    """Have the code server behind a Dagster UI load the definitions again; whether it did."""
    body = json.dumps({"query": MUTATION}).encode()
    request = urllib.request.Request(  # noqa: S310 (the address of the UI)
        f"{dagster_url}/graphql", body, {"Content-Type": "application/json", "Origin": dagster_url}
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as response:  # noqa: S310
            return "errors" not in json.load(response)
    except (OSError, ValueError, urllib.error.HTTPError):
        return False
