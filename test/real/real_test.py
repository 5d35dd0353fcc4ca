#!/usr/bin/env python3
"""How far a real trained model's next-token distributions are from float32: prose in four languages
and code, each position's KL divergence from the logits of transformers' code on the same file
(oracle.py). Outliers of trained weights are in no random model.

    test/real/real_test.py --larder build/larder --name qwen2.5-coder-0.5b

LARDER_REAL_MODELS: the folder of models.py; LARDER_ORACLE: a Python that has torch, transformers,
accelerate and gguf. Skipped without them.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import models
from larder_testing import programs

HERE = pathlib.Path(__file__).resolve().parent
TEXTS = ("en", "de", "fr", "es", "code")
# (mean, 99 % of positions, share of positions with the same best token) that must be kept: what
# llama.cpp v0.5.0 has on the same text is in docs/truth.md; these are a tenth above what Larder
# had.
LIMITS = {"qwen2.5-coder-0.5b": (0.00125, 0.0072, 0.965), "smollm2-135m": (0.0043, 0.0265, 0.95),
          "gemma3-270m": (0.0037, 0.019, 0.945)}


def oracle(*arguments):
    return subprocess.run(
        [os.environ["LARDER_ORACLE"], "-B", HERE / "oracle.py", *map(str, arguments)], check=True,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout


def main():
    options = programs.parser(__doc__, "larder")
    options.add_argument("--name", required=True, choices=LIMITS)
    options.add_argument("--tokens", type=int, default=2560)
    o = options.parse_args()
    for name, what in (("LARDER_REAL_MODELS", "the folder of test/real/models.py"),
                       ("LARDER_ORACLE",
                        "a Python that has torch, transformers, accelerate and gguf")):
        if not os.environ.get(name):
            programs.skip(f"{name} is not set: {what}")
    model = models.path_of(os.environ["LARDER_REAL_MODELS"],
                           next(model for model in models.MODELS if model.name == o.name))
    if not model.exists():
        programs.skip(f"{model} is not there: test/real/models.py gets it")
    with tempfile.TemporaryDirectory(prefix="larder-real-") as folder:
        text, ids, truth, ours = (pathlib.Path(folder, name)
                                  for name in ("text", "ids", "truth", "ours"))
        text.write_text("\n".join((HERE / "texts" / f"{name}.txt").read_text() for name in TEXTS))
        oracle("ids", model, text, ids, "--tokens", o.tokens)
        oracle("logits", model, ids, truth)
        subprocess.run([
            o.larder, "perplexity", "-m", model, "--ids", ids, "--logits", ours, "-c",
            str(o.tokens)
        ], check=True, capture_output=True)
        positions = len(ids.read_text().split())
        found = json.loads(oracle("compare", truth, ours, truth.stat().st_size // 4 // positions))
    print(f"{o.name}: {found['positions']} positions, mean KL {found['mean']:.4f}, 99 % "
          f"{found['p99']:.3f}, worst {found['worst']:.2f} at {found['worst_at']}, top-1 "
          f"{found['top1']:.3f}")
    mean, p99, top1 = LIMITS[o.name]
    assert found["positions"] >= 2500, found
    assert (found["mean"] <= mean and found["p99"] <= p99 and found["top1"]
            >= top1), f"expected at most {mean} and {p99}, and top-1 of at least {top1}"


if __name__ == "__main__":
    main()
