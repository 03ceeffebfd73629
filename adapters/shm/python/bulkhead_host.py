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

Needs cffi (Debian: python3-cffi), no compiler, and libbulkhead_host.so: beside this file, in the library path, or where
LIBBULKHEAD_HOST says.
"""
import math
import operator
import os
import pathlib

import cffi

__all__ = ["Limit", "Permit", "Rejected", "CRITICAL", "NORMAL", "BEST_EFFORT"]

_ffi = cffi.FFI()


def _load():
    """The library itself says what it declares, so this module has no copy of the header."""
    name = "libbulkhead_host.so"
    beside = pathlib.Path(__file__).with_name(name)
    path = os.environ.get("LIBBULKHEAD_HOST") or (str(beside) if beside.exists() else name)
    first = cffi.FFI()
    first.cdef("const char* bulkhead_host_declarations(void);")
    _ffi.cdef(first.string(first.dlopen(path).bulkhead_host_declarations()).decode())
    return _ffi.dlopen(path)


_library = _load()

CRITICAL = _library.BULKHEAD_HOST_CRITICAL
NORMAL = _library.BULKHEAD_HOST_NORMAL
BEST_EFFORT = _library.BULKHEAD_HOST_BEST_EFFORT


class Rejected(Exception):
    """`reason` is one of the words of bulkhead: concurrency_limit, queue_limit, timeout ..."""

    def __init__(self, name, reason):
        super().__init__(f'bulkhead "{name}" rejected ({reason})')
        self.name, self.reason = name, reason


def _whole(setting, value, least, most):
    number = operator.index(value)
    if not least <= number <= most:
        raise ValueError(f"{setting} = {number} is out of range: give {least} to {most}")
    return number


class Permit:
    """Gives its units back at the end of a with block, or by release()."""

    def __init__(self, limit, number):
        self._limit, self._number = limit, number

    def release(self):
        """False: it was given back before, also by close(), or belongs to the process that forked this one."""
        handle = self._limit._handle
        return handle is not None and _library.bulkhead_host_release(handle, self._number) == 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.release()


class Limit:
    def __init__(self, region, name, max_concurrent, max_queue=100):
        """region: a path, or None for memory that only this process and the children it forks share."""
        self._handle = None
        self.name = name
        path = _ffi.NULL if region is None else os.fsencode(region)
        for text in (name, region):
            if text is not None and "\0" in os.fsdecode(text):
                raise ValueError(f"the name {text!r} contains a null character")
        error = _ffi.new("char[512]")
        handle = _library.bulkhead_host_open(path, name.encode(), _whole("max_concurrent", max_concurrent, 1, 4096),
                                             _whole("max_queue", max_queue, 0, 2**32 - 1), error, len(error))
        if not handle:
            raise ValueError(_ffi.string(error).decode(errors="replace"))
        # Ends with its last reference, so after the last call that uses it.
        self._handle = _ffi.gc(handle, _library.bulkhead_host_close)

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
        number = _ffi.new("uint64_t*")
        why = _library.bulkhead_host_acquire(handle, _whole("cost", cost, 1, 2**32 - 1),
                                             _whole("priority", priority, CRITICAL, BEST_EFFORT), nanoseconds, number)
        if why != 0:
            raise Rejected(self.name, _ffi.string(_library.bulkhead_host_reason(why)).decode())
        self._open()  # or it was closed meanwhile, and the units go back with the handle
        return Permit(self, number[0])

    def resize(self, max_concurrent):
        """For all processes."""
        handle = self._open()
        if _library.bulkhead_host_resize(handle, _whole("max_concurrent", max_concurrent, 1, 4096)) != 0:
            raise ValueError(f"max_concurrent = {max_concurrent} could not be set")

    def stat(self):
        handle = self._open()
        stats = _ffi.new("bulkhead_host_stats*")
        _library.bulkhead_host_stat(handle, stats)
        return {field: getattr(stats, field) for field, _ in _ffi.typeof("bulkhead_host_stats").fields}

    def close(self):
        """Gives back all permits, once the calls of other threads that still use the limit have returned."""
        self._handle = None
