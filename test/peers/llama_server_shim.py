#!/usr/bin/env -S python3 -B
"""Stands where llama.cpp's tests look for `llama-server` (LLAMA_SERVER_BIN_PATH) and becomes
`larder serve`.

The model's place and the context, which is each slot's own there, are translated. Every other flag
goes to Larder as it is, which has a table of llama-server's (node/options/peer_flags.h) and refuses
what it does not know: the shim hides nothing.

Variables: LARDER_SHIM_PROGRAM, the program; LARDER_SHIM_MODELS, the folder of the models.
"""
import os
import pathlib
import sys

# By repository and file of Hugging Face: ours, and what the peer's file says of itself. The tests
# of embeddings, relevance and filling in look at shapes, at the length 1 and at answers to bad
# requests: a model that is here stands in for theirs (stand_ins.py). No other of their models has a
# stand-in.
MODELS = {
    "ggml-org/test-model-stories260K": ("stories260K.gguf", {}),
    "ggml-org/test-model-stories260K-infill": ("stories260K-infill.gguf", {}),
    "ggml-org/models jina-reranker-v1-tiny-en/ggml-model-f16.gguf": ("stories260K-rank.gguf",
                                                                     {"--pooling": "rank"}),
    "ggml-org/models bert-bge-small/ggml-model-f16.gguf": ("stories260K.gguf",
                                                           {"--pooling": "mean"})
}

# Refused by Larder, whose templates are always Jinja.
LEFT_OUT = {"--no-jinja"}

# llama.cpp's variables, which a flag of the command line replaces.
VARIABLES = {
    "LLAMA_ARG_HOST": "--host", "LLAMA_ARG_PORT": "--port", "LLAMA_ARG_CTX_SIZE": "--ctx-size",
    "LLAMA_ARG_N_PARALLEL": "--parallel", "LLAMA_ARG_N_PREDICT": "--n-predict",
    "LLAMA_ARG_ALIAS": "--alias", "LLAMA_API_KEY": "--api-key",
    "LLAMA_ARG_CHAT_TEMPLATE": "--chat-template",
    "LLAMA_ARG_CHAT_TEMPLATE_FILE": "--chat-template-file"
}


def parsed(words):
    """Pairs of a flag and its value, None for those without one."""
    pairs, words = [], list(words)
    while words:
        flag = words.pop(0)
        has_value = bool(words) and not (words[0].startswith("--") and len(words[0]) > 2)
        pairs.append((flag, words.pop(0) if has_value else None))
    return pairs


def with_model(options, folder):
    """The options with a file for the repository that they name. Without a model llama-server would
    be a router; Larder says that it wants one, except where the test is of web pages, for which any
    server will do.
    """
    wanted = " ".join(options.pop(name) for name in ("--hf-repo", "--hf-file") if name in options)
    if not wanted and "--cors-origins" in options:
        wanted = "ggml-org/test-model-stories260K"
    if not wanted:
        return options
    if wanted not in MODELS:
        sys.exit(f"llama_server_shim: no model {wanted}")
    file, says = MODELS[wanted]
    return {"--model": str(folder / file), **says, **options}


def translated(pairs, environment):
    """The words after `larder serve`."""
    options = {flag: environment[name] for name, flag in VARIABLES.items() if name in environment}
    options.update(pairs)
    options = with_model(options, pathlib.Path(environment["LARDER_SHIM_MODELS"]))
    words = []
    # Theirs is of all slots together, ours of each.
    slots = int(options.get("--parallel", 4))
    if "--ctx-size" in options:
        context = int(options.pop("--ctx-size"))
        if "--kv-unified" in options:
            words += ["--ctx-size", str(context), "--kv-tokens", str(context)]
        else:
            words += ["--ctx-size", str(context // slots)]
    options.pop("--kv-unified", None)
    for flag, value in options.items():
        if flag in LEFT_OUT:
            continue
        words.append(flag)
        if value is not None:
            words.append(value)
    return words


def main():
    program = os.environ["LARDER_SHIM_PROGRAM"]
    command = [program, "serve", "--text-port", "-1", *translated(parsed(sys.argv[1:]), os.environ)]
    print("llama_server_shim:", *command, flush=True)
    os.execv(program, command)  # its process id and its signals are the tests' from here


if __name__ == "__main__":
    main()
