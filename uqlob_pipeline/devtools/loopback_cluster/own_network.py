"""A network with nothing but loopback: Ray listens on all interfaces, and nobody outside shall reach it."""

import ctypes
import fcntl
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager

CLONE_NEWNET = 0x40000000
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 0x1


@contextmanager
def own_network() -> Iterator[bool]:
    """Threads and processes that this thread starts see loopback alone; yields whether that is so.

    It needs the rights of root. Without them Ray's ports are protected by its token alone.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        entered = libc.unshare(CLONE_NEWNET) == 0
        if entered:
            _turn_on_loopback()
        try:
            yield entered
        finally:
            if entered and libc.setns(before, CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "the former network cannot be entered again")
    finally:
        os.close(before)


def _turn_on_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = struct.pack("16sH14x", b"lo", 0)
        (flags,) = struct.unpack("16xH14x", fcntl.ioctl(control, SIOCGIFFLAGS, request))
        fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | IFF_UP))
