/* SPDX-License-Identifier: Apache-2.0
 * Twenty training steps of a language-model head in C: plan once, run each step, update.
 *
 *   cc -std=c11 train_step.c $(pkg-config --cflags --libs flce) -o train_step
 */
#include <flce/flce.h>
#include <stdio.h>
#include <stdlib.h>

enum { TOKENS = 64, HIDDEN = 8, VOCAB = 8, STEPS = 20 };

static int failed(const char* what, flce_status status) {
  if (status != FLCE_OK)
    fprintf(stderr, "%s: %s: %s\n", what, flce_status_name(status), flce_last_error());
  return status != FLCE_OK;
}

/* A dense, row-major f32 matrix. */
static flce_matrix matrix(float* data, int64_t rows, int64_t cols) {
  return (flce_matrix){.data = data,
                       .rows = rows,
                       .cols = cols,
                       .row_stride = cols,
                       .col_stride = 1,
                       .dtype = FLCE_F32};
}

int main(void) {
  static float hidden[TOKENS * HIDDEN], weight[VOCAB * HIDDEN], grad_weight[VOCAB * HIDDEN];
  static int64_t target[TOKENS];
  float loss = 0.0f;

  /* Each token shows one feature and is followed by the next class; the first token is padding. */
  for (int i = 0; i < TOKENS; ++i) {
    hidden[i * HIDDEN + i % HIDDEN] = 1.0f;
    target[i] = (i + 1) % VOCAB;
  }
  target[0] = -100; /* ignore_index: no loss, no gradient */

  /* What is wanted is what has a place to go to: the loss and one gradient. */
  flce_args args;
  if (failed("flce_args_init", flce_args_init(&args, sizeof args))) return 1;
  args.hidden = matrix(hidden, TOKENS, HIDDEN);
  args.weight = matrix(weight, VOCAB, HIDDEN);
  args.target = (flce_vector){.data = target, .size = TOKENS, .stride = 1, .dtype = FLCE_I64};
  args.loss = (flce_vector){.data = &loss, .size = 1, .stride = 1, .dtype = FLCE_F32};
  args.grad_weight = matrix(grad_weight, VOCAB, HIDDEN);

  /* The plan says how many bytes the step needs; they are allocated once. */
  flce_plan plan = {.struct_size = sizeof plan};
  if (failed("flce_make_plan", flce_make_plan(&args, NULL, &plan))) return 1;
  void* workspace = aligned_alloc(64, (plan.workspace_bytes / 64 + 1) * 64);
  if (workspace == NULL) return 1;

  for (int step = 0; step <= STEPS; ++step) {
    if (failed("flce_run", flce_run(&args, &plan, workspace, plan.workspace_bytes))) return 1;
    if (step % 10 == 0) printf("step %2d: loss %.4f\n", step, (double)loss);
    for (int i = 0; i < VOCAB * HIDDEN; ++i) weight[i] -= 8.0f * grad_weight[i];
  }
  free(workspace);
  return 0;
}
