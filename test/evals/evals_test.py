#!/usr/bin/env python3
"""lm-evaluation-harness, unmodified, against `larder serve`: tasks of all its kinds of requests
(tasks/, data/), to their end, with the server's own tokenizer. Of a real model it chooses the
answers that it chooses with transformers in float32 on what the same file dequantises to, but where
two are as good as each other.

    test/evals/evals_test.py --larder build/larder --model model/demo/larder-stories.gguf
    test/evals/evals_test.py --larder build/larder --real smollm2-135m

LARDER_LM_EVAL: a Python that has lm_eval[api]; for --real also torch, transformers, accelerate and
gguf. LARDER_REAL_MODELS: the folder of test/real/models.py. Skipped without them.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "real")]
import models
from larder_testing import programs
from larder_testing.server import Server

SCORED = ("larder_choice", "larder_cloze", "larder_text")
COUNTS = {"larder_choice": 32, "larder_cloze": 24, "larder_text": 5, "larder_generate": 12}
MOST_TIES = 1  # of a task's samples
# How far the log-likelihood of an answer may be from float32's, on average and at most, in nats:
# twice what was measured over 152 answers, which is 0.150 and 0.587 of SmolLM2, 0.060 and 0.268 of
# Qwen. Larder has activations of 8 bits.
LIMITS = {"smollm2-135m": (0.30, 1.18), "qwen2.5-coder-0.5b": (0.12, 0.54)}


def python():
    found = os.environ.get("LARDER_LM_EVAL") or programs.skip(
        "LARDER_LM_EVAL is not set: a Python that has lm_eval[api]")
    for module in ("lm_eval", "aiohttp", "tenacity"):
        if subprocess.run([found, "-c", f"import {module}"], capture_output=True,
                          check=False).returncode:
            programs.skip(f"{found} has no {module}: pip install 'lm_eval[api]'")
    return found


def evaluate(folder, model, arguments, tasks, *options):
    """The samples of each task, in order: what the harness sent, got and made of it."""
    for path in (HERE / "tasks").glob("*.yaml"):
        folder.joinpath(path.name).write_text(path.read_text().replace("DATA", str(HERE / "data")))
    out = pathlib.Path(tempfile.mkdtemp(dir=folder))
    given = ",".join(f"{name}={value}" for name, value in arguments.items())
    done = subprocess.run([
        python(), "-m", "lm_eval", "run", "--model", model, "--model_args", given, "--tasks",
        ",".join(tasks), "--include_path", folder, "--output_path", out, "--log_samples", *options
    ], capture_output=True, text=True, check=False, env={
        **os.environ, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1",
        "HF_HOME": str(folder / "hf")
    })
    assert done.returncode == 0, done.stderr[-3000:]
    samples = {}
    for task in tasks:
        path, = out.rglob(f"samples_{task}_*.jsonl")
        samples[task] = sorted((json.loads(line) for line in path.read_text().splitlines()),
                               key=lambda sample: sample["doc_id"])
        assert len(samples[task]) == COUNTS[task], task
    return samples


def likelihoods(samples):
    """(log-likelihood, whether each token was the likeliest) of every answer of every sample."""
    answers = [response[0] for sample in samples for response in sample["resps"]]
    pairs = [(float(one[0]), str(one[1]) == "True") if isinstance(one, list) else (float(one), None)
             for one in answers]
    assert all(value < 0 for value, _ in pairs), pairs
    return pairs


def mean(samples, metric):
    return sum(sample[metric] for sample in samples) / len(samples)


def over_completions(folder, server, tasks, *options, **arguments):
    return evaluate(
        folder, "local-completions", {
            "model": "any", "base_url": f"{server.url}/v1/completions",
            "tokenizer_backend": "remote", **arguments
        }, tasks, *options)


def demo(o, folder):
    with Server(o.larder, o.model, "--slots", "4", "--chat-template", "chatml") as server:
        one_by_one = over_completions(folder, server, COUNTS, num_concurrent=4)
        batches = over_completions(folder, server, SCORED, "--batch_size", "8")
        for task in SCORED:
            assert likelihoods(one_by_one[task]) == likelihoods(
                batches[task]), f"{task}: batches have other numbers"
        chat = evaluate(
            folder, "local-chat-completions",
            {"model": "any", "base_url": f"{server.url}/v1/chat/completions", "num_concurrent": 4},
            ["larder_generate"], "--apply_chat_template")
        assert all(
            isinstance(sample["resps"][0][0], str)
            for sample in chat["larder_generate"] + one_by_one["larder_generate"])
    print(
        f"{len(COUNTS)} tasks: cloze acc {mean(one_by_one['larder_cloze'], 'acc'):.3f}, choice acc "
        f"{mean(one_by_one['larder_choice'], 'acc'):.3f}")


def real(o, folder):
    if not os.environ.get("LARDER_REAL_MODELS"):
        programs.skip("LARDER_REAL_MODELS is not set: the folder of test/real/models.py")
    model = models.path_of(os.environ["LARDER_REAL_MODELS"],
                           next(model for model in models.MODELS if model.name == o.real))
    if not model.exists():
        programs.skip(f"{model} is not there: test/real/models.py gets it")
    if subprocess.run([python(), "-c", "import torch, transformers, accelerate, gguf"],
                      capture_output=True, check=False).returncode:
        programs.skip(
            "LARDER_LM_EVAL's Python has not all of torch, transformers, accelerate and gguf")
    with Server(o.larder, model, "--slots", "4") as server:
        ours = over_completions(folder, server, COUNTS, num_concurrent=4)
    truth = evaluate(folder, "hf",
                     {"pretrained": model.parent, "gguf_file": model.name, "dtype": "float32"},
                     COUNTS, "--device", "cpu", "--batch_size", "8")
    most_average, most = LIMITS[o.real]
    apart = [
        abs(a - b) for task in SCORED[:2]
        for (a, _), (b, _) in zip(likelihoods(ours[task]), likelihoods(truth[task]), strict=True)
    ]
    average = sum(apart) / len(apart)
    print(
        f"log-likelihoods of {len(apart)} answers: {average:.4f} apart on average, {max(apart):.4f}"
        " at most")
    ties = 0
    for here, there in zip(ours["larder_choice"], truth["larder_choice"], strict=True):
        best, second = sorted((value for value, _ in likelihoods([there])), reverse=True)[:2]
        if here["acc"] != there["acc"]:
            assert (best - second <= 2 *
                    most), f"{there['doc']}: transformers' answer is better by {best - second}"
            ties += 1
    print(f"choices: {ties} of {len(ours['larder_choice'])} differ, where two answers are as good")
    for task, metric in (("larder_choice", "acc"), ("larder_choice", "acc_norm"),
                         ("larder_cloze", "acc"), ("larder_generate", "exact_match")):
        here, there = mean(ours[task], metric), mean(truth[task], metric)
        print(f"{task} {metric}: {here:.4f}, transformers {there:.4f}")
        assert abs(here - there) * COUNTS[task] <= MOST_TIES, (task, metric)
    assert average <= most_average and max(apart) <= most and ties <= MOST_TIES


def main():
    options = programs.parser(__doc__, "larder")
    options.add_argument("--model", help="the demo model")
    options.add_argument("--real", choices=LIMITS)
    o = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="larder-evals-") as folder:
        (real if o.real else demo)(o, pathlib.Path(folder))


if __name__ == "__main__":
    main()
