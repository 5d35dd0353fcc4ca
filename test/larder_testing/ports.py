"""Ports of the loopback device that nobody else is given."""
import atexit
import socket

# Sockets that are bound and never listen; larder and QEMU may still listen there (SO_REUSEADDR)
_RESERVED = []


@atexit.register
def _close():
    for reserved in _RESERVED:
        reserved.close()


def _reserve(port):
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        reserved.bind(("127.0.0.1", port))
    except OSError:
        reserved.close()
        raise
    return reserved


def free_port():
    """A port that no other program is given while this one runs."""
    _RESERVED.append(_reserve(0))
    return _RESERVED[-1].getsockname()[1]


def free_ports(count):
    """The first of `count` ports in a row, likewise. Below those that the system gives to
    connections.
    """
    for first in range(20000, 32000 - count, count):
        reserved = []
        try:
            for port in range(first, first + count):
                # Without SO_REUSEADDR: another program's reserved port counts as taken
                probe = socket.socket()
                probe.bind(("127.0.0.1", port))
                probe.close()
                reserved.append(_reserve(port))
        except OSError:
            for taken in reserved:
                taken.close()
            continue
        _RESERVED.extend(reserved)
        return first
    raise OSError(f"no {count} free ports in a row between 20000 and 32000")
