/* SPDX-License-Identifier: Apache-2.0 */
#include "flce/flce.h"

/* An address for every function, so that a declaration C cannot use does not pass. */
typedef void (*flce_any)(void);
extern const flce_any c_header_functions[];
const flce_any c_header_functions[] = {
    (flce_any)flce_version,           (flce_any)flce_last_error,
    (flce_any)flce_status_name,       (flce_any)flce_args_init,
    (flce_any)flce_plan_request_init, (flce_any)flce_make_plan,
    (flce_any)flce_can_serve,         (flce_any)flce_run,
    (flce_any)flce_forward,           (flce_any)flce_backward,
    (flce_any)flce_scale_grads,       (flce_any)flce_scale_grads_on,
    (flce_any)flce_cuda_refusal,      (flce_any)flce_parse_bytes,
};
