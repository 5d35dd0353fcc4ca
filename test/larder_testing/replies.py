"""What the server answers: HTTP replies, streams of events, lines of the text stream."""
import json


class Failed(Exception):
    """The server said that a request failed: code (0: it did not even say so), message, and the
    text that came before.
    """

    def __init__(self, code, message, text=""):
        super().__init__(f"{code}: {message}")
        self.code, self.message, self.text = code, message, text


def raise_error(part):
    """Failed, if this object of the server's is an error."""
    if "error" in part:
        raise Failed(part["error"]["code"], part["error"]["message"])


def read_all(connection):
    parts = []
    while data := connection.recv(65536):
        parts.append(data)
    return b"".join(parts)


def split_reply(reply):
    """(status, body) of an HTTP reply, its chunks joined."""
    head, _, body = reply.partition(b"\r\n\r\n")
    status = int(head.split()[1])
    if b"transfer-encoding: chunked" in head.lower():
        joined = b""
        while body:
            size, _, body = body.partition(b"\r\n")
            joined += body[:int(size, 16)]
            body = body[int(size, 16) + 2:]
        body = joined
    return status, body


def events(lines):
    """The objects of a stream of server-sent events, as its lines (bytes) come; it must end with
    [DONE], and no event may be an error.
    """
    done = False
    for line in lines:
        line = line.decode(errors="replace").strip()
        if not line.startswith("data: "):
            continue
        if done:
            raise Failed(0, "an event after [DONE]")
        if line == "data: [DONE]":
            done = True
            continue
        try:
            event = json.loads(line[len("data: "):])
        except ValueError:
            raise Failed(0, "an event that is cut") from None
        raise_error(event)
        yield event
    if not done:
        raise Failed(0, "the stream ended without [DONE]")


def texts_of_events(lines):
    """The text of each event of a stream of completions, of chat or not."""
    for event in events(lines):
        for choice in event["choices"]:
            yield choice["text"] if "text" in choice else choice["delta"].get("content") or ""


def texts_of_lines(lines):
    """The text of each line of the text stream, up to the last line of the request."""
    for line in lines:
        part = json.loads(line)
        raise_error(part)
        yield part["content"]
        if part["stop"]:
            return
    raise Failed(0, "the text stream ended without a last line")


def joined(texts):
    """All texts as one; a Failed has those that came before it."""
    text = ""
    try:
        for part in texts:
            text += part
    except Failed as failed:
        failed.text = text
        raise
    return text
