"""Verify a store's features beside other work: training need not wait for it, only not finish before it."""

from __future__ import annotations

from pathlib import Path
from threading import Thread

from holmes.data.store import DAMAGED, Store
from holmes.data.store_manifest import FEATURES
from holmes.errors import HolmesError
from holmes.files import sha256_file

_sound: set[tuple[Path, str]] = set()  # what this process has verified already


class FeatureCheck:
    """Reads the large arrays once in the background; `require` waits for the verdict."""

    def __init__(self, store: Store) -> None:
        self.store, self.fault = store, ""
        self.key = (store.path.resolve(), store.info.digest)
        self.thread = Thread(target=self._read, name="verify features", daemon=True)
        if self.key not in _sound:
            self.thread.start()

    def _read(self) -> None:
        try:
            for name in FEATURES:
                if sha256_file(self.store.path / name) != self.store.info.files[name].sha256:
                    self.fault = f"{self.store.path / name} {DAMAGED}; pack the store again."
                    return
        except (OSError, HolmesError) as error:
            self.fault = f"{self.store.path} cannot be verified: {error}"

    def require(self) -> None:
        """Raise HolmesError if the features are not those that were packed."""
        if self.key in _sound:
            return
        self.thread.join()
        if self.fault:
            raise HolmesError(self.fault)
        _sound.add(self.key)
