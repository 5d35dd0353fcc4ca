#!/usr/bin/env python3
"""A client of a cluster's serving socket: prints a story's text as it comes. Exit status 1, and why on standard error, if it did not end well.

    deploy/rack/client.py --http 127.0.0.1:8080 -n 100 -p "Once upon a time"
    deploy/rack/client.py --text 127.0.0.1:7070 ...
    deploy/rack/client.py --http 127.0.0.1:8080 --health
"""
import argparse
import http.client
import json
import socket
import sys


def say(text):
    sys.stdout.write(text)
    sys.stdout.flush()


def fail(why):
    sys.exit(f"client: error: {why}")


def by_http(host, port, o):
    """Server-sent events, as OpenAI's clients read them."""
    connection = http.client.HTTPConnection(host, port, timeout=o.timeout)
    connection.request("POST", "/v1/completions", json.dumps({"prompt": o.prompt, "max_tokens": o.tokens, "temperature": 0,
                                                              "ignore_eos": True, "stream": True}))
    answer = connection.getresponse()
    if answer.status != 200:
        fail(f"HTTP {answer.status}: {json.loads(answer.read())['error']['message']}")
    for line in answer:
        line = line.decode().strip()
        if line == "data: [DONE]":
            return
        if line.startswith("data: "):
            event = json.loads(line[len("data: "):])
            if "error" in event:
                fail(f"{event['error']['code']}: {event['error']['message']}")
            say("".join(choice["text"] for choice in event["choices"]))
    fail("the answer ended without [DONE]")


def by_text(host, port, o):
    with socket.create_connection((host, port), timeout=o.timeout) as s:
        request = {"prompt": o.prompt, "n_predict": o.tokens, "temperature": 0, "ignore_eos": True}
        s.sendall((json.dumps(request) + "\n").encode())
        for line in s.makefile("r", encoding="utf-8"):
            event = json.loads(line)
            if "error" in event:
                fail(f"{event['error']['code']}: {event['error']['message']}")
            say(event.get("content", ""))
            if event.get("stop"):
                return
    fail("the answer ended without its last line")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--http", metavar="HOST:PORT")
    parser.add_argument("--text", metavar="HOST:PORT")
    parser.add_argument("--health", action="store_true", help="print what /health says; exit status 0 if it says 200")
    parser.add_argument("-p", "--prompt", default="Once upon a time")
    parser.add_argument("-n", "--tokens", type=int, default=100)
    parser.add_argument("--timeout", type=float, default=600, help="seconds without a byte (default: 600)")
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
    except (OSError, http.client.HTTPException, ValueError) as error:
        fail(f"{o.http or o.text}: {type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
