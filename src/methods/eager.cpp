// SPDX-License-Identifier: Apache-2.0
// The eager variants of naive and chunked: what the PyTorch code that people run keeps in memory.
// They are planned, never run; their bytes are booked by src/plan/book.cpp, on any device alike.
#include "methods/methods.hpp"

namespace flce {
namespace {

constexpr MethodInfo eager(Method method) {
  MethodInfo info;
  info.method = method;
  info.runnable = false;
  info.num_gemms = [](const Problem& p) { return count_gemms(p, 1); };
  info.refusal = never_refuses;
  return info;
}

}  // namespace

const MethodInfo kMethodNaiveEager = eager(Method::kNaiveEager);
const MethodInfo kMethodChunkedEager = eager(Method::kChunkedEager);

}  // namespace flce
