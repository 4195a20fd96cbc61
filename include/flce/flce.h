/* SPDX-License-Identifier: Apache-2.0
 * The C11 interface of FLCE: cross-entropy of hidden @ weight^T without the N x V logits.
 *
 * Every function returns a status; flce_last_error() gives this thread's text for the last one that
 * was not FLCE_OK. No exception leaves the library. flce_run, flce_forward and flce_backward
 * allocate nothing on success and keep nothing: the caller owns all memory. The meaning of each
 * field is that of the same name in flce/problem.hpp and flce/flce.hpp; letters as there (N tokens,
 * H hidden size, V vocabulary). Every function may be called from several threads at once, and in a
 * child of fork(); what a call writes is that call's alone (flce/flce.hpp says more). A child of
 * fork() cannot use CUDA if its parent did: that is CUDA's own rule.
 *
 * With args.device FLCE_DEVICE_CUDA all tensors, workspace and saved bytes lie on the calling
 * thread's current device, which is the one that is planned for; the calls give their work to
 * args.stream and return without waiting, and can be recorded into a CUDA graph after a first call
 * of the same shape. flce_cuda_refusal() says whether there is such a device.
 *
 *   flce_args args;
 *   flce_args_init(&args, sizeof args);
 *   args.hidden = (flce_matrix){hidden, N, H, H, 1, FLCE_F32, 0};   ... weight, target, loss, ...
 *   flce_plan plan;
 *   plan.struct_size = sizeof plan;
 *   if (flce_make_plan(&args, NULL, &plan) != FLCE_OK) puts(flce_last_error());
 *   void* workspace = aligned_alloc(64, round_up(plan.workspace_bytes, 64));
 *   flce_run(&args, &plan, workspace, plan.workspace_bytes);
 */
#ifndef FLCE_FLCE_H_
#define FLCE_FLCE_H_

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#define FLCE_C_API
#else
#define FLCE_C_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Rises when a field is appended to a struct below or a function is added; nothing is ever removed
 * or reordered within one FLCE_ABI_MAJOR. Structs of an older minor version (their struct_size is
 * smaller) work as before: the fields that they lack count as 0.
 * 1.1: CUDA; stream and check_targets, route and allow_tf32, flce_scale_grads_on,
 * flce_cuda_refusal. 1.2: flce_parse_bytes. 1.3: FLCE_ROUTE_HOPPER. 1.4: slab of a
 * plan. 1.5: FLCE_OUT_OF_MEMORY, which was FLCE_INTERNAL. */
#define FLCE_ABI_MAJOR 1
#define FLCE_ABI_MINOR 5

typedef int32_t flce_status;
enum {
  FLCE_OK = 0,
  FLCE_INVALID_ARGUMENT = 1,
  FLCE_UNSUPPORTED = 2,
  FLCE_OUT_OF_BUDGET = 3,
  FLCE_TARGET_OUT_OF_RANGE = 4,
  FLCE_WORKSPACE_TOO_SMALL = 5,
  FLCE_DEVICE_ERROR = 6,
  FLCE_INTERNAL = 7,
  FLCE_OUT_OF_MEMORY = 8 /* since 1.5; on the CPU the call has written nothing */
};

typedef int32_t flce_dtype;
enum {
  FLCE_NONE = 0, /* absent */
  FLCE_F64 = 1,
  FLCE_F32 = 2,
  FLCE_BF16 = 3,
  FLCE_F16 = 4,
  FLCE_I64 = 5,
  FLCE_I32 = 6
};

typedef int32_t flce_method;
enum {
  FLCE_AUTO = 0,
  FLCE_NAIVE = 1,
  FLCE_CHUNKED = 2,
  FLCE_FUSED = 3,
  FLCE_RECOMPUTE = 4,
  FLCE_NAIVE_EAGER = 5,  /* baselines: what common PyTorch code keeps */
  FLCE_CHUNKED_EAGER = 6 /* (run: the loss without options) */
};

enum { FLCE_REDUCTION_NONE = 0, FLCE_REDUCTION_SUM = 1, FLCE_REDUCTION_MEAN = 2 };
enum { FLCE_PASS_RUN = 0, FLCE_PASS_FORWARD_BACKWARD = 1 };
enum { FLCE_UPSTREAM_ONE = 0, FLCE_UPSTREAM_SCALAR = 1, FLCE_UPSTREAM_PER_TOKEN = 2 };
enum { FLCE_DEVICE_CPU = 0, FLCE_DEVICE_CUDA = 1 };
enum { FLCE_POLICY_MEASURED = 0, FLCE_POLICY_LIGER = 1 };
/* How a CUDA card computes; see Route in flce/plan.hpp. */
enum { FLCE_ROUTE_AUTO = 0, FLCE_ROUTE_PORTABLE = 1, FLCE_ROUTE_HOPPER = 2 };

/* Element (i, j) is at data + i*row_stride + j*col_stride, in elements. dtype FLCE_NONE: absent. */
typedef struct flce_matrix {
  void* data;
  int64_t rows;
  int64_t cols;
  int64_t row_stride;
  int64_t col_stride;
  flce_dtype dtype;
  int32_t reserved; /* 0 */
} flce_matrix;

typedef struct flce_vector {
  void* data;
  int64_t size;
  int64_t stride;
  flce_dtype dtype;
  int32_t reserved; /* 0 */
} flce_vector;

/* What is asked, and where the memory is. For flce_make_plan the data pointers may be null: sizes
 * and dtypes are enough, and a view whose dtype is not FLCE_NONE is "wanted". */
typedef struct flce_args {
  uint64_t struct_size; /* set by flce_args_init */
  uint32_t abi_major;
  uint32_t abi_minor;

  flce_matrix hidden; /* (N, H) */
  flce_matrix weight; /* (V, H) */
  flce_vector target; /* (N) */
  flce_vector bias;   /* (V), optional, as all that follow */
  flce_vector class_weight;
  flce_vector token_weight;
  flce_vector temperature;
  flce_vector normalizer;
  flce_vector grad_output;
  flce_vector grad_entropy;

  flce_vector loss;
  flce_vector lse;
  flce_vector logprob;
  flce_vector entropy;
  flce_vector z_loss;
  flce_vector argmax;
  flce_vector num_correct;
  flce_vector num_valid;
  flce_matrix topk_logprob;
  flce_matrix topk_index;
  flce_matrix grad_hidden;
  flce_matrix grad_weight;
  flce_vector grad_bias;

  int64_t ignore_index;
  double label_smoothing;
  double z_loss_weight; /* Options::z_loss */
  double softcap;
  double scale;
  double temperature_value; /* Options::temperature */
  double normalizer_value;  /* Options::normalizer */
  int64_t shift;
  int64_t sequence_length;
  int32_t reduction;
  int32_t pass;
  int32_t has_normalizer_value;
  int32_t accumulate_grad_weight;
  int32_t accumulate_grad_bias;
  int32_t device; /* FLCE_DEVICE_CPU or FLCE_DEVICE_CUDA */

  /* Since 1.1. The CPU has no streams, works before a call returns, and always checks targets. */
  void* stream;          /* CUDA: the cudaStream_t of all work; null: the device's default stream */
  int32_t check_targets; /* CUDA: not 0: wait, and fail for a target out of range as on the CPU; 0:
                            that token's loss is NaN and its gradients are 0 */
  int32_t reserved2;     /* 0 */
} flce_args;

/* How to plan. Null where the defaults do. */
typedef struct flce_plan_request {
  uint64_t struct_size;
  uint64_t budget_bytes; /* hard limit of extra_bytes; 0: none */
  int64_t chunk;         /* token rows; 0: chosen */
  flce_method method;
  int32_t policy;
  int32_t num_threads; /* CPU worker threads; 0: as many as the process may use */
  int32_t reserved;    /* 0 */

  /* Since 1.1. */
  int32_t route;      /* CUDA: FLCE_ROUTE_AUTO or another one */
  int32_t allow_tf32; /* CUDA, f32: not 0: products of operands rounded to 10 bits of mantissa */
} flce_plan_request;

/* The decision: a plain value without pointers. */
typedef struct flce_plan {
  uint64_t struct_size;
  uint64_t workspace_bytes;
  uint64_t saved_bytes;
  uint64_t extra_bytes;
  uint64_t input_bytes;
  uint64_t output_bytes;
  uint64_t peak_bytes;
  int64_t chunk;
  int64_t num_chunks;
  double seconds; /* roofline estimate, 0 where the device's figures are unknown */
  flce_method method;
  int32_t gemms;
  int32_t num_threads; /* 0 for CUDA */
  int32_t reserved;

  /* Since 1.1. */
  int32_t route;      /* FLCE_ROUTE_AUTO: the device has no routes */
  int32_t allow_tf32; /* as requested */

  /* Since 1.4. */
  int64_t slab; /* vocabulary rows that the backward of recompute handles at once */
} flce_plan;

FLCE_C_API const char* flce_version(void);
/* The text of this thread's last failure; "" before the first. Valid until this thread's next call.
 */
FLCE_C_API const char* flce_last_error(void);
FLCE_C_API const char* flce_status_name(flce_status status);

/* Fills `args` with the defaults (no tensors, reduction mean, ignore_index -100, scale 1, ...).
 * `struct_size` is sizeof(flce_args) as the caller was compiled. */
FLCE_C_API flce_status flce_args_init(flce_args* args, uint64_t struct_size);
FLCE_C_API flce_status flce_plan_request_init(flce_plan_request* request, uint64_t struct_size);

/* `plan->struct_size` must be set to sizeof(flce_plan). Looks at no data. For the CPU pure; for
 * CUDA the current device is planned for, and FLCE_UNSUPPORTED with flce_cuda_refusal() where there
 * is none. */
FLCE_C_API flce_status flce_make_plan(const flce_args* args, const flce_plan_request* request,
                                      flce_plan* plan);
/* Why `method` cannot serve `args`: FLCE_OK and an empty text if it can, else FLCE_UNSUPPORTED.
 * Pure: needs no card either. */
FLCE_C_API flce_status flce_can_serve(const flce_args* args, flce_method method);

/* Loss and gradients. `workspace` is aligned to 64 and has at least plan->workspace_bytes bytes. */
FLCE_C_API flce_status flce_run(const flce_args* args, const flce_plan* plan, void* workspace,
                                uint64_t workspace_bytes);
/* The same in two calls, for args->pass FLCE_PASS_FORWARD_BACKWARD; see flce/flce.hpp. */
FLCE_C_API flce_status flce_forward(const flce_args* args, const flce_plan* plan, void* workspace,
                                    uint64_t workspace_bytes, void* saved, uint64_t saved_bytes);
FLCE_C_API flce_status flce_backward(const flce_args* args, const flce_plan* plan, void* workspace,
                                     uint64_t workspace_bytes, void* saved, uint64_t saved_bytes);
/* grad *= upstream[0]; each gradient may be null or absent. No pass over memory for 1. On the CPU;
 * flce_scale_grads_on takes the device and its stream as flce_args does. */
FLCE_C_API flce_status flce_scale_grads(const flce_vector* upstream, const flce_matrix* grad_hidden,
                                        const flce_matrix* grad_weight,
                                        const flce_vector* grad_bias);
FLCE_C_API flce_status flce_scale_grads_on(int32_t device, void* stream,
                                           const flce_vector* upstream,
                                           const flce_matrix* grad_hidden,
                                           const flce_matrix* grad_weight,
                                           const flce_vector* grad_bias);

/* Why CUDA cannot be used here, as a sentence; "" if it can. Looked up once; the first call loads
 * what there is. Valid for ever. */
FLCE_C_API const char* flce_cuda_refusal(void);

/* Bytes of a text such as "2GiB", "500MB", "1.5GB" or "123456" (flce::parse_bytes). */
FLCE_C_API flce_status flce_parse_bytes(const char* text, uint64_t* bytes);

#ifdef __cplusplus
}
#endif

#endif /* FLCE_FLCE_H_ */
