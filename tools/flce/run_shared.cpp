// SPDX-License-Identifier: Apache-2.0
#include "run_shared.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "common.hpp"

namespace flce::cli {

void add_device_options(CLI::App& app, DeviceChoice& choice) {
  add_device_option(app, choice.device);
  app.add_option("--threads", choice.threads,
                 "Worker threads of the CPU (default: all that the process has)")
      ->transform(whole_number(1, 1024));
}

DeviceCaps caps_of_choice(const DeviceChoice& choice) {
  if (choice.threads == 0) return device_to_run_on(choice.device);
  const Device device = parse_device(choice.device);
  if (device.kind != DeviceKind::kCpu) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("--threads {} with --device {}: threads are the CPU's; leave out one",
                            choice.threads, choice.device));
  }
  DeviceCaps caps = cpu_caps();
  caps.num_threads = choice.threads;
  return caps;
}

std::string device_text(const DeviceCaps& caps) {
  if (caps.kind == DeviceKind::kCuda) return caps.name.data();
  return fmt::format("{} thread{}", caps.num_threads, caps.num_threads == 1 ? "" : "s");
}

int threads_of_choice(const DeviceChoice& choice) {
  return choice.threads > 0 ? choice.threads : cpu_caps().num_threads;
}

void require_apart(const std::string& option, const std::string& path, const std::string& input) {
  std::error_code error;
  if (!std::filesystem::equivalent(input, path, error)) return;
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("{} {} would replace the input; give another name", option, path));
}

void require_writable(const std::string& option, const std::string& path, bool is_folder) {
  namespace fs = std::filesystem;
  if (path.empty()) return;
  const auto refuse = [&](const std::string& what) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("{} {}: {}", option, path, what));
  };
  std::error_code error;
  if (!is_folder && fs::is_directory(path, error)) refuse("is a folder; give a file name");
  if (is_folder && fs::exists(path, error) && !fs::is_directory(path, error)) {
    refuse("is a file; give the name of a folder");
  }
  const fs::path whole = fs::absolute(path).lexically_normal();
  const fs::path name = whole.has_filename() ? whole : whole.parent_path();
  const fs::path place = is_folder && fs::is_directory(name, error) ? name : name.parent_path();
  if (::access(place.c_str(), W_OK | X_OK) != 0) {
    refuse(fmt::format("cannot write to {}: {}", place.string(), std::strerror(errno)));
  }
}

std::string joined(const std::vector<std::string>& words, std::string_view between) {
  std::string text;
  for (const std::string& word : words) {
    if (!text.empty()) text += between;
    text += word;
  }
  return text;
}

}  // namespace flce::cli
