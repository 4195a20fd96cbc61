// SPDX-License-Identifier: Apache-2.0
// `flce info`: what this build can do on this machine.
#include <fmt/format.h>

#include <array>
#include <memory>
#include <nlohmann/json.hpp>

#include "commands.hpp"
#include "common.hpp"
#include "flce/advice.hpp"

namespace flce::cli {
namespace {

constexpr const char* kFooter = R"(Examples:
  flce info
  flce info --json
  FLCE_NUM_THREADS=2 FLCE_ISA=avx2 flce info

FLCE_NUM_THREADS sets the worker threads of the CPU backend, FLCE_ISA its kernels (portable, avx2 or
avx512).)";

constexpr std::array kMethods{Method::kFused, Method::kRecompute, Method::kChunked, Method::kNaive};
constexpr std::array kBaselines{Method::kNaiveEager, Method::kChunkedEager};
constexpr std::array kDtypes{Dtype::kF64, Dtype::kF32, Dtype::kBF16, Dtype::kF16};

template <typename Enum, std::size_t Size>
std::string names(const std::array<Enum, Size>& values) {
  std::string text;
  for (const Enum value : values) text += (text.empty() ? "" : ", ") + std::string(name_of(value));
  return text;
}

std::string compiler() {
#if defined(__clang__)
  return fmt::format("clang {}.{}", __clang_major__, __clang_minor__);
#elif defined(__GNUC__)
  return fmt::format("gcc {}.{}", __GNUC__, __GNUC_MINOR__);
#else
  return "unknown";
#endif
}

std::string info_as_text(const DeviceCaps& cpu) {
  return fmt::format(
      "flce      {} (built with {})\n"
      "cpu       {}, {} thread{}, {} kernels{}\n"
      "cuda      no run path in this build; plans for cards by name\n"
      "methods   {}; baselines: {}\n"
      "dtypes    {}\n"
      "cards     {}\n"
      "models    {}\n",
      version(), compiler(), cpu.name.data(), cpu.num_threads, cpu.num_threads == 1 ? "" : "s",
      cpu_isa(),
      cpu.memory_bytes > 0 ? fmt::format(", {} of memory", format_bytes(cpu.memory_bytes)) : "",
      names(kMethods), names(kBaselines), names(kDtypes), known_caps(), known_models());
}

std::string info_as_json(const DeviceCaps& cpu) {
  using Json = nlohmann::ordered_json;
  const auto list = [](const auto& values) {
    Json json = Json::array();
    for (const auto value : values) json.push_back(name_of(value));
    return json;
  };
  Json json;
  json["version"] = version();
  json["compiler"] = compiler();
  json["devices"] = Json::array(
      {{{"kind", "cpu"},
        {"name", cpu.name.data()},
        {"num_threads", cpu.num_threads},
        {"isa", cpu_isa()},
        {"memory_bytes", cpu.memory_bytes > 0 ? Json(cpu.memory_bytes) : Json(nullptr)}}});
  json["backends"] = {{{"kind", "cpu"}, {"plans", true}, {"runs", true}},
                      {{"kind", "cuda"}, {"plans", true}, {"runs", false}}};
  json["methods"] = list(kMethods);
  json["baselines"] = list(kBaselines);
  json["dtypes"] = list(kDtypes);
  json["cards"] = known_caps();
  json["models"] = known_models();
  return json.dump(2) + '\n';
}

}  // namespace

Command add_info(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("info", "devices, instruction sets, methods and versions of this build");
  command->footer(kFooter);
  const auto json = std::make_shared<bool>(false);
  add_json_flag(*command, *json);
  return {command, [json] {
            const DeviceCaps cpu = cpu_caps();
            write_out(*json ? info_as_json(cpu) : info_as_text(cpu));
            return 0;
          }};
}

}  // namespace flce::cli
