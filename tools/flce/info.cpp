// SPDX-License-Identifier: Apache-2.0
// `flce info`: what this build can do on this machine.
#include <fmt/format.h>

#include <array>
#include <memory>
#include <nlohmann/json.hpp>

#include "calibration.hpp"
#include "commands.hpp"
#include "common.hpp"
#include "flce/advice.hpp"

namespace flce::cli {
namespace {

constexpr const char* kFooter = R"(Examples:
  flce info
  flce info --json
  flce info --calibrate
  FLCE_NUM_THREADS=2 FLCE_ISA=avx2 flce info

FLCE_NUM_THREADS sets the worker threads of the CPU backend, FLCE_ISA its kernels (portable, avx2 or
avx512).

--calibrate measures what this processor does at best, on all threads, and keeps it in
$XDG_CACHE_HOME/flce/cpu.json (else ~/.cache/flce/cpu.json): 'flce plan' then says how long each
method takes here. It takes a few seconds; let nothing else run meanwhile.)";

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

std::string figures_text(const StoredCalibration& stored) {
  if (!stored.entry) return stored.note;
  std::string text;
  for (const auto& [dtype, flops] : stored.entry->matmul_flops) {
    text += fmt::format("{}{} {:.1f}", text.empty() ? "" : ", ", dtype, 1e-9 * flops);
  }
  return fmt::format("{} GFLOP/s, {:.1f} GB/s from memory; measured {}, {}", text,
                     1e-9 * stored.entry->bandwidth_bytes, stored.entry->date, calibration_path());
}

std::string info_as_text(const DeviceCaps& cpu) {
  return fmt::format(
      "flce      {} (built with {})\n"
      "cpu       {}, {} thread{}, {} kernels{}\n"
      "figures   {}\n"
      "cuda      no run path in this build; plans for cards by name\n"
      "methods   {}; baselines: {}\n"
      "dtypes    {}\n"
      "cards     {}\n"
      "models    {}\n",
      version(), compiler(), cpu.name.data(), cpu.num_threads, cpu.num_threads == 1 ? "" : "s",
      cpu_isa(),
      cpu.memory_bytes > 0 ? fmt::format(", {} of memory", format_bytes(cpu.memory_bytes)) : "",
      figures_text(read_calibration(cpu)), names(kMethods), names(kBaselines), names(kDtypes),
      known_caps(), known_models());
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
  const StoredCalibration stored = read_calibration(cpu);
  Json& device = json["devices"][0];
  device["cpu_model"] = cpu_model();
  device["matmul_flops"] = stored.entry ? Json(stored.entry->matmul_flops) : Json(nullptr);
  device["bandwidth_bytes"] = stored.entry ? Json(stored.entry->bandwidth_bytes) : Json(nullptr);
  device["calibration"] = stored.entry ? stored.entry->date : stored.note;
  json["backends"] = {{{"kind", "cpu"}, {"plans", true}, {"runs", true}},
                      {{"kind", "cuda"}, {"plans", true}, {"runs", false}}};
  json["methods"] = list(kMethods);
  json["baselines"] = list(kBaselines);
  json["dtypes"] = list(kDtypes);
  json["cards"] = known_caps();
  json["models"] = known_models();
  return json.dump(2) + '\n';
}

struct InfoOptions {
  bool json = false;
  bool calibrate = false;
};

int info(const InfoOptions& options) {
  const DeviceCaps cpu = cpu_caps();
  if (options.calibrate) {
    Progress progress("info");
    progress.update(0, 0, "measuring the processor");
    write_calibration(cpu, measure_calibration(cpu));
  }
  write_out(options.json ? info_as_json(cpu) : info_as_text(cpu));
  return 0;
}

}  // namespace

Command add_info(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("info", "devices, instruction sets, methods and versions of this build");
  command->footer(kFooter);
  const auto options = std::make_shared<InfoOptions>();
  add_json_flag(*command, options->json);
  command->add_flag("--calibrate", options->calibrate,
                    "measure this processor's peak and bandwidth, and keep them");
  return {command, [options] { return info(*options); }};
}

}  // namespace flce::cli
