"""Manifests of clusters, and the key of one whose processes are started without larder-cluster."""
import json
import os
import pathlib
import secrets


def socket(name, role, cores, **keys):
    """A socket of a server, for manifest(). Keys whose value is None are left out, here and
    below.
    """
    return {"name": name, "role": role, "cores": cores, **keys}


def server(name, *sockets, **keys):
    return {"name": name, **keys}, sockets


def manifest(*servers, name, model=None, link=None):
    """The text of a manifest of servers; `model` and `link` are the keys of these tables. Names of
    Unix sockets hold `name`.
    """
    lines = _lines({"name": name})
    for table, keys in (("[model]", model), ("[link]", link)):
        lines += [table, *_lines(keys)] if keys else []
    for keys, sockets in servers:
        lines += ["[[server]]", *_lines(keys)]
        for each in sockets:
            lines += ["[[server.socket]]", *_lines(each)]
    return "\n".join(lines) + "\n"


def _lines(keys):
    # TOML's, of text, numbers and bools
    return [f"{key} = {json.dumps(value)}" for key, value in keys.items() if value is not None]


def make_key(folder):
    key = pathlib.Path(folder, "link.key")
    with open(os.open(key, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w",
              encoding="ascii") as file:
        file.write(secrets.token_hex(32) + "\n")
    return key
