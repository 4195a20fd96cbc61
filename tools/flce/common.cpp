// SPDX-License-Identifier: Apache-2.0
#include "common.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>

#include "flce/device.hpp"

namespace flce::cli {
namespace {

[[noreturn]] void fail_device(std::string_view text) {
  throw Error(
      ErrorCode::kInvalidArgument,
      fmt::format("unknown device '{}'; known: auto, cpu, cuda, cuda:0, cuda:1, ...", text));
}

}  // namespace

Device parse_device(std::string_view text) {
  if (text == "auto") return {};
  if (text == "cpu") return {DeviceKind::kCpu, 0, false};
  if (text == "cuda") return {DeviceKind::kCuda, 0, false};
  constexpr std::string_view kPrefix = "cuda:";
  if (text.substr(0, kPrefix.size()) != kPrefix) fail_device(text);
  Device device{DeviceKind::kCuda, 0, false};
  const std::string_view index = text.substr(kPrefix.size());
  const auto [end, error] =
      std::from_chars(index.data(), index.data() + index.size(), device.index);
  if (error != std::errc{} || end != index.data() + index.size() || device.index < 0) {
    fail_device(text);
  }
  return device;
}

CLI::Option* add_device_option(CLI::App& app, std::string& device) {
  const auto check = [](const std::string& text) -> std::string {
    try {
      parse_device(text);
      return {};
    } catch (const Error& error) {
      return error.what();
    }
  };
  return app.add_option("--device", device, "auto, cpu, cuda or cuda:INDEX")
      ->check(check)
      ->type_name("DEVICE")
      ->capture_default_str();
}

DeviceCaps device_to_run_on(std::string_view text) {
  const Device device = parse_device(text);
  const bool is_cpu = device.kind == DeviceKind::kCpu && !device.automatic;
  if (is_cpu || (device.automatic && !has_cuda())) return cpu_caps();
  if (!has_cuda()) {
    throw Error(ErrorCode::kUnsupported, fmt::format("device '{}': {}", text, cuda_refusal()));
  }
  const DeviceCaps caps = cuda_caps(device.index);
  cuda_set_device(device.index);
  return caps;
}

void add_route_options(CLI::App& app, RouteChoice& choice) {
  app.add_option("--route", choice.route, "how a CUDA card computes: auto, portable or hopper")
      ->type_name("ROUTE")
      ->capture_default_str();
  app.add_flag("--tf32", choice.allow_tf32,
               "CUDA, f32: products of operands rounded to 10 bits of mantissa");
}

void set_route(PlanRequest& request, const RouteChoice& choice) {
  request.route = route_of(choice.route);
  request.allow_tf32 = choice.allow_tf32;
}

CLI::Option* add_count_option(CLI::App& app, const std::string& name,
                              std::optional<std::int64_t>& count, const std::string& help) {
  return app.add_option(name, count, help)->transform(whole_number());
}

void add_chunk_option(CLI::App& app, ChunkChoice& choice) {
  add_count_option(app, "--chunk", choice.chunk, "token rows of a chunk (default: chosen)")
      ->type_name("C");
}

void add_policy_option(CLI::App& app, ChunkChoice& choice) {
  app.add_option("--policy", choice.policy,
                 "measured (the default) or liger, the published chunk rule")
      ->check(CLI::IsMember({"measured", "liger"}))
      ->type_name("POLICY");
}

void set_chunk(PlanRequest& request, const ChunkChoice& choice) {
  if (!choice.is_given()) return;
  const std::string given =
      choice.chunk ? fmt::format("--chunk {}", *choice.chunk) : "--policy " + *choice.policy;
  const auto refuse = [&](const std::string& text) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("{}: {}", given, text));
  };
  if (choice.chunk && *choice.chunk < 1) {
    refuse("a chunk has at least 1 token row; without --chunk the policy chooses");
  }
  if (!has_chunks(request.method)) {
    refuse(
        fmt::format("method {} takes all tokens at once; a chunk goes with chunked, fused or "
                    "recompute",
                    name_of(request.method)));
  }
  if (choice.chunk && choice.policy) {
    refuse(
        fmt::format("--policy {} chooses the chunk, too; leave out one of them", *choice.policy));
  }
  request.chunk = choice.chunk.value_or(0);
  if (choice.policy == "liger") request.policy = ChunkPolicy::kLiger;
}

CLI::Option* add_bytes_option(CLI::App& app, const std::string& name, std::uint64_t& bytes,
                              const std::string& help) {
  const auto take = [&bytes, name](const std::string& text) {
    try {
      bytes = parse_bytes(text);
    } catch (const Error& error) {
      throw CLI::ValidationError(name, error.what());
    }
    if (bytes == 0) throw CLI::ValidationError(name, "0 bytes leave nothing to work with");
  };
  return app.add_option_function<std::string>(name, take, help)->type_name("BYTES");
}

CLI::Option* add_json_flag(CLI::App& app, bool& json) {
  return app.add_flag("--json", json, "print JSON instead of a table");
}

bool stdout_is_terminal() noexcept { return ::isatty(STDOUT_FILENO) == 1; }
bool stderr_is_terminal() noexcept { return ::isatty(STDERR_FILENO) == 1; }

std::string format_count(std::int64_t count) {
  std::string text = std::to_string(count);
  const std::size_t first = count < 0 ? 1 : 0;
  for (std::size_t i = text.size(); i > first + 3; i -= 3) text.insert(i - 3, 1, ',');
  return text;
}

std::string format_seconds(double seconds) {
  if (seconds <= 0.0) return "-";
  if (seconds < 1e-3) return fmt::format("{:.1f} us", 1e6 * seconds);
  if (seconds < 1.0) return fmt::format("{:.2f} ms", 1e3 * seconds);
  return fmt::format("{:.2f} s", seconds);
}

void write_out(std::string_view text) {
  const bool whole = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (!whole || std::fflush(stdout) != 0) {
    throw Error(ErrorCode::kInternal,
                fmt::format("cannot write to stdout: {}", std::strerror(errno)));
  }
}

Table::Table(std::vector<std::string> header) { rows_.push_back(std::move(header)); }

void Table::add(std::vector<std::string> cells) {
  cells.resize(rows_[0].size());
  rows_.push_back(std::move(cells));
}

std::string Table::text() const {
  std::vector<std::size_t> widths(rows_[0].size(), 0);
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows_) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      line += i == 0 ? fmt::format("{:<{}}", row[i], widths[i])
                     : fmt::format("  {:>{}}", row[i], widths[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  }
  return text;
}

Progress::Progress(std::string label) : label_(std::move(label)), enabled_(stderr_is_terminal()) {}

Progress::~Progress() { clear(); }

void Progress::update(std::int64_t done, std::int64_t total, std::string_view detail) {
  if (!enabled_) return;
  constexpr std::chrono::milliseconds kBetween{100};
  const auto now = std::chrono::steady_clock::now();
  if (shown_ && now - last_ < kBetween) return;
  last_ = now;
  shown_ = true;
  const std::string count = total > 0 ? fmt::format("  {}/{}", done, total) : std::string();
  fmt::print(stderr, "\r\x1b[K{}{}  {}", label_, count, detail);
  std::fflush(stderr);
}

void Progress::clear() {
  if (!shown_) return;
  shown_ = false;
  std::fputs("\r\x1b[K", stderr);
  std::fflush(stderr);
}

namespace {

// Leaves the number as CLI11 reads it: without leading zeros.
template <typename Int>
std::string make_whole(std::string& text, Int least, Int most) {
  using Limits = std::numeric_limits<Int>;
  Int value = 0;
  const char* stop = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), stop, value);
  if (error == std::errc{} && end == stop && value >= least && value <= most) {
    text = std::to_string(value);
    return {};
  }
  std::string rule;
  if (most < Limits::max()) {
    rule = fmt::format(" from {} to {}", least, most);
  } else {
    if (least > Limits::min() || least == 0) rule = fmt::format(" of at least {}", least);
    if (error == std::errc::result_out_of_range) rule += " within 64 bits";
  }
  return fmt::format("'{}' is not a whole number{}", text, rule);
}

CLI::Validator number_check(const std::string& rule, const std::function<bool(double)>& holds) {
  return CLI::Validator(
      [rule, holds](std::string& text) -> std::string {
        double value = 0.0;
        const char* const stop = text.data() + text.size();
        const auto [end, error] = std::from_chars(text.data(), stop, value);
        if (error == std::errc{} && end == stop && std::isfinite(value) && holds(value)) return {};
        const bool is_beyond = error == std::errc::result_out_of_range;
        return fmt::format("'{}' is not {}{}", text, rule, is_beyond ? " within f64's range" : "");
      },
      "");
}

}  // namespace

CLI::Validator whole_number(std::int64_t least, std::int64_t most) {
  return CLI::Validator([=](std::string& text) { return make_whole(text, least, most); }, "");
}

CLI::Validator seed_number() {
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
  return CLI::Validator([](std::string& text) { return make_whole<std::uint64_t>(text, 0, kMost); },
                        "");
}

CLI::Validator finite_number() {
  return number_check("a finite decimal number", [](double) { return true; });
}

CLI::Validator more_than_zero() {
  return number_check("a finite number greater than 0", [](double value) { return value > 0.0; });
}

CLI::Validator zero_or_more() {
  return number_check("a finite number of at least 0", [](double value) { return value >= 0.0; });
}

CLI::Validator number_between(double least, double most) {
  return number_check(fmt::format("a number from {} to {}", least, most),
                      [=](double value) { return value >= least && value <= most; });
}

}  // namespace flce::cli
