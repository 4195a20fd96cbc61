/* SPDX-License-Identifier: Apache-2.0
 * The C ABI misused: sizes of structs, null pointers, bad values; and each thread's own text. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>

#include "c_abi_support.h"

static void test_struct_sizes(void) {
  tiny t;
  flce_args args;
  flce_plan_request request;
  FAILS(flce_args_init(&args, 0), FLCE_INVALID_ARGUMENT, "struct_size");
  FAILS(flce_args_init(&args, 16), FLCE_INVALID_ARGUMENT, "struct_size");
  FAILS(flce_args_init(&args, UINT64_MAX), FLCE_INVALID_ARGUMENT, "struct_size");
  FAILS(flce_plan_request_init(&request, 0), FLCE_INVALID_ARGUMENT, "struct_size");
  const uint64_t wrong[] = {0, 8, 24, UINT64_MAX};
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; ++i) {
    tiny_init(&t);
    t.args.struct_size = wrong[i];
    FAILS(plan_and_run(&t), FLCE_INVALID_ARGUMENT, "struct_size");
    FAILS(flce_run(&t.args, &t.plan, NULL, 0), FLCE_INVALID_ARGUMENT, "struct_size");
    FAILS(flce_can_serve(&t.args, FLCE_FUSED), FLCE_INVALID_ARGUMENT, "struct_size");
    tiny_init(&t);
    t.plan.struct_size = wrong[i];
    FAILS(plan_and_run(&t), FLCE_INVALID_ARGUMENT, "struct_size");
    tiny_init(&t);
    t.request.struct_size = wrong[i];
    FAILS(plan_and_run(&t), FLCE_INVALID_ARGUMENT, "struct_size");
  }
  /* The text names what exists. */
  FAILS(flce_args_init(&args, 16), FLCE_INVALID_ARGUMENT,
        "is 16; it is from 944 to 65536 bytes: call flce_args_init with sizeof(flce_args)");
  tiny_init(&t);
  t.plan.struct_size = 8;
  FAILS(plan_and_run(&t), FLCE_INVALID_ARGUMENT, "set it to sizeof(flce_plan)");
  tiny_init(&t);
  t.args.abi_major = FLCE_ABI_MAJOR + 1;
  FAILS(plan_and_run(&t), FLCE_INVALID_ARGUMENT, "ABI");
}

/* A caller with a newer header: larger structs work while what was appended is zero. */
static void test_newer_caller(void) {
  struct newer_args {
    flce_args known;
    int64_t appended[4];
  } args;
  struct newer_request {
    flce_plan_request known;
    int64_t appended[4];
  } request;
  struct newer_plan {
    flce_plan known;
    int64_t appended[4];
  } plan = {.known = {.struct_size = sizeof plan}};
  tiny t;
  tiny_init(&t);
  memset(&args, 0xaa, sizeof args);
  memset(&request, 0xaa, sizeof request);
  WORKS(flce_args_init(&args.known, sizeof args));
  WORKS(flce_plan_request_init(&request.known, sizeof request));
  CHECK(args.known.struct_size == sizeof args && args.appended[3] == 0);
  args.known.hidden = t.args.hidden;
  args.known.weight = t.args.weight;
  args.known.target = t.args.target;
  args.known.loss = t.args.loss;
  WORKS(flce_make_plan(&args.known, &request.known, &plan.known));
  CHECK(plan.known.struct_size == sizeof plan);
  void* workspace = bytes_of(plan.known.workspace_bytes);
  WORKS(flce_run(&args.known, &plan.known, workspace, plan.known.workspace_bytes));
  NEAR(t.loss[0], 1.6269280);
  args.appended[1] = 1;
  FAILS(flce_run(&args.known, &plan.known, workspace, plan.known.workspace_bytes), FLCE_UNSUPPORTED,
        "does not know");
  request.appended[3] = 1;
  FAILS(flce_make_plan(&t.args, &request.known, &plan.known), FLCE_UNSUPPORTED, "does not know");
  free(workspace);
}

static void test_null_pointers(void) {
  tiny t;
  flce_plan_request request;
  FAILS(flce_args_init(NULL, sizeof(flce_args)), FLCE_INVALID_ARGUMENT, "null");
  FAILS(flce_plan_request_init(NULL, sizeof request), FLCE_INVALID_ARGUMENT, "null");
  tiny_init(&t);
  FAILS(flce_make_plan(NULL, &t.request, &t.plan), FLCE_INVALID_ARGUMENT, "null");
  FAILS(flce_make_plan(&t.args, &t.request, NULL), FLCE_INVALID_ARGUMENT, "null");
  FAILS(flce_can_serve(NULL, FLCE_FUSED), FLCE_INVALID_ARGUMENT, "null");
  FAILS(flce_run(NULL, &t.plan, NULL, 0), FLCE_INVALID_ARGUMENT, "null");
  FAILS(flce_run(&t.args, NULL, NULL, 0), FLCE_INVALID_ARGUMENT, "null");
  WORKS(flce_make_plan(&t.args, NULL, &t.plan)); /* the defaults */
  FAILS(flce_run(&t.args, &t.plan, NULL, t.plan.workspace_bytes), FLCE_WORKSPACE_TOO_SMALL,
        "workspace");
  FAILS(flce_forward(NULL, NULL, NULL, 0, NULL, 0), FLCE_INVALID_ARGUMENT, "null");
  FAILS(flce_backward(NULL, NULL, NULL, 0, NULL, 0), FLCE_INVALID_ARGUMENT, "null");
  FAILS(flce_scale_grads(NULL, NULL, NULL, NULL), FLCE_INVALID_ARGUMENT, "null");
  tiny_init(&t);
  t.args.target.data = NULL; /* enough to plan, not to run */
  FAILS(plan_and_run(&t), FLCE_INVALID_ARGUMENT, "target");
  CHECK(t.plan.workspace_bytes > 0);
}

static void test_bad_arguments(void) {
  tiny t;
#define TRY(change, status, part) \
  tiny_init(&t);                  \
  change;                         \
  FAILS(plan_and_run(&t), status, part)
  TRY(t.args.hidden.dtype = 99, FLCE_INVALID_ARGUMENT, "hidden");
  TRY(t.args.weight.dtype = FLCE_BF16, FLCE_INVALID_ARGUMENT, "weight");
  TRY(t.args.target.dtype = FLCE_F32, FLCE_INVALID_ARGUMENT, "target");
  TRY(t.args.target.size = 3, FLCE_INVALID_ARGUMENT, "target");
  TRY(t.args.weight.cols = 2, FLCE_INVALID_ARGUMENT, "weight");
  TRY(t.args.hidden.rows = -1, FLCE_INVALID_ARGUMENT, "hidden");
  TRY(t.args.hidden = matrix(t.hidden, 2, 2); t.args.weight = matrix(t.weight, 1, 2);
      t.args.grad_hidden = matrix(t.grad_hidden, 2, 2);
      t.args.grad_weight = matrix(t.grad_weight, 1, 2); t.args.target.size = 2;
      t.args.hidden.col_stride = 2, FLCE_INVALID_ARGUMENT, "hidden");
  TRY(t.args.reduction = 7, FLCE_INVALID_ARGUMENT, "reduction");
  TRY(t.args.pass = 5, FLCE_INVALID_ARGUMENT, "pass");
  TRY(t.args.label_smoothing = 1.5, FLCE_INVALID_ARGUMENT, "label_smoothing");
  TRY(t.request.chunk = -1, FLCE_INVALID_ARGUMENT, "chunk");
  TRY(t.request.method = 42, FLCE_INVALID_ARGUMENT, "method");
  TRY(t.request.budget_bytes = 1, FLCE_OUT_OF_BUDGET, "budget");
  TRY(t.target[2] = 17, FLCE_TARGET_OUT_OF_RANGE, "17");
  CHECK(strstr(flce_last_error(), "2") != NULL && t.grad_weight[0] == 0.0f);
  TRY(t.args.reserved2 = 3, FLCE_INVALID_ARGUMENT, "reserved2");
  TRY(t.request.route = FLCE_ROUTE_PORTABLE, FLCE_UNSUPPORTED, "route portable");
  TRY(t.request.route = FLCE_ROUTE_HOPPER, FLCE_UNSUPPORTED, "route hopper is for CUDA");
  TRY(t.request.route = 77, FLCE_INVALID_ARGUMENT, "77");
  TRY(t.request.allow_tf32 = 1, FLCE_UNSUPPORTED, "tf32");
  TRY(t.request.allow_tf32 = 1; t.plan.struct_size = 96, FLCE_INVALID_ARGUMENT, "allow_tf32");
  TRY(t.request.method = FLCE_RECOMPUTE; t.request.budget_bytes = 1 << 20;
      t.plan.struct_size = 96, FLCE_INVALID_ARGUMENT, "slab");
  TRY(t.args.device = FLCE_DEVICE_CUDA + 7, FLCE_UNSUPPORTED, "device");
#undef TRY
  tiny_init(&t);
  WORKS(flce_make_plan(&t.args, &t.request, &t.plan));
  char* workspace = bytes_of(t.plan.workspace_bytes + 64);
  FAILS(flce_run(&t.args, &t.plan, workspace, t.plan.workspace_bytes - 1), FLCE_WORKSPACE_TOO_SMALL,
        "workspace");
  FAILS(flce_run(&t.args, &t.plan, workspace + 4, t.plan.workspace_bytes), FLCE_INVALID_ARGUMENT,
        "64");
  free(workspace);
}

static void* one_thread(void* result) {
  tiny t;
  CHECK(flce_last_error()[0] == '\0'); /* another thread's text is not ours */
  for (int i = 0; i < 20; ++i) {
    tiny_init(&t);
    WORKS(plan_and_run(&t));
    t.target[1] = 5;
    FAILS(plan_and_run(&t), FLCE_TARGET_OUT_OF_RANGE, "5");
  }
  memcpy(result, t.loss, sizeof(float));
  return NULL;
}

static void test_threads(void) {
  pthread_t threads[4];
  float losses[4] = {0};
  FAILS(flce_args_init(NULL, 0), FLCE_INVALID_ARGUMENT, "");
  char before[512];
  snprintf(before, sizeof before, "%s", flce_last_error());
  for (int i = 0; i < 4; ++i) CHECK(pthread_create(&threads[i], NULL, one_thread, &losses[i]) == 0);
  for (int i = 0; i < 4; ++i) CHECK(pthread_join(threads[i], NULL) == 0);
  CHECK(strcmp(before, flce_last_error()) == 0);
  for (int i = 0; i < 4; ++i) CHECK(memcmp(&losses[i], &losses[0], sizeof(float)) == 0);
  NEAR(losses[0], 1.6269280);
}

int main(void) {
  test_struct_sizes();
  test_newer_caller();
  test_null_pointers();
  test_bad_arguments();
  test_threads();
  return finish();
}
