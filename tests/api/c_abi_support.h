/* SPDX-License-Identifier: Apache-2.0
 * What the tests of the C ABI share: checks that count, and a tiny problem with known values. */
#ifndef FLCE_TESTS_API_C_ABI_SUPPORT_H_
#define FLCE_TESTS_API_C_ABI_SUPPORT_H_

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "flce/flce.h"

static atomic_int failures;
#define CHECK(holds) ((holds) ? (void)0 : report(#holds, __LINE__))
#define NEAR(a, b) CHECK(fabs((double)(a) - (double)(b)) < 2e-6)
/* The call fails with this status, and its text holds this part. */
#define FAILS(call, status, part)                                               \
  do {                                                                          \
    const flce_status got = (call);                                             \
    if (got != (status) || strstr(flce_last_error(), (part)) == NULL) {         \
      report(#call, __LINE__);                                                  \
      fprintf(stderr, "  status %d, text '%s'\n", (int)got, flce_last_error()); \
    }                                                                           \
  } while (0)
#define WORKS(call)                                        \
  do {                                                     \
    if ((call) != FLCE_OK) {                               \
      report(#call, __LINE__);                             \
      fprintf(stderr, "  text '%s'\n", flce_last_error()); \
    }                                                      \
  } while (0)

static inline void report(const char* what, int line) {
  fprintf(stderr, "line %d: %s\n", line, what);
  ++failures;
}

static inline flce_matrix matrix(float* data, int64_t rows, int64_t cols) {
  return (flce_matrix){data, rows, cols, cols, 1, FLCE_F32, 0};
}
static inline flce_vector vector(float* data, int64_t size) {
  return (flce_vector){data, size, 1, FLCE_F32, 0};
}
static inline flce_vector integers(int64_t* data, int64_t size) {
  return (flce_vector){data, size, 1, FLCE_I64, 0};
}

/* Case 14: x = ones(4,1), W = [2, 0]^T, y = [0,1,1,1]. */
typedef struct tiny {
  float hidden[4], weight[2], loss[4], grad_hidden[4], grad_weight[2], upstream[4];
  int64_t target[4];
  flce_args args;
  flce_plan_request request;
  flce_plan plan;
} tiny;

static inline void tiny_init(tiny* t) {
  memset(t, 0, sizeof *t);
  WORKS(flce_args_init(&t->args, sizeof t->args));
  WORKS(flce_plan_request_init(&t->request, sizeof t->request));
  t->plan.struct_size = sizeof t->plan;
  for (int i = 0; i < 4; ++i) {
    t->hidden[i] = 1.0f;
    t->target[i] = i > 0;
    t->upstream[i] = 1.0f;
  }
  t->weight[0] = 2.0f;
  t->args.hidden = matrix(t->hidden, 4, 1);
  t->args.weight = matrix(t->weight, 2, 1);
  t->args.target = integers(t->target, 4);
  t->args.loss = vector(t->loss, 1);
  t->args.grad_hidden = matrix(t->grad_hidden, 4, 1);
  t->args.grad_weight = matrix(t->grad_weight, 2, 1);
}

static inline void* bytes_of(uint64_t size) {
  void* data = aligned_alloc(64, (size_t)(size / 64 + 1) * 64);
  if (data == NULL) exit(3);
  memset(data, 0xff, (size_t)(size / 64 + 1) * 64); /* NaN, should anything read it */
  return data;
}

static inline flce_status plan_and_run(tiny* t) {
  flce_status status = flce_make_plan(&t->args, &t->request, &t->plan);
  if (status != FLCE_OK) return status;
  void* workspace = bytes_of(t->plan.workspace_bytes);
  status = flce_run(&t->args, &t->plan, workspace, t->plan.workspace_bytes);
  free(workspace);
  return status;
}

/* What main returns. */
static inline int finish(void) {
  const int failed = atomic_load(&failures);
  printf("%s: %d failures\n", failed == 0 ? "passed" : "FAILED", failed);
  return failed == 0 ? 0 : 1;
}

#endif
