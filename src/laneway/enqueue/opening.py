"""The broker of an app: opened when it is first used, seen to be able to serve its tasks, and let go of again."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from ..capabilities import develop
from ..tasks.registry import Registry
from ..unsupported import refusal_for, refusal_of, see_possible
from ..urls import open_broker, resolve_url, without_secrets

if TYPE_CHECKING:
    from ..broker import Broker
    from ..tasks.task import AnyTask


class Opening:
    """The part of an app that has its broker."""

    registry: Registry

    def __init__(self, url: str | None, broker: Broker | None) -> None:
        self._given_url = url
        self._given_broker = broker
        self._broker = broker
        self._opening = threading.Lock()
        self._development = False
        #: Queues that were seen to be there.
        self._made: set[str] = set()

    @property
    def url(self) -> str:
        """The broker's URL as it may be printed."""
        if self._given_broker is not None:
            return type(self._given_broker).__name__
        return without_secrets(resolve_url(self._given_url)[0])

    @property
    def full_url(self) -> str | None:
        """The broker's URL with its secrets, for another process of this app; None if it was made with a broker."""
        return None if self._given_broker is not None else resolve_url(self._given_url)[0]

    @property
    def broker(self) -> Broker:
        """The broker; opened when it is first used."""
        if self._broker is None:
            with self._opening:  # two threads must not open two brokers: what is in memory would be in one of them
                if self._broker is None:
                    self._broker = self._opened(*resolve_url(self._given_url))
        return self._broker

    @property
    def development(self) -> bool:
        """Whether what is missing is made by whoever needs it; a broker that cares is told."""
        return self._development

    @development.setter
    def development(self, on: bool) -> None:
        changed, self._development = on is not self._development, on
        if changed and self._broker is not None:
            develop(self._broker, on)

    def _opened(self, url: str, source: str = "the url given") -> Broker:
        """The broker of a URL, if it can serve the tasks that are declared."""
        broker = open_broker(url, source)
        try:
            see_possible(refusal_of(broker), self.registry)
        except BaseException:
            broker.close()
            raise
        if self._development:
            develop(broker, True)
        return broker

    def use(self, url: str) -> None:
        """Move the app to another broker than the one it was made with: for tests, and for `--url`."""
        broker = self._opened(url)
        self.close()
        self._given_url, self._given_broker, self._broker = url, None, broker
        self._made.clear()

    def close(self) -> None:
        """Let go of the broker's files and connections; using the app opens them again."""
        if self._broker is not None:
            self._broker.close()

    def see_possible(self, task: AnyTask) -> None:
        """Raise DeclarationError for a task that the broker cannot serve; for that it need not be opened."""
        broker = self._broker
        refusal = refusal_for(resolve_url(self._given_url)[0]) if broker is None else refusal_of(broker)
        see_possible(refusal, [task])
