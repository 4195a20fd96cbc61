/* SPDX-License-Identifier: Apache-2.0 */
/* Case 14 of the list of known values: a mean loss of 1.6269280. */
#include <flce/flce.h>
#include <stdio.h>
#include <stdlib.h>

static flce_matrix matrix(float* data, int64_t rows, int64_t cols) {
  return (flce_matrix){data, rows, cols, cols, 1, FLCE_F32, 0};
}

int main(void) {
  float hidden[4] = {1, 1, 1, 1}, weight[2] = {2, 0}, loss = 0;
  int64_t target[4] = {0, 1, 1, 1};
  flce_args args;
  flce_plan plan = {.struct_size = sizeof plan};
  void* workspace = NULL;

  flce_args_init(&args, sizeof args);
  args.hidden = matrix(hidden, 4, 1);
  args.weight = matrix(weight, 2, 1);
  args.target = (flce_vector){target, 4, 1, FLCE_I64, 0};
  args.loss = (flce_vector){&loss, 1, 1, FLCE_F32, 0};

  flce_status status = flce_make_plan(&args, NULL, &plan);
  if (status == FLCE_OK) {
    workspace = aligned_alloc(64, (plan.workspace_bytes / 64 + 1) * 64);
    status = flce_run(&args, &plan, workspace, plan.workspace_bytes);
  }
  free(workspace);
  if (status != FLCE_OK) {
    fprintf(stderr, "%s: %s\n", flce_status_name(status), flce_last_error());
    return 1;
  }
  printf("flce %s, loss %.5f\n", flce_version(), (double)loss);
  return 0;
}
