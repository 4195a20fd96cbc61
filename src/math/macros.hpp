// SPDX-License-Identifier: Apache-2.0
// FLCE_HD: a function of src/math is compiled for the host and, by nvcc, for the device.
#pragma once

#if defined(__CUDACC__)
#define FLCE_HD __host__ __device__
#else
#define FLCE_HD
#endif
