"""Requests of many kinds to a server (server.Endpoint), and what each gives as one text."""
import json
import random

from larder_testing.replies import joined, raise_error, read_all, texts_of_events, texts_of_lines

BEGINNINGS = [
    "Once upon a time", "The cat", "One day, a little girl named", "Tom and Amy went to the",
    "It was raining. The duck", "In the garden"
]


def make_requests(count, seed):
    """Different ones, each with one right answer: they have seeds."""
    rng = random.Random(seed)
    requests = []
    for i in range(count):
        prompt = " ".join(rng.choice(BEGINNINGS) for _ in range(rng.choice([1, 1, 2, 12])))
        requests.append({
            "prompt": prompt, "max_tokens": rng.randint(1, 60),
            "temperature": rng.choice([0, 0.7, 1.2]), "seed": i, "top_k": rng.choice([0, 40]),
            "repeat_penalty": rng.choice([1,
                                          1.1]), **({"stop": ["."]} if rng.random() < 0.2 else {})
        })
    return requests


def post(server, path, request):
    """The body of the answer; Failed if it is an error."""
    status, body = server.post(path, request)
    if status != 200:
        raise_error(json.loads(body))
        raise ValueError(f"status {status} without an error: {body[:200]}")
    return body


def completion(server, request):
    return json.loads(post(server, "/v1/completions", request))["choices"][0]["text"]


def streamed(server, path, request):
    return joined(texts_of_events(post(server, path, {**request, "stream": True}).split(b"\n")))


def plain_text(server, prompt):
    """All that the text stream says to a plain line."""
    with server.connect(server.text) as connection:
        connection.sendall(prompt.encode() + b"\n")
        return read_all(connection).decode(errors="replace")


def text_stream(server, request):
    with server.connect(server.text) as connection:
        connection.sendall(json.dumps(request).encode() + b"\n")
        return joined(texts_of_lines(connection.makefile("rb")))


def cancelled(server, request):
    """What a request gives that is cancelled when its first text has come: the beginning of what it
    would have given.
    """
    with server.connect(server.text) as connection:
        connection.sendall(json.dumps({**request, "id": "a"}).encode() + b"\n")
        text = ""
        for i, part in enumerate(texts_of_lines(connection.makefile("rb"))):
            text += part
            if i == 0:
                connection.sendall(b'{"cancel":"a"}\n')
        return text


def leave(server, request, over_text, rng):
    """A long request of somebody who goes away after some bytes, or before any."""
    with server.connect(server.text if over_text else server.http) as connection:
        body = json.dumps({**request, "max_tokens": 300, "stream": True}).encode()
        head = (b"" if over_text else
                (b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type:"
                 b" application/json\r\nContent-Length: %d\r\n\r\n") % len(body))
        connection.sendall(head + body + b"\n")
        if rng.random() < 0.7:
            connection.recv(rng.randint(1, 2000))
