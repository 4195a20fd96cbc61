/* SPDX-License-Identifier: Apache-2.0
 * The C ABI from C11: layout, defaults, known values. The values are cases 9 and 14 of the list of
 * known faults of such systems, float64 results. */
#include "c_abi_support.h"

/* ABI 1: nothing is ever removed or reordered, so these numbers never change. */
#define AT(type, field, offset) _Static_assert(offsetof(type, field) == (offset), #field)
_Static_assert(sizeof(flce_matrix) == 48, "flce_matrix");
_Static_assert(sizeof(flce_vector) == 32, "flce_vector");
_Static_assert(sizeof(flce_args) >= 944, "flce_args only grows");
_Static_assert(sizeof(flce_plan_request) >= 40, "flce_plan_request only grows");
_Static_assert(sizeof(flce_plan) >= 96, "flce_plan only grows");
AT(flce_args, hidden, 16);
AT(flce_args, target, 112);
AT(flce_args, grad_entropy, 336);
AT(flce_args, loss, 368);
AT(flce_args, topk_logprob, 624);
AT(flce_args, grad_bias, 816);
AT(flce_args, ignore_index, 848);
AT(flce_args, normalizer_value, 896);
AT(flce_args, reduction, 920);
AT(flce_args, device, 940);
AT(flce_args, stream, 944);
AT(flce_args, check_targets, 952);
AT(flce_plan_request, method, 24);
AT(flce_plan_request, num_threads, 32);
AT(flce_plan_request, route, 40);
AT(flce_plan_request, allow_tf32, 44);
AT(flce_plan, chunk, 56);
AT(flce_plan, method, 80);
AT(flce_plan, route, 96);
AT(flce_plan, slab, 104);
AT(flce_plan, allow_tf32, 100);

static void test_defaults(void) {
  flce_args args;
  memset(&args, 0xaa, sizeof args);
  WORKS(flce_args_init(&args, sizeof args));
  CHECK(args.struct_size == sizeof args);
  CHECK(args.abi_major == FLCE_ABI_MAJOR && args.abi_minor == FLCE_ABI_MINOR);
  CHECK(args.hidden.dtype == FLCE_NONE && args.hidden.data == NULL);
  CHECK(args.grad_bias.dtype == FLCE_NONE && args.topk_index.dtype == FLCE_NONE);
  CHECK(args.ignore_index == -100 && args.reduction == FLCE_REDUCTION_MEAN);
  CHECK(args.scale == 1.0 && args.temperature_value == 1.0);
  CHECK(args.label_smoothing == 0.0 && args.z_loss_weight == 0.0 && args.softcap == 0.0);
  CHECK(args.has_normalizer_value == 0 && args.shift == 0 && args.pass == FLCE_PASS_RUN);
  CHECK(args.device == FLCE_DEVICE_CPU && args.stream == NULL && args.check_targets == 0);

  flce_plan_request request;
  memset(&request, 0xaa, sizeof request);
  WORKS(flce_plan_request_init(&request, sizeof request));
  CHECK(request.struct_size == sizeof request && request.method == FLCE_AUTO);
  CHECK(request.budget_bytes == 0 && request.chunk == 0 && request.num_threads == 0);
  CHECK(request.policy == FLCE_POLICY_MEASURED);
  CHECK(request.route == FLCE_ROUTE_AUTO && request.allow_tf32 == 0);
}

/* A caller compiled with the header of ABI 1.0: what lies behind its structs is not its own, must
 * not be read as fields and must not be written. */
static void test_caller_of_1_0(void) {
  tiny t;
  tiny_init(&t);
  memset(&t.args.stream, 0xaa, sizeof t.args - 944);
  memset(&t.request.route, 0xaa, sizeof t.request - 40);
  memset(&t.plan, 0xaa, sizeof t.plan);
  WORKS(flce_args_init(&t.args, 944));
  WORKS(flce_plan_request_init(&t.request, 40));
  CHECK(t.args.check_targets != 0 && t.request.route != 0); /* left alone */
  t.args.hidden = matrix(t.hidden, 4, 1);
  t.args.weight = matrix(t.weight, 2, 1);
  t.args.target = integers(t.target, 4);
  t.args.loss = vector(t.loss, 1);
  t.plan.struct_size = 96;
  WORKS(plan_and_run(&t));
  NEAR(t.loss[0], 1.6269280);
  CHECK(t.plan.struct_size == 96 && t.plan.route == (int32_t)0xaaaaaaaa);
  WORKS(flce_can_serve(&t.args, FLCE_FUSED));
}

/* Planning for a card needs one; asking whether a method could serve it does not. */
static void test_cuda(void) {
  tiny t;
  const char* refusal = flce_cuda_refusal();
  CHECK(refusal == flce_cuda_refusal());
  tiny_init(&t);
  t.args.device = FLCE_DEVICE_CUDA;
  WORKS(flce_can_serve(&t.args, FLCE_FUSED));
  if (refusal[0] == '\0') {
    WORKS(flce_make_plan(&t.args, &t.request, &t.plan));
    CHECK(t.plan.route == FLCE_ROUTE_PORTABLE && t.plan.num_threads == 0);
    CHECK(t.plan.workspace_bytes > 0);
    t.request.num_threads = 2;
    FAILS(flce_make_plan(&t.args, &t.request, &t.plan), FLCE_INVALID_ARGUMENT, "num_threads");
    return;
  }
  FAILS(flce_make_plan(&t.args, &t.request, &t.plan), FLCE_UNSUPPORTED, refusal);
  const flce_vector scalar = vector(t.upstream, 1);
  FAILS(flce_scale_grads_on(FLCE_DEVICE_CUDA, NULL, &scalar, NULL, NULL, NULL), FLCE_UNSUPPORTED,
        refusal);
}

static void test_parse_bytes(void) {
  uint64_t bytes = 0;
  WORKS(flce_parse_bytes("1.5KiB", &bytes));
  CHECK(bytes == 1536);
  FAILS(flce_parse_bytes("2XB", &bytes), FLCE_INVALID_ARGUMENT, "2GiB");
  FAILS(flce_parse_bytes(NULL, &bytes), FLCE_INVALID_ARGUMENT, "text is null");
  FAILS(flce_parse_bytes("1", NULL), FLCE_INVALID_ARGUMENT, "bytes is null");
  CHECK(bytes == 1536);
}

static void test_names(void) {
  CHECK(strncmp(flce_version(), "0.1.", 4) == 0);
  for (flce_status a = FLCE_OK; a <= FLCE_OUT_OF_MEMORY; ++a) {
    CHECK(flce_status_name(a) != NULL && flce_status_name(a)[0] != '\0');
    for (flce_status b = FLCE_OK; b < a; ++b)
      CHECK(strcmp(flce_status_name(a), flce_status_name(b)) != 0);
  }
  CHECK(flce_status_name(99) != NULL && flce_status_name(-1) != NULL);
}

static void test_known_values(void) {
  for (flce_method method = FLCE_AUTO; method <= FLCE_RECOMPUTE; ++method) {
    for (int64_t chunk = 0; chunk <= 5; ++chunk) {
      tiny t;
      tiny_init(&t);
      t.request.method = method;
      t.request.chunk = chunk;
      WORKS(plan_and_run(&t));
      CHECK(method == FLCE_AUTO || t.plan.method == method);
      CHECK(t.plan.extra_bytes == t.plan.workspace_bytes + t.plan.saved_bytes);
      CHECK(t.plan.peak_bytes == t.plan.input_bytes + t.plan.output_bytes + t.plan.extra_bytes);
      NEAR(t.loss[0], 1.6269280);
      NEAR(t.grad_weight[0], 0.6307971);
      NEAR(t.grad_weight[1], -0.6307971);
      NEAR(t.grad_hidden[0], -0.0596015);
      NEAR(t.grad_hidden[3], 0.4403985);
    }
  }
}

static void test_outputs_on_request(void) {
  tiny t;
  float lse[4], logprob[4], entropy[4], topk[4];
  int64_t argmax[4], topk_index[4], correct = -1, valid = -1;
  tiny_init(&t);
  t.target[3] = -100;
  t.args.reduction = FLCE_REDUCTION_NONE;
  t.args.loss = vector(t.loss, 4);
  t.args.lse = vector(lse, 4);
  t.args.logprob = vector(logprob, 4);
  t.args.entropy = vector(entropy, 4);
  t.args.argmax = integers(argmax, 4);
  t.args.num_correct = integers(&correct, 1);
  t.args.num_valid = integers(&valid, 1);
  t.args.topk_logprob = matrix(topk, 4, 1);
  t.args.topk_index = (flce_matrix){topk_index, 4, 1, 1, 1, FLCE_I64, 0};
  WORKS(plan_and_run(&t));
  NEAR(t.loss[0], 0.1269280);
  NEAR(t.loss[1], 2.1269280);
  CHECK(t.loss[3] == 0.0f && lse[3] == 0.0f && logprob[3] == 0.0f && entropy[3] == 0.0f);
  CHECK(t.grad_hidden[3] == 0.0f);
  NEAR(lse[0], 2.1269280);
  NEAR(logprob[1], -2.1269280);
  NEAR(entropy[0], 0.3653338);
  NEAR(topk[0], -0.1269280);
  CHECK(argmax[0] == 0 && topk_index[1] == 0 && correct == 1 && valid == 3);
}

static void test_two_calls(void) {
  for (flce_method method = FLCE_NAIVE; method <= FLCE_RECOMPUTE; ++method) {
    tiny t;
    tiny_init(&t);
    t.request.method = method;
    t.args.pass = FLCE_PASS_FORWARD_BACKWARD;
    t.upstream[0] = 3.0f;
    t.args.grad_output = vector(t.upstream, 1);
    WORKS(flce_make_plan(&t.args, &t.request, &t.plan));
    void* workspace = bytes_of(t.plan.workspace_bytes);
    void* saved = bytes_of(t.plan.saved_bytes);
    WORKS(flce_forward(&t.args, &t.plan, workspace, t.plan.workspace_bytes, saved,
                       t.plan.saved_bytes));
    NEAR(t.loss[0], 1.6269280);
    memset(workspace, 0xff, t.plan.workspace_bytes); /* what must survive is in `saved` */
    WORKS(flce_backward(&t.args, &t.plan, workspace, t.plan.workspace_bytes, saved,
                        t.plan.saved_bytes));
    NEAR(t.grad_weight[0], 3 * 0.6307971);
    NEAR(t.grad_hidden[3], 3 * 0.4403985);
    if (t.plan.saved_bytes > 0)
      FAILS(flce_forward(&t.args, &t.plan, workspace, t.plan.workspace_bytes, saved, 0),
            FLCE_WORKSPACE_TOO_SMALL, "saved");
    free(workspace);
    free(saved);
  }
}

/* Case 9: an upstream per token reaches the weight and the bias with each token's own value. */
static void test_upstream_per_token(void) {
  tiny t;
  float bias[2] = {0, 0}, grad_bias[2] = {9, 9};
  tiny_init(&t);
  t.hidden[1] = 2.0f;
  t.weight[0] = 0.0f;
  t.upstream[1] = 3.0f;
  t.args.hidden.rows = t.args.grad_hidden.rows = t.args.target.size = 2;
  t.args.reduction = FLCE_REDUCTION_NONE;
  t.args.loss.size = 2;
  t.args.grad_output = vector(t.upstream, 2);
  t.args.bias = vector(bias, 2);
  t.args.grad_bias = vector(grad_bias, 2);
  WORKS(plan_and_run(&t));
  NEAR(t.loss[1], 0.6931472);
  NEAR(t.grad_weight[0], 2.5);
  NEAR(t.grad_weight[1], -2.5);
  NEAR(grad_bias[0], 1.0);
  NEAR(grad_bias[1], -1.0);

  t.args.pass = FLCE_PASS_FORWARD_BACKWARD;
  WORKS(flce_can_serve(&t.args, FLCE_RECOMPUTE));
  FAILS(flce_can_serve(&t.args, FLCE_FUSED), FLCE_UNSUPPORTED, "recompute");
  t.request.method = FLCE_FUSED;
  FAILS(flce_make_plan(&t.args, &t.request, &t.plan), FLCE_UNSUPPORTED, "recompute");
}

static void test_scale_grads(void) {
  float grad[4] = {1, 2, 3, 4}, upstream[1] = {0.5f};
  const flce_vector scalar = vector(upstream, 1);
  const flce_matrix weight = matrix(grad, 2, 2);
  WORKS(flce_scale_grads(&scalar, NULL, &weight, NULL));
  CHECK(grad[0] == 0.5f && grad[3] == 2.0f);
  WORKS(flce_scale_grads(&scalar, NULL, NULL, NULL));
  WORKS(flce_scale_grads_on(FLCE_DEVICE_CPU, NULL, &scalar, &weight, NULL, NULL));
  CHECK(grad[0] == 0.25f && grad[3] == 1.0f);
  FAILS(flce_scale_grads_on(9, NULL, &scalar, NULL, NULL, NULL), FLCE_UNSUPPORTED, "device 9");
}

int main(void) {
  test_defaults();
  test_caller_of_1_0();
  test_cuda();
  test_parse_bytes();
  test_names();
  test_known_values();
  test_outputs_on_request();
  test_two_calls();
  test_upstream_per_token();
  test_scale_grads();
  return finish();
}
