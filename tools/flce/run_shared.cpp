// SPDX-License-Identifier: Apache-2.0
#include "run_shared.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "common.hpp"
#include "io/atomic_file.hpp"

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

namespace {

// Whether two names lead to one file, which need not exist yet.
bool is_same_file(const std::string& a, const std::string& b) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (fs::equivalent(a, b, error)) return true;
  const fs::path whole = fs::weakly_canonical(fs::absolute(a, error), error);
  return !error && whole == fs::weakly_canonical(fs::absolute(b, error), error);
}

}  // namespace

void require_apart(const std::string& option, const std::string& path, const std::string& input) {
  if (!is_same_file(path, input)) return;
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
  const std::string file = is_folder ? path : io::replaced_file(path, option + ' ' + path);
  const fs::path whole = fs::absolute(file).lexically_normal();
  const fs::path name = whole.has_filename() ? whole : whole.parent_path();
  const fs::path place = is_folder && fs::is_directory(name, error) ? name : name.parent_path();
  if (::access(place.c_str(), W_OK | X_OK) != 0) {
    refuse(fmt::format("cannot write to {}: {}", place.string(), std::strerror(errno)));
  }
}

void require_outputs(const std::vector<OutputFile>& outputs) {
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const OutputFile& file = outputs[i];
    require_writable(file.option, file.path);
    for (std::size_t j = 0; j < i && !file.path.empty(); ++j) {
      const OutputFile& other = outputs[j];
      if (other.path.empty() || !is_same_file(file.path, other.path)) continue;
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("{} {} and {} {} are one file; give each its own name", other.option,
                              other.path, file.option, file.path));
    }
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
