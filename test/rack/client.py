#!/usr/bin/env python3
"""A client of a cluster's serving socket: prints a story's text as it comes. Exit status 1, and why
on standard error, if it did not end well.

    test/rack/client.py --http 127.0.0.1:8080 -n 100 -p "Once upon a time"
    test/rack/client.py --text 127.0.0.1:7070 ...
    test/rack/client.py --http 127.0.0.1:8080 --health
"""
import http.client
import json
import pathlib
import socket
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from larder_testing import programs, story
from larder_testing.replies import Failed, texts_of_events, texts_of_lines


def say(text):
    sys.stdout.write(text)
    sys.stdout.flush()


def fail(why):
    sys.exit(f"client: error: {why}")


def by_http(host, port, o):
    """Server-sent events, as OpenAI's clients read them."""
    connection = http.client.HTTPConnection(host, port, timeout=o.timeout)
    connection.request(
        "POST", "/v1/completions",
        json.dumps({
            "prompt": o.prompt, "max_tokens": o.tokens, "temperature": 0, "ignore_eos": True,
            "stream": True
        }))
    answer = connection.getresponse()
    if answer.status != 200:
        fail(f"HTTP {answer.status}: {json.loads(answer.read())['error']['message']}")
    for text in texts_of_events(answer):
        say(text)


def by_text(host, port, o):
    with socket.create_connection((host, port), timeout=o.timeout) as s:
        request = {"prompt": o.prompt, "n_predict": o.tokens, "temperature": 0, "ignore_eos": True}
        s.sendall((json.dumps(request) + "\n").encode())
        for text in texts_of_lines(s.makefile("rb")):
            say(text)


def main():
    parser = programs.parser(__doc__)
    parser.add_argument("--http", metavar="HOST:PORT")
    parser.add_argument("--text", metavar="HOST:PORT")
    parser.add_argument("--health", action="store_true",
                        help="print what /health says; exit status 0 if it says 200")
    parser.add_argument("-p", "--prompt", default=story.PROMPT)
    parser.add_argument("-n", "--tokens", type=int, default=100)
    parser.add_argument("--timeout", type=float, default=600,
                        help="seconds without a byte (default: 600)")
    o = parser.parse_args()
    host, _, port = (o.http or o.text).rpartition(":")
    try:
        if o.health:
            connection = http.client.HTTPConnection(host, int(port), timeout=o.timeout)
            connection.request("GET", "/health")
            answer = connection.getresponse()
            print(answer.status, answer.read().decode().strip())
            sys.exit(0 if answer.status == 200 else 1)
        say(o.prompt)
        (by_http if o.http else by_text)(host, int(port), o)
        say("\n")
    except Failed as failed:
        fail(str(failed))
    except (OSError, http.client.HTTPException, ValueError) as error:
        fail(f"{o.http or o.text}: {type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
