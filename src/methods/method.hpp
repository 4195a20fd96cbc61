// SPDX-License-Identifier: Apache-2.0
// A method is an order of verbs. It reads no value behind a pointer and knows no element type.
//
// To add one: a file beside naive.cpp that defines a MethodInfo, and its line in
// src/api/registry.cpp.
#pragma once

#include <array>

#include "backend/backend.hpp"

namespace flce {

struct MethodInfo {
  Method method = Method::kAuto;
  bool is_eager = false;  // a baseline that Method::kAuto never takes; booked by backend/eager.hpp
  // Products of 2*N*H*V flops for the wanted gradients.
  int (*num_gemms)(const Problem&) = nullptr;
  // Writes why this method cannot serve the problem and what would; leaves `text` empty if it can.
  void (*refusal)(const Problem&, std::array<char, 320>& text) = nullptr;
  // What it keeps, for a tiling.
  Kept (*kept)(const Problem&, const Tiling&) = nullptr;
  // Pass::kRun calls forward, then backward, on the same workspace.
  void (*forward)(const Backend&, const Step&) = nullptr;
  void (*backward)(const Backend&, const Step&) = nullptr;
  // Why a plan of it cannot be run, null if it can. Null: every plan can.
  const char* (*planned_only)(const Problem&) = nullptr;
};

// What the planner may choose from, in the order in which Method::kAuto prefers them; handed down
// by src/api/registry.cpp.
struct Registry {
  const MethodInfo* const* methods = nullptr;
  int num_methods = 0;
  const Backend* (*backend_of)(DeviceKind) = nullptr;  // null where the build has none
};

}  // namespace flce
