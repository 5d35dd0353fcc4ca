"""What tests from outside share: the program and what it says, clusters of it, clients. Standard
library only.
"""
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEMO_MODEL = ROOT / "model" / "demo" / "larder-stories.gguf"
