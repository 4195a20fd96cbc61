// SPDX-License-Identifier: Apache-2.0
// `flce info`: what this build can do on this machine.
#include <fmt/format.h>

#include <array>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "calibration.hpp"
#include "commands.hpp"
#include "common.hpp"
#include "flce/advice.hpp"
#include "flce/device.hpp"

namespace flce::cli {
namespace {

constexpr const char* kFooter = R"(Examples:
  flce info
  flce info --json
  flce info --calibrate
  FLCE_NUM_THREADS=2 FLCE_ISA=avx2 flce info

Lists this machine's processor and every CUDA card ('cuda:0' is what --device takes), or says why
there is none; and which kernels for cards this build has: 'hopper' for compute capability 9.0 is
there if it was built with CUTLASS's headers.

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

// 13000 is CUDA 13.0.
std::string cuda_version(int number) {
  return fmt::format("{}.{}", number / 1000, number % 1000 / 10);
}

// 130100 is cuBLAS 13.1.0; before its version 12 the major number stood before four digits only.
std::string cublas_version(int number) {
  const int major = number >= 100'000 ? number / 10'000 : number / 1'000;
  return fmt::format("{}.{}.{}", major, number / 100 % (number >= 100'000 ? 100 : 10),
                     number % 100);
}

// 90 is 9.0, 120 is 12.0.
std::string capability(int number) { return fmt::format("{}.{}", number / 10, number % 10); }

// What CUDA has here; asked once for both forms.
struct CudaFacts {
  std::string refusal;  // empty: the rest is filled
  std::vector<CudaDevice> devices;
  CudaLibraries libraries;
  std::vector<std::string> kernels;  // even with a refusal
};

CudaFacts cuda_facts() {
  CudaFacts facts{cuda_refusal(), {}, {}, cuda_kernels()};
  if (!facts.refusal.empty()) return facts;
  facts.devices = cuda_devices();
  facts.libraries = cuda_libraries();
  return facts;
}

std::string cuda_text(const CudaFacts& cuda) {
  const std::string kernels =
      cuda.kernels.empty()
          ? std::string()
          : fmt::format("cuda      kernels of this build: {}\n", fmt::join(cuda.kernels, ", "));
  if (!cuda.refusal.empty()) return fmt::format("cuda      none: {}\n{}", cuda.refusal, kernels);
  std::string text;
  for (const CudaDevice& card : cuda.devices) {
    text += fmt::format("cuda:{:<5}{}, compute capability {}, {} SMs, {} of memory\n", card.index,
                        card.name, capability(card.compute_capability), card.num_sms,
                        format_bytes(card.memory_bytes));
  }
  const CudaLibraries& l = cuda.libraries;
  return text +
         fmt::format("cuda      driver for CUDA {}, runtime {}, cuBLASLt {} ({})\n",
                     cuda_version(l.driver_version), cuda_version(l.runtime_version),
                     cublas_version(l.cublaslt_version), l.cublaslt_path) +
         kernels;
}

nlohmann::ordered_json cuda_json(const CudaFacts& cuda) {
  using Json = nlohmann::ordered_json;
  if (!cuda.refusal.empty()) return {{"refusal", cuda.refusal}, {"kernels", cuda.kernels}};
  const CudaLibraries& l = cuda.libraries;
  return {{"refusal", Json(nullptr)},
          {"driver_version", cuda_version(l.driver_version)},
          {"runtime_version", cuda_version(l.runtime_version)},
          {"cublaslt_version", cublas_version(l.cublaslt_version)},
          {"cublaslt_path", l.cublaslt_path},
          {"kernels", cuda.kernels}};
}

nlohmann::ordered_json card_json(const CudaDevice& card) {
  return {{"kind", "cuda"},
          {"index", card.index},
          {"name", card.name},
          {"compute_capability", capability(card.compute_capability)},
          {"num_sms", card.num_sms},
          {"memory_bytes", card.memory_bytes},
          {"l2_bytes", card.l2_bytes},
          {"shared_bytes", card.shared_bytes}};
}

std::string info_as_text(const DeviceCaps& cpu) {
  return fmt::format(
      "flce      {} (built with {})\n"
      "cpu       {}, {} thread{}, {} kernels{}\n"
      "figures   {}\n"
      "{}"
      "methods   {}; baselines: {}\n"
      "dtypes    {}\n"
      "cards     {}\n"
      "models    {}\n",
      version(), compiler(), cpu.name.data(), cpu.num_threads, cpu.num_threads == 1 ? "" : "s",
      cpu_isa(),
      cpu.memory_bytes > 0 ? fmt::format(", {} of memory", format_bytes(cpu.memory_bytes)) : "",
      figures_text(read_calibration(cpu)), cuda_text(cuda_facts()), names(kMethods),
      names(kBaselines), names(kDtypes), known_caps(), known_models());
}

std::string info_as_json(const DeviceCaps& cpu) {
  using Json = nlohmann::ordered_json;
  const auto list = [](const auto& values) {
    Json json = Json::array();
    for (const auto value : values) json.push_back(name_of(value));
    return json;
  };
  Json json = Json::object();
  json["version"] = version();
  json["compiler"] = compiler();
  json["devices"] = Json::array(
      {{{"kind", "cpu"},
        {"name", cpu.name.data()},
        {"num_threads", cpu.num_threads},
        {"isa", cpu_isa()},
        {"memory_bytes", cpu.memory_bytes > 0 ? Json(cpu.memory_bytes) : Json(nullptr)}}});
  const StoredCalibration stored = read_calibration(cpu);
  Json& device = json["devices"][0];  // before others are appended
  device["cpu_model"] = cpu_model();
  device["matmul_flops"] = stored.entry ? Json(stored.entry->matmul_flops) : Json(nullptr);
  device["bandwidth_bytes"] = stored.entry ? Json(stored.entry->bandwidth_bytes) : Json(nullptr);
  device["calibration"] = stored.entry ? stored.entry->date : stored.note;
  const CudaFacts cuda = cuda_facts();
  for (const CudaDevice& card : cuda.devices) json["devices"].push_back(card_json(card));
  json["backends"] = {{{"kind", "cpu"}, {"plans", true}, {"runs", true}},
                      {{"kind", "cuda"}, {"plans", true}, {"runs", cuda.refusal.empty()}}};
  json["cuda"] = cuda_json(cuda);
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
