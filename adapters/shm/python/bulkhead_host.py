"""One limit for all processes of a host.

    from bulkhead_host import Limit, Rejected

    gpu = Limit("/run/shop/bulkhead", "gpu", max_concurrent=4, max_queue=20)   # may stand before a server forks
    try:
        with gpu.acquire(timeout=0.2):
            render()
    except Rejected as why:
        return 503, why.reason                                                 # "timeout", "queue_limit" ...

It is the limit of a C++ bulkhead with scope: host of the same name and region. A process that is killed gives its units
back within milliseconds. acquire() releases the GIL while it waits.

Needs libbulkhead_host.so: beside this file, in the library path, or where LIBBULKHEAD_HOST says.
"""
import ctypes
import math
import operator
import os
import pathlib

__all__ = ["Limit", "Permit", "Rejected", "CRITICAL", "NORMAL", "BEST_EFFORT"]

CRITICAL, NORMAL, BEST_EFFORT = 0, 1, 2


class _Stats(ctypes.Structure):
    _fields_ = [("max_concurrent", ctypes.c_uint32), ("in_flight", ctypes.c_uint32),
                ("own_in_flight", ctypes.c_uint32), ("own_waiting", ctypes.c_uint32),
                ("own_admitted", ctypes.c_uint64), ("own_rejected", ctypes.c_uint64)]


def _load():
    name = "libbulkhead_host.so"
    beside = pathlib.Path(__file__).with_name(name)
    library = ctypes.CDLL(os.environ.get("LIBBULKHEAD_HOST") or (str(beside) if beside.exists() else name))
    handle, permit = ctypes.c_void_p, ctypes.c_uint64
    for function, result, arguments in (
            ("open", handle, [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_char_p,
                              ctypes.c_size_t]),
            ("acquire", ctypes.c_int, [handle, ctypes.c_uint32, ctypes.c_int, ctypes.c_int64, ctypes.POINTER(permit)]),
            ("release", ctypes.c_int, [handle, permit]),
            ("resize", ctypes.c_int, [handle, ctypes.c_uint32]),
            ("stat", None, [handle, ctypes.POINTER(_Stats)]),
            ("reason", ctypes.c_char_p, [ctypes.c_int]),
            ("close", None, [handle])):
        entry = getattr(library, "bulkhead_host_" + function)
        entry.restype, entry.argtypes = result, arguments
    return library


_library = _load()


class Rejected(Exception):
    """`reason` is one of the words of bulkhead: concurrency_limit, queue_limit, timeout ..."""

    def __init__(self, name, reason):
        super().__init__(f'bulkhead "{name}" rejected ({reason})')
        self.name, self.reason = name, reason


def _whole(setting, value, least, most):
    """ctypes cuts off the high bits of a number that is too large, so it never sees one."""
    number = operator.index(value)
    if not least <= number <= most:
        raise ValueError(f"{setting} = {number} is out of range: give {least} to {most}")
    return number


class _Handle:
    """Ends with its last reference, so after the last call that uses it."""

    def __init__(self, address):
        self.address = address

    def __del__(self, close=_library.bulkhead_host_close):
        close(self.address)


class Permit:
    """Gives its units back at the end of a with block, or by release()."""

    def __init__(self, limit, number):
        self._limit, self._number = limit, number

    def release(self):
        """False: it was given back before, also by close(), or belongs to the process that forked this one."""
        handle = self._limit._handle
        return handle is not None and _library.bulkhead_host_release(handle.address, self._number) == 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.release()


class Limit:
    def __init__(self, region, name, max_concurrent, max_queue=100):
        """region: a path, or None for memory that only this process and the children it forks share."""
        self._handle = None
        self.name = name
        if "\0" in name:
            raise ValueError(f"the name {name!r} contains a null character")
        error = ctypes.create_string_buffer(512)
        address = _library.bulkhead_host_open(os.fsencode(region) if region is not None else None, name.encode(),
                                              _whole("max_concurrent", max_concurrent, 1, 4096),
                                              _whole("max_queue", max_queue, 0, 2**32 - 1), error, len(error))
        if not address:
            raise ValueError(error.value.decode(errors="replace"))
        self._handle = _Handle(address)

    def _open(self):
        handle = self._handle
        if handle is None:
            raise ValueError(f'the limit "{self.name}" is closed')
        return handle

    def acquire(self, timeout=None, cost=1, priority=NORMAL):
        """Waits up to `timeout` seconds (None: for ever; 0: not at all) and returns a Permit, or raises Rejected."""
        handle = self._open()
        if timeout is not None and math.isnan(timeout):
            raise ValueError("timeout is not a number")
        if timeout is None or timeout >= 2**33:  # above 200 years, and near the largest number of nanoseconds
            nanoseconds = -1
        else:
            nanoseconds = int(max(0, timeout) * 1e9)
        number = ctypes.c_uint64()
        why = _library.bulkhead_host_acquire(handle.address, _whole("cost", cost, 1, 2**32 - 1),
                                             _whole("priority", priority, CRITICAL, BEST_EFFORT), nanoseconds,
                                             ctypes.byref(number))
        if why != 0:
            raise Rejected(self.name, _library.bulkhead_host_reason(why).decode())
        self._open()  # or it was closed meanwhile, and the units go back with the handle
        return Permit(self, number.value)

    def resize(self, max_concurrent):
        """For all processes."""
        handle = self._open()
        if _library.bulkhead_host_resize(handle.address, _whole("max_concurrent", max_concurrent, 1, 4096)) != 0:
            raise ValueError(f"max_concurrent = {max_concurrent} could not be set")

    def stat(self):
        handle = self._open()
        stats = _Stats()
        _library.bulkhead_host_stat(handle.address, ctypes.byref(stats))
        return {field: getattr(stats, field) for field, _ in _Stats._fields_}

    def close(self):
        """Gives back all permits, once the calls of other threads that still use the limit have returned."""
        self._handle = None
