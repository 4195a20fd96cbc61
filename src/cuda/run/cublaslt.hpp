// SPDX-License-Identifier: Apache-2.0
// cuBLASLt as functions found at run time: the library that a framework has loaded into this
// process, else the system's. A missing or too old one is a sentence (refusal), not a crash.
#pragma once

#include <cublasLt.h>

#include <string>

namespace flce::cuda {

struct CublasLt {
  std::string refusal;  // empty: everything below can be called
  std::string path;
  std::size_t version = 0;

  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtMatmul) matmul = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) get_heuristic = nullptr;
  decltype(&cublasLtMatmulDescCreate) create_desc = nullptr;
  decltype(&cublasLtMatmulDescDestroy) destroy_desc = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) set_desc = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) create_layout = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) destroy_layout = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) create_preference = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) destroy_preference = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference = nullptr;
  decltype(&cublasLtMatmulAlgoConfigGetAttribute) get_algo = nullptr;
};

// Looked up once.
const CublasLt& cublaslt();

// Throws Error{kDevice} that names `what`.
void check_cublas(cublasStatus_t status, const char* what);

}  // namespace flce::cuda
