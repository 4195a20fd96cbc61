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

#if defined(__x86_64__)
bool has_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#endif

struct Isa {
  const char* name;
  bool (*is_here)();
  bool (*is_best)();  // where it is here: better than those before it
  Tables (*tables)();
};

bool always() { return true; }

Tables portable_tables() {
  return {"portable", &portable_kernels<float>(), &portable_kernels<double>(), nullptr};
}

// The best last, where it is better.
constexpr Isa kIsas[] = {
    {"portable", always, always, portable_tables},
#if defined(__x86_64__)
    {"avx2", [] { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }, always,
     [] {
       return Tables{"avx2", &avx2_kernels<float>(), &avx2_kernels<double>(), nullptr};
     }},
    {"avx512", has_avx512, always,
     [] {
       return Tables{"avx512", &avx512_kernels<float>(), &avx512_kernels<double>(), nullptr};
     }},
    {"avx512bf16", [] { return has_avx512() && __builtin_cpu_supports("avx512bf16"); },
     // Twice the f32 rate on Zen 4 and 5, but half of it on Intel's cores (docs/measured.md).
     [] { return __builtin_cpu_is("amd") != 0; },
     [] {
       return Tables{"avx512bf16", &avx512_kernels<float>(), &avx512_kernels<double>(),
                     &avx512bf16_kernels()};
     }},
#endif
};
constexpr std::string_view kNames = "portable, avx2, avx512, avx512bf16";

Tables choose_tables() {
  const std::string_view wanted = environment().isa;
  const Isa* chosen = nullptr;
  for (const Isa& isa : kIsas) {
    const bool is_wanted = wanted == isa.name;
    require(!is_wanted || isa.is_here(),
            "FLCE_ISA asks for '{}', which this processor lacks; 'portable' works anywhere",
            wanted);
    if (is_wanted || (wanted.empty() && isa.is_here() && isa.is_best())) chosen = &isa;
  }
  require(chosen != nullptr || kNames.find(wanted) == std::string_view::npos,
          "FLCE_ISA asks for '{}', which is for other processors; 'portable' works anywhere",
          wanted);
  require(chosen != nullptr, "FLCE_ISA is '{}'; known: {}", wanted, kNames);
  return chosen->tables();
}

Tables& chosen_tables() {
  static Tables tables = choose_tables();
  return tables;
}

}  // namespace

void use_tables(const Tables& tables) { chosen_tables() = tables; }

const char* isa_name() { return chosen_tables().name; }

template <>
const Kernels<double>& kernels<double>(const Problem&) {
  return *chosen_tables().f64;
}

template <>
const Kernels<float>& kernels<float>(const Problem& problem) {
  const Tables& tables = chosen_tables();
  return tables.bf16 != nullptr && fits_bf16_pairs(problem) ? *tables.bf16 : *tables.f32;
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
