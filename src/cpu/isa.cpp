// SPDX-License-Identifier: Apache-2.0
// The choice of the instruction set, made once: the best that processor and system offer, or what
// FLCE_ISA asks for.
#include <string_view>

#include "core/check.hpp"
#include "core/env.hpp"
#include "cpu/kernels.hpp"
#include "flce/flce.hpp"

namespace flce::cpu {
namespace {

enum class Isa { kPortable, kAvx2, kAvx512 };

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
  }
  return false;
#else
  return isa == Isa::kPortable;
#endif
}

Isa choose_isa() {
  const std::string_view wanted = environment().isa;
  if (wanted.empty()) {
    return has(Isa::kAvx512) ? Isa::kAvx512 : has(Isa::kAvx2) ? Isa::kAvx2 : Isa::kPortable;
  }
  const Isa isa = wanted == "portable" ? Isa::kPortable
                  : wanted == "avx2"   ? Isa::kAvx2
                  : wanted == "avx512"
                      ? Isa::kAvx512
                      : (fail(ErrorCode::kInvalidArgument,
                              "FLCE_ISA is '{}'; known: portable, avx2, avx512", wanted),
                         Isa::kPortable);
  require(has(isa), "FLCE_ISA asks for '{}', which this processor lacks; 'portable' works anywhere",
          wanted);
  return isa;
}

Isa chosen_isa() {
  static const Isa isa = choose_isa();
  return isa;
}

}  // namespace

template <typename Acc>
const Kernels<Acc>& kernels() {
#if defined(__x86_64__)
  switch (chosen_isa()) {
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
template const Kernels<float>& kernels<float>();
template const Kernels<double>& kernels<double>();

}  // namespace flce::cpu

namespace flce {

// An unusable FLCE_ISA speaks up in `plan` and `run`; here it is only a name.
const char* cpu_isa() noexcept {
  try {
    return cpu::kernels<float>().isa;
  } catch (const Error&) {
    return "unusable FLCE_ISA";
  }
}

}  // namespace flce
