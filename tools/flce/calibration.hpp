// SPDX-License-Identifier: Apache-2.0
// The figures of this machine's processor in a file, so that plans also say how long a step takes:
// `flce info --calibrate` measures and writes them, plan and train read them where they fit.
//
// $XDG_CACHE_HOME/flce/cpu.json, else ~/.cache/flce/cpu.json. It holds one entry for each processor
// model, instruction set and number of threads, for a home folder may be shared by machines.
// Nothing needs the file: what is missing, broken or of another machine is as good as no file.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "flce/calibrate.hpp"
#include "flce/flce.hpp"

namespace flce::cli {

struct Calibration {
  std::map<std::string, double> matmul_flops;  // by the type's name
  double bandwidth_bytes = 0.0;
  std::string date;  // UTC
};

// "model name" of /proc/cpuinfo, or "unknown".
std::string cpu_model();
// Now, UTC: "2026-01-31T12:00:00Z".
std::string date_now();

// Empty where neither XDG_CACHE_HOME nor HOME says where.
std::string calibration_path();

// What the file has for this machine; `note` says why there is nothing.
struct StoredCalibration {
  std::optional<Calibration> entry;
  std::string note;
};
StoredCalibration read_calibration(const DeviceCaps& cpu);

// Measures all types with caps' number of threads; some seconds.
Calibration measure_calibration(const DeviceCaps& cpu);
// Replaces this machine's entry and keeps the others; returns the path. Throws
// Error{kInvalidArgument} naming the path and the system's reason.
std::string write_calibration(const DeviceCaps& cpu, const Calibration& calibration);

// `caps` with the stored figures for this type, unchanged where there are none, and for a card.
DeviceCaps calibrated(DeviceCaps caps, Dtype dtype);

}  // namespace flce::cli
