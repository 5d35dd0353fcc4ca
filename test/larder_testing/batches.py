"""Files and batches of a server with `--batch-dir`, as clients of OpenAI's API use them."""
import json

from larder_testing.waiting import until


def send(server, lines):
    """The id of a file of these lines."""
    text = "".join(json.dumps(line) + "\n" for line in lines).encode()
    form = (b'--edge\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
            b'--edge\r\nContent-Disposition: form-data; name="file"; filename="in.jsonl"\r\n\r\n' +
            text + b"\r\n--edge--\r\n")
    status, body = server.post("/v1/files", form,
                               "Content-Type: multipart/form-data; boundary=edge\r\n")
    assert status == 200, body
    return json.loads(body)["id"]


def create(server, file):
    status, body = server.post(
        "/v1/batches",
        {"input_file_id": file, "endpoint": "/v1/completions", "completion_window": "24h"})
    assert status == 200, body
    return json.loads(body)["id"]


def look(server, batch):
    return json.loads(server.get(f"/v1/batches/{batch}")[1])


def ended(server, batch, limit_s=120):
    until(lambda: look(server, batch)["status"] in ("completed", "failed", "cancelled"), limit_s,
          lambda: look(server, batch))
    return look(server, batch)
