// SPDX-License-Identifier: Apache-2.0
// The choice of the instruction set, made once: the best that processor and system offer, or what
// FLCE_ISA asks for.
#include <algorithm>
#include <array>
#include <string_view>

#include "core/check.hpp"
#include "core/env.hpp"
#include "cpu/kernels.hpp"
#include "flce/flce.hpp"

namespace flce::cpu {
namespace {

enum class Isa { kPortable, kAvx2, kAvx512, kAvx512Bf16 };
constexpr std::array<const char*, 4> kNames{"portable", "avx2", "avx512", "avx512bf16"};

bool has(Isa isa) {
#if defined(__x86_64__)
  switch (isa) {
    case Isa::kPortable:
      return true;
    case Isa::kAvx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    case Isa::kAvx512:
      return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    case Isa::kAvx512Bf16:
      return has(Isa::kAvx512) && __builtin_cpu_supports("avx512bf16");
  }
  return false;
#else
  return isa == Isa::kPortable;
#endif
}

Isa choose_isa() {
  const std::string_view wanted = environment().isa;
  if (wanted.empty()) {
    for (const Isa isa : {Isa::kAvx512Bf16, Isa::kAvx512, Isa::kAvx2}) {
      if (has(isa)) return isa;
    }
    return Isa::kPortable;
  }
  const auto* const name = std::find(kNames.begin(), kNames.end(), wanted);
  require(name != kNames.end(), "FLCE_ISA is '{}'; known: portable, avx2, avx512, avx512bf16",
          wanted);
  const auto isa = static_cast<Isa>(name - kNames.begin());
  require(has(isa), "FLCE_ISA asks for '{}', which this processor lacks; 'portable' works anywhere",
          wanted);
  return isa;
}

Isa chosen_isa() {
  static const Isa isa = choose_isa();
  return isa;
}

// The tables that serve every problem.
template <typename Acc>
const Kernels<Acc>& plain_kernels() {
#if defined(__x86_64__)
  switch (chosen_isa()) {
    case Isa::kAvx512Bf16:
    case Isa::kAvx512:
      return avx512_kernels<Acc>();
    case Isa::kAvx2:
      return avx2_kernels<Acc>();
    case Isa::kPortable:
      break;
  }
#endif
  return portable_kernels<Acc>();
}

}  // namespace

const char* isa_name() { return kNames[static_cast<std::size_t>(chosen_isa())]; }

template <>
const Kernels<double>& kernels<double>(const Problem&) {
  return plain_kernels<double>();
}

template <>
const Kernels<float>& kernels<float>(const Problem& problem) {
#if defined(__x86_64__)
  if (chosen_isa() == Isa::kAvx512Bf16 && fits_bf16_pairs(problem)) return avx512bf16_kernels();
#endif
  static_cast<void>(problem);
  return plain_kernels<float>();
}

}  // namespace flce::cpu

namespace flce {

// An unusable FLCE_ISA speaks up in `plan` and `run`; here it is only a name.
const char* cpu_isa() noexcept {
  try {
    return cpu::isa_name();
  } catch (const Error&) {
    return "unusable FLCE_ISA";
  }
}

}  // namespace flce
