// SPDX-License-Identifier: Apache-2.0
#include "calibration.hpp"

#include <fmt/chrono.h>
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <system_error>

#include "io/atomic_file.hpp"

namespace flce::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int kFormat = 1;
constexpr std::uintmax_t kLargestFile = 1 << 20;
constexpr std::array kDtypes{Dtype::kF64, Dtype::kF32, Dtype::kBF16, Dtype::kF16};

// What an entry is valid for.
Json key_of(const DeviceCaps& cpu) {
  return {{"cpu_model", cpu_model()}, {"isa", cpu_isa()}, {"threads", cpu.num_threads}};
}

bool has_key(const Json& entry, const Json& key) {
  if (!entry.is_object()) return false;
  return std::all_of(key.items().begin(), key.items().end(), [&](const auto& field) {
    return entry.contains(field.key()) && entry[field.key()] == field.value();
  });
}

// The entries, or why there are none.
struct File {
  Json machines = Json::array();
  std::string note;
};

File read_file(const std::string& path) {
  File file;
  std::error_code error;
  if (path.empty() || !fs::exists(path, error)) {
    file.note = "not measured; flce info --calibrate does it";
    return file;
  }
  const std::string broken =
      fmt::format("{} is no calibration of this version; flce info --calibrate replaces it", path);
  if (fs::file_size(path, error) > kLargestFile || error) {
    file.note = broken;
    return file;
  }
  std::ifstream stream(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  const Json json = Json::parse(text, nullptr, false);
  if (json.is_object() && json.value("format", Json()) == kFormat && json.contains("machines") &&
      json["machines"].is_array()) {
    file.machines = json["machines"];
  } else {
    file.note = broken;
  }
  return file;
}

bool is_figure(const Json& value) {
  return value.is_number() && std::isfinite(value.get<double>()) && value.get<double>() > 0.0;
}

std::optional<Calibration> entry_of(const Json& json) {
  const Json flops = json.value("matmul_flops", Json::object());
  const Json bandwidth = json.value("bandwidth_bytes", Json());
  if (!flops.is_object() || !is_figure(bandwidth)) return std::nullopt;
  Calibration calibration;
  for (const Dtype dtype : kDtypes) {
    const Json figure = flops.value(name_of(dtype), Json());
    if (!is_figure(figure)) return std::nullopt;
    calibration.matmul_flops[name_of(dtype)] = figure.get<double>();
  }
  calibration.bandwidth_bytes = bandwidth.get<double>();
  const Json date = json.value("date", Json());
  if (date.is_string()) calibration.date = date.get<std::string>();
  return calibration;
}

}  // namespace

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(": ");
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos) {
      return line.substr(colon + 2);
    }
  }
  return "unknown";
}

std::string date_now() {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
}

std::string calibration_path() {
  const auto folder = [](const char* name) -> fs::path {
    const char* value = std::getenv(name);
    // The standard says that a relative path is to be ignored.
    return value != nullptr && value[0] == '/' ? value : "";
  };
  fs::path cache = folder("XDG_CACHE_HOME");
  if (cache.empty()) {
    const fs::path home = folder("HOME");
    if (home.empty()) return {};
    cache = home / ".cache";
  }
  return (cache / "flce" / "cpu.json").string();
}

StoredCalibration read_calibration(const DeviceCaps& cpu) {
  const std::string path = calibration_path();
  File file = read_file(path);
  if (!file.note.empty()) return {std::nullopt, file.note};
  const Json key = key_of(cpu);
  for (const Json& machine : file.machines) {
    if (!has_key(machine, key)) continue;
    std::optional<Calibration> entry = entry_of(machine);
    if (entry) return {entry, {}};
    return {std::nullopt,
            fmt::format("the entry in {} is broken; flce info --calibrate replaces it", path)};
  }
  return {
      std::nullopt,
      fmt::format("{} knows other processors, instruction sets or numbers of threads only; flce "
                  "info --calibrate adds this one",
                  path)};
}

Calibration measure_calibration(const DeviceCaps& cpu) {
  constexpr int kBursts = 9;
  Calibration calibration;
  const CpuFigures f32 = measure_cpu(Dtype::kF32, cpu.num_threads);
  calibration.bandwidth_bytes = f32.bandwidth_bytes;
  for (const Dtype dtype : kDtypes) {
    double& flops = calibration.matmul_flops[name_of(dtype)];
    if (dtype == Dtype::kF32) {
      flops = f32.matmul_flops;
      continue;
    }
    for (int i = 0; i < kBursts; ++i) {
      flops = std::max(flops, measure_matmul_flops(dtype, cpu.num_threads));
    }
  }
  calibration.date = date_now();
  return calibration;
}

std::string write_calibration(const DeviceCaps& cpu, const Calibration& calibration) {
  const std::string path = calibration_path();
  if (path.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                "nowhere to write the calibration: set XDG_CACHE_HOME or HOME to a whole path");
  }
  const Json key = key_of(cpu);
  Json machines = Json::array();
  for (const Json& machine : read_file(path).machines) {
    if (!has_key(machine, key)) machines.push_back(machine);
  }
  Json entry = key;
  entry["matmul_flops"] = calibration.matmul_flops;
  entry["bandwidth_bytes"] = calibration.bandwidth_bytes;
  entry["date"] = calibration.date;
  entry["version"] = version();
  machines.push_back(entry);
  std::error_code error;
  fs::create_directories(fs::path(path).parent_path(), error);
  if (error) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{}: cannot make the folder: {}", path, error.message()));
  }
  io::write_text_atomic(path, Json{{"format", kFormat}, {"machines", machines}}.dump(2) + "\n");
  return path;
}

DeviceCaps calibrated(DeviceCaps caps, Dtype dtype) {
  if (caps.kind != DeviceKind::kCpu) return caps;
  const StoredCalibration stored = read_calibration(caps);
  if (!stored.entry) return caps;
  const auto found = stored.entry->matmul_flops.find(name_of(dtype));
  if (found == stored.entry->matmul_flops.end()) return caps;
  caps.matmul_flops = found->second;
  caps.bandwidth_bytes = stored.entry->bandwidth_bytes;
  return caps;
}

}  // namespace flce::cli
