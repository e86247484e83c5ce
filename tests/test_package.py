"""The package itself: quick to import, and its public verbs are where it says."""

from __future__ import annotations

import subprocess
import sys

import holmes


def test_importing_holmes_does_not_import_torch() -> None:
    code = "import sys, holmes; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_public_verbs_exist() -> None:
    for name in holmes.__all__:
        assert callable(getattr(holmes, name)), name
    assert holmes.preset("tvr").name == "tvr"
