/* SPDX-License-Identifier: Apache-2.0
 * A system that runs out of memory when a test says so. libscarce.so takes the place of malloc and
 * its kin, mmap and pthread_create in the process that links or preloads it, and refuses the n-th
 * request from arming on; or the process is killed at the n-th step of writing a file. Linux with
 * glibc; not beside a sanitizer, which does the same.
 */
#ifndef FLCE_TESTS_SCARCE_SCARCE_H_
#define FLCE_TESTS_SCARCE_SCARCE_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What counts as a request; a sum of them. */
enum {
  SCARCE_HEAP = 1,    /* malloc, calloc, realloc */
  SCARCE_ALIGNED = 2, /* posix_memalign, aligned_alloc, memalign: the tensors of PyTorch */
  SCARCE_MAP = 4,     /* mmap, as called by programs and libraries other than libc */
  SCARCE_THREAD = 8,  /* pthread_create */
  SCARCE_ALL = 15,
  SCARCE_FILES = 16 /* write, fsync, linkat, rename: never refused */
};
/* Which requests are refused: the n-th alone, or the n-th and all that follow. SCARCE_KILL: the
 * process that makes the n-th is ended by SIGKILL before it is done. */
enum { SCARCE_ONCE = 0, SCARCE_FROM = 1, SCARCE_KILL = 2 };

/* From now on the `at`-th request of these kinds, counted from 1, is refused; 0 refuses none. */
void scarce_arm(long at, int mode, int kinds);
/* Nothing is refused any more. How many requests were refused since arming. */
long scarce_disarm(void);
/* Requests since arming. */
long scarce_requests(void);
/* Blocks of the heap that are in use in the whole process. */
long scarce_live_blocks(void);
/* function(arguments[0], ..., arguments[5]) while armed, for callers that would allocate in between
 * themselves; *refused is what scarce_disarm() says. */
int32_t scarce_call(void* function, const uint64_t* arguments, long at, int mode, int kinds,
                    long* refused);

#ifdef __cplusplus
}
#endif

#endif /* FLCE_TESTS_SCARCE_SCARCE_H_ */
