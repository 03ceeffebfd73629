/* The header is C, and the interface does what it says. */
#include "bulkhead/host.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void check(int good, const char* what, int line) {
  if (good) return;
  fprintf(stderr, "host_c_test.c:%d: %s\n", line, what);
  exit(1);
}
#define CHECK(what) check((what) != 0, #what, __LINE__)

int main(void) {
  char error[256] = "";
  bulkhead_host_stats stats;
  uint64_t first = 0, second = 0, third = 0;
  bulkhead_host* host = bulkhead_host_open("/nowhere/region", "gpu", 2, 0, error, sizeof error);
  CHECK(host == NULL);
  CHECK(strstr(error, "/nowhere/region") != NULL);
  CHECK(bulkhead_host_open(NULL, NULL, 2, 0, error, sizeof error) == NULL);
  CHECK(strstr(bulkhead_host_declarations(),
               "int bulkhead_host_release(bulkhead_host* host, uint64_t permit);") != NULL);
  CHECK(strchr(bulkhead_host_declarations(), '#') == NULL);
  CHECK(bulkhead_host_open(NULL, "gpu", 5000, 0, NULL, 0) == NULL);

  host = bulkhead_host_open(NULL, "gpu", 2, 0, error, sizeof error);
  CHECK(host != NULL);
  CHECK(bulkhead_host_acquire(host, 1, BULKHEAD_HOST_NORMAL, 0, &first) == 0);
  CHECK(bulkhead_host_acquire(host, 1, BULKHEAD_HOST_CRITICAL, 0, &second) == 0);
  CHECK(strcmp(bulkhead_host_reason(bulkhead_host_acquire(host, 1, BULKHEAD_HOST_NORMAL, 0, &third)),
               "concurrency_limit") == 0);
  bulkhead_host_stat(host, &stats);
  CHECK(stats.max_concurrent == 2 && stats.in_flight == 2 && stats.own_in_flight == 2);
  CHECK(stats.own_admitted == 2 && stats.own_rejected == 1 && stats.own_waiting == 0);

  const pid_t child = fork();
  if (child == 0) { /* it holds nothing, and can give nothing back */
    const int good = bulkhead_host_release(host, first) == -1 &&
                     bulkhead_host_acquire(host, 1, BULKHEAD_HOST_NORMAL, 0, &third) != 0;
    _exit(good ? 0 : 1);
  }
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child && status == 0);

  CHECK(bulkhead_host_release(host, first) == 0);
  CHECK(bulkhead_host_release(host, first) == -1);
  CHECK(bulkhead_host_release(host, 12345) == -1);
  CHECK(bulkhead_host_resize(host, 1) == 0);
  CHECK(bulkhead_host_resize(host, 0) == -1);
  CHECK(bulkhead_host_acquire(host, 1, BULKHEAD_HOST_NORMAL, 0, &third) != 0);
  CHECK(bulkhead_host_release(host, second) == 0);
  CHECK(bulkhead_host_acquire(host, 1, BULKHEAD_HOST_NORMAL, -1, &third) == 0);
  CHECK(strcmp(bulkhead_host_reason(0), "admitted") == 0 && strcmp(bulkhead_host_reason(99), "unknown") == 0);
  CHECK(bulkhead_host_acquire(host, 1, BULKHEAD_HOST_NORMAL, 0, NULL) == -1);
  bulkhead_host_stat(host, NULL);
  bulkhead_host_close(host);

  bulkhead_host_close(NULL);
  CHECK(bulkhead_host_acquire(NULL, 1, BULKHEAD_HOST_NORMAL, 0, &third) == -1);
  CHECK(bulkhead_host_release(NULL, first) == -1);
  CHECK(bulkhead_host_resize(NULL, 1) == -1);
  bulkhead_host_stat(NULL, &stats);
  CHECK(stats.max_concurrent == 0 && stats.own_admitted == 0);
  return 0;
}
