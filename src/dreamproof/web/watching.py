"""One watcher for all studies: looks at their files, counts versions, and wakes whoever follows the events."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any
from weakref import WeakSet

from dreamproof.web.followed import FollowedStudy
from dreamproof.web.found import Studies

POLL_SECONDS = 0.25
FOLDERS_SECONDS = 5.0
KEEP_ALIVE_SECONDS = 15.0
RETRY_MILLISECONDS = 1000


class Follower:
    """One open stream of events: which studies changed since it was last written to. It never grows beyond that."""

    def __init__(self) -> None:
        self.changed: set[str] = set()
        self.woken = asyncio.Event()

    def wake(self, names: set[str]) -> None:
        """Adds studies that changed."""
        self.changed |= names
        self.woken.set()

    def take(self) -> set[str]:
        """The studies that changed; from here on none did."""
        taken, self.changed = self.changed, set()
        self.woken.clear()
        return taken


class Watcher:
    """Polls the studies as long as it runs; a change is known after at most POLL_SECONDS and the time to read it."""

    def __init__(self, studies: Studies) -> None:
        self.studies = studies
        # A stream that never begins is forgotten with its follower.
        self._followers: WeakSet[Follower] = WeakSet()
        self._closed = False

    @property
    def followers(self) -> int:
        """How many streams are open."""
        return len(self._followers)

    async def run(self) -> None:
        """Watches until it is cancelled."""
        since_folders = 0.0
        while True:
            changed = await asyncio.to_thread(self._look, since_folders >= FOLDERS_SECONDS)
            since_folders = 0.0 if since_folders >= FOLDERS_SECONDS else since_folders + POLL_SECONDS
            if changed:
                for follower in list(self._followers):
                    follower.wake(changed)
            await asyncio.sleep(POLL_SECONDS)

    def _look(self, at_folders: bool) -> set[str]:
        new = {study.name for study in self.studies.look_again()} if at_folders else set()
        return new | {name for name, study in list(self.studies.by_name.items()) if study.refresh()}

    def close(self) -> None:
        """Ends every stream."""
        self._closed = True
        for follower in list(self._followers):
            follower.wake(set())

    def events(self) -> AsyncIterator[str]:
        """Server-sent events: the versions of all studies first, then of those that change; counted from now on."""
        follower = Follower()
        self._followers.add(follower)
        return self._events(follower)

    async def _events(self, follower: Follower) -> AsyncIterator[str]:
        try:
            yield f"retry: {RETRY_MILLISECONDS}\n" + _event("hello", self._versions(set(self.studies.by_name)))
            while not self._closed:
                try:
                    await asyncio.wait_for(follower.woken.wait(), KEEP_ALIVE_SECONDS)
                except TimeoutError:
                    yield ": alive\n\n"
                    continue
                taken = follower.take()
                if taken:
                    yield _event("change", self._versions(taken))
        finally:
            self._followers.discard(follower)

    def _versions(self, names: set[str]) -> dict[str, Any]:
        return {name: versions(self.studies.by_name[name]) for name in sorted(names)}


def versions(study: FollowedStudy) -> dict[str, int]:
    """Versions of a study and the events of its ledger: a page asks again only for what changed."""
    return {
        "version": study.version,
        "ledger": study.ledger_version,
        "progress": study.progress_version,
        "events": study.event_count,
    }


def _event(kind: str, values: dict[str, Any]) -> str:
    return f"event: {kind}\ndata: {json.dumps(values, separators=(',', ':'))}\n\n"
