"""`larder serve` for the tests of this folder: that of scripts/, which is where its other clients are."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))
from serve_testing import Server as Served  # noqa: E402,F401
