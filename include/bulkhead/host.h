/* host.h - one limit for all processes of a host, for C and for languages that call C.
 *
 *   char error[256];
 *   bulkhead_host* gpu = bulkhead_host_open("/run/shop/bulkhead", "gpu", 4, 20, error, sizeof error);
 *   uint64_t permit;
 *   int why = bulkhead_host_acquire(gpu, 1, BULKHEAD_HOST_NORMAL, 200 * 1000000LL, &permit);
 *   if (why == 0) { render(); bulkhead_host_release(gpu, permit); }
 *   else puts(bulkhead_host_reason(why));
 *
 * It is the limit of a C++ bulkhead with Scope::host and the same name and region: see adapters/shm/host.h for order and
 * promises. Link libbulkhead_host.so.
 *
 * Threads: every function may be called from any thread, but for bulkhead_host_close().
 * A null handle is an error, and no crash.
 * fork(): a handle works in the child as in the parent; the child holds nothing of what its parent holds.
 * Cost: a call that need not wait makes no system call.
 */
#ifndef BULKHEAD_HOST_H
#define BULKHEAD_HOST_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define BULKHEAD_HOST_API __attribute__((visibility("default")))
#else
#define BULKHEAD_HOST_API
#endif

typedef struct bulkhead_host bulkhead_host;

enum { BULKHEAD_HOST_CRITICAL = 0, BULKHEAD_HOST_NORMAL = 1, BULKHEAD_HOST_BEST_EFFORT = 2 };

/* Joins the limit `name` of the region, and states how many units all processes together may hold, up to 4096. At most
 * max_queue calls of this process wait in line. A null region: memory that only this process and the children it forks
 * share. Null: it failed, and `error` says why. */
BULKHEAD_HOST_API bulkhead_host* bulkhead_host_open(const char* region, const char* name,
                                                    uint32_t max_concurrent, uint32_t max_queue, char* error,
                                                    size_t error_size);

/* Takes `cost` units (0 counts as 1) and gives 0, and a permit to give them back with; else why not, see
 * bulkhead_host_reason(). Waits up to timeout_ns; 0: not at all; negative: for ever. -1: host or permit is null. */
BULKHEAD_HOST_API int bulkhead_host_acquire(bulkhead_host* host, uint32_t cost, int priority,
                                            int64_t timeout_ns, uint64_t* permit);
/* 0; -1: this process does not hold that permit (any more), and nothing has changed. */
BULKHEAD_HOST_API int bulkhead_host_release(bulkhead_host* host, uint64_t permit);

/* For all processes, at once. -1: the number is out of range. */
BULKHEAD_HOST_API int bulkhead_host_resize(bulkhead_host* host, uint32_t max_concurrent);

typedef struct bulkhead_host_stats {
  uint32_t max_concurrent; /* in force now, for all processes */
  uint32_t in_flight;      /* units, of all processes; those of killed ones until they are missed */
  uint32_t own_in_flight;  /* units, of this process */
  uint32_t own_waiting;    /* calls in line in this process */
  uint64_t own_admitted, own_rejected;
} bulkhead_host_stats;
BULKHEAD_HOST_API void bulkhead_host_stat(bulkhead_host* host, bulkhead_host_stats* stats);

/* "timeout", "queue_limit" ...: the words of C++ and of the metrics. "admitted" for 0. */
BULKHEAD_HOST_API const char* bulkhead_host_reason(int result);

/* What this header declares, without lines of the preprocessor, for languages that read declarations of C: cffi of Python, FFI of
 * PHP, ffi of LuaJIT. They then match the library that is loaded. Such a program declares only this function itself. */
BULKHEAD_HOST_API const char* bulkhead_host_declarations(void);

/* Gives back all permits. No other call of this handle may be running. Null is allowed. */
BULKHEAD_HOST_API void bulkhead_host_close(bulkhead_host* host);

#ifdef __cplusplus
}
#endif
#endif
