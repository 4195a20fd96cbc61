// SPDX-License-Identifier: Apache-2.0
// Test parameters: a method, an element type, or both, with names for the test list.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/runner.hpp"

namespace flce_test {

struct MethodAndDtype {
  flce::Method method;
  flce::Dtype dtype;
};

inline std::vector<MethodAndDtype> methods_and_dtypes() {
  std::vector<MethodAndDtype> all;
  for (const flce::Method method : kMethods) {
    for (const flce::Dtype dtype : kDtypes) all.push_back({method, dtype});
  }
  return all;
}

inline std::string param_name(const testing::TestParamInfo<MethodAndDtype>& info) {
  return std::string(flce::name_of(info.param.method)) + "_" + flce::name_of(info.param.dtype);
}

inline std::string dtype_name(const testing::TestParamInfo<flce::Dtype>& info) {
  return flce::name_of(info.param);
}

// Prints in GoogleTest's own messages.
inline void PrintTo(const MethodAndDtype& param, std::ostream* out) {
  *out << flce::name_of(param.method) << " " << flce::name_of(param.dtype);
}

}  // namespace flce_test
