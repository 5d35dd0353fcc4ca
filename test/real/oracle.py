#!/usr/bin/env python3
"""Logits of a real model by its publishers' architecture as transformers has it, in float32, on the
weights that the GGUF file dequantises to: run by a Python that has torch, transformers, accelerate
and gguf, which Larder's tests do without.

    oracle.py ids MODEL.gguf TEXT IDS [--tokens N]     token ids of a text, by the file's tokenizer,
        after BOS if the file wants it
    oracle.py logits MODEL.gguf IDS LOGITS             [ids][vocab] float32
    oracle.py compare LOGITS OTHER VOCAB               JSON: KL(LOGITS || OTHER) in nats, and how
        often the best token is the same
"""
import argparse
import json
import pathlib
import sys

import gguf
import numpy
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench" / "truth"))
from divergence import divergence

ROWS = 128  # of logits at a time: a vocabulary has 150,000 tokens


def ids(model, text, out, tokens):
    tokenizer = AutoTokenizer.from_pretrained(str(model.parent), gguf_file=model.name)
    found = tokenizer(text.read_text(), add_special_tokens=False)["input_ids"]
    wants_bos = gguf.GGUFReader(model).get_field("tokenizer.ggml.add_bos_token")
    if wants_bos is not None and wants_bos.contents():
        found.insert(0, tokenizer.bos_token_id)
    out.write_text(" ".join(map(str, found[:tokens])) + "\n")


def logits(model, ids_file, out):
    network = AutoModelForCausalLM.from_pretrained(str(model.parent), gguf_file=model.name,
                                                   dtype=torch.float32,
                                                   attn_implementation="sdpa").eval()
    given = torch.tensor([[int(word) for word in ids_file.read_text().split()]])
    hidden = network.model(given).last_hidden_state[0]
    with open(out, "wb") as file:
        for begin in range(0, len(hidden), ROWS):
            file.write(network.lm_head(hidden[begin:begin + ROWS]).numpy().tobytes())


def compare(truth_file, other_file, vocab):
    truth, other = (numpy.memmap(path, dtype=numpy.float32, mode="r").reshape(-1, vocab)
                    for path in (truth_file, other_file))
    if truth.shape != other.shape:
        raise ValueError(f"{other_file}: {len(other)} positions, {truth_file}: {len(truth)}")
    print(
        json.dumps(
            divergence([
                torch.from_numpy(numpy.array(rows[begin:begin + ROWS])) for rows in (truth, other)
            ] for begin in range(0, len(truth), ROWS))))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, arguments in (("ids", ("model", "text", "ids")),
                            ("logits", ("model", "ids", "logits")), ("compare", ("logits",
                                                                                 "other"))):
        command = commands.add_parser(name)
        for argument in arguments:
            command.add_argument(argument, type=pathlib.Path)
    commands.choices["ids"].add_argument("--tokens", type=int)
    commands.choices["compare"].add_argument("vocab", type=int)
    o = parser.parse_args()
    with torch.no_grad():
        if o.command == "ids":
            ids(o.model, o.text, o.ids, o.tokens)
        elif o.command == "logits":
            logits(o.model, o.ids, o.logits)
        else:
            compare(o.logits, o.other, o.vocab)


if __name__ == "__main__":
    main()
