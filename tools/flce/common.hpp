// SPDX-License-Identifier: Apache-2.0
// What the commands share: the device option, sizes in bytes, tables, and progress on a terminal.
// Knows no command.
#pragma once

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "flce/flce.hpp"

namespace flce::cli {

// "auto", "cpu", "cuda" or "cuda:1". `automatic`: the user left the choice to us.
struct Device {
  DeviceKind kind = DeviceKind::kCpu;
  int index = 0;
  bool automatic = true;
};
// Throws Error{kInvalidArgument} that says what would work.
Device parse_device(std::string_view text);
// --device, checked while parsing; `device` must outlive the parse and keeps its value as default.
CLI::Option* add_device_option(CLI::App& app, std::string& device);
// Whether there is less room than was asked for: in a budget, on the device, or in this process.
inline bool lacks_room(const Error& error) {
  return error.code() == ErrorCode::kOutOfBudget || error.code() == ErrorCode::kOutOfMemory;
}
// What a command that computes runs on; a card becomes the current one of this thread. `auto` is
// the first card where CUDA works, else the CPU. Throws Error{kUnsupported} for a card where there
// is none, saying why.
DeviceCaps device_to_run_on(std::string_view text);

// --route and --tf32: how a card computes. The library refuses them where they mean nothing.
struct RouteChoice {
  std::string route = "auto";
  bool allow_tf32 = false;

  bool is_given() const { return route != "auto" || allow_tf32; }
};
void add_route_options(CLI::App& app, RouteChoice& choice);
// Throws Error{kInvalidArgument} that lists the known routes.
void set_route(PlanRequest& request, const RouteChoice& choice);

// An option that takes a whole number.
CLI::Option* add_count_option(CLI::App& app, const std::string& name,
                              std::optional<std::int64_t>& count, const std::string& help);

// --chunk and --policy: how the token rows of a chunk are chosen. As typed.
struct ChunkChoice {
  std::optional<std::int64_t> chunk;
  std::optional<std::string> policy;

  bool is_given() const { return chunk || policy; }
};
void add_chunk_option(CLI::App& app, ChunkChoice& choice);
void add_policy_option(CLI::App& app, ChunkChoice& choice);
// Throws Error{kInvalidArgument} where the method, which is set already, would ignore the choice.
void set_chunk(PlanRequest& request, const ChunkChoice& choice);

// An option such as --budget 2GiB. 0 given explicitly is refused: it would leave nothing.
CLI::Option* add_bytes_option(CLI::App& app, const std::string& name, std::uint64_t& bytes,
                              const std::string& help);
// --json
CLI::Option* add_json_flag(CLI::App& app, bool& json);

bool stdout_is_terminal() noexcept;
bool stderr_is_terminal() noexcept;

// 16384 -> "16,384".
std::string format_count(std::int64_t count);
// "18.4 ms", "1.25 s"; "-" for 0, which means unknown.
std::string format_seconds(double seconds);

// Throws Error{kInternal} if stdout could not take everything (a full disk, a closed pipe).
void write_out(std::string_view text);

// Columns separated by two spaces, the first one left-aligned, the others right-aligned.
class Table {
 public:
  explicit Table(std::vector<std::string> header);
  // One cell for each column; missing ones are empty.
  void add(std::vector<std::string> cells);
  std::string text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

// One line on stderr that is rewritten in place, only if stderr is a terminal. Gone afterwards.
class Progress {
 public:
  explicit Progress(std::string label);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  // Shows "label  done/total  detail"; total 0 leaves the count out. Cheap to call often.
  void update(std::int64_t done, std::int64_t total, std::string_view detail = {});
  void clear();

 private:
  std::string label_;
  bool enabled_;
  bool shown_ = false;
  std::chrono::steady_clock::time_point last_{};
};

// For options whose value is a whole number, ends included; with transform(), not check(). CLI11's
// own conversion turns a number beyond 64 bits into the largest one, -1 into the largest without a
// sign, and 010 into 8.
CLI::Validator whole_number(std::int64_t least = std::numeric_limits<std::int64_t>::min(),
                            std::int64_t most = std::numeric_limits<std::int64_t>::max());
CLI::Validator seed_number();

// For options whose value is a decimal number, with check(). None takes nan, inf or what f64 would
// make 0 or inf of; CLI11's own conversion does, and takes 0x10.
CLI::Validator finite_number();
CLI::Validator more_than_zero();
CLI::Validator zero_or_more();
CLI::Validator number_between(double least, double most);

}  // namespace flce::cli
