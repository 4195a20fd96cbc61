// SPDX-License-Identifier: Apache-2.0
#include "run_shared.hpp"

#include "common.hpp"

namespace flce::cli {

void add_device_options(CLI::App& app, DeviceChoice& choice) {
  add_device_option(app, choice.device);
  app.add_option("--threads", choice.threads, "Worker threads (default: all that the process has)")
      ->check(CLI::Range(1, 1024));
}

DeviceCaps caps_of_choice(const DeviceChoice& choice) {
  DeviceCaps caps = device_to_run_on(choice.device);
  if (choice.threads > 0) caps.num_threads = choice.threads;
  return caps;
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
