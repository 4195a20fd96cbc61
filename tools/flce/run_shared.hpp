// SPDX-License-Identifier: Apache-2.0
// What run, verify, bench and train have in common on the command line beyond common.hpp: which
// device with how many threads, and a problem's text given as several arguments.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "flce/flce.hpp"

namespace flce::cli {

struct DeviceChoice {
  std::string device = "auto";
  int threads = 0;  // of the CPU; 0: as many as the process may use
};
// Adds --device and --threads.
void add_device_options(CLI::App& app, DeviceChoice& choice);
// With a number of threads `auto` means the CPU. Throws Error for a device that is not there,
// naming one that is, and for --threads with a card.
DeviceCaps caps_of_choice(const DeviceChoice& choice);
// "2 threads" or "h200".
std::string device_text(const DeviceCaps& caps);
// How many threads a command's own work on the CPU has.
int threads_of_choice(const DeviceChoice& choice);

// Finds out before the work, not after it, that `path` cannot be written; writing may fail all the
// same. An empty path is fine. Throws Error{kInvalidArgument} naming the option.
void require_writable(const std::string& option, const std::string& path, bool is_folder = false);
// That writing `path` would not replace the file `input`, by whatever name. Throws likewise.
void require_apart(const std::string& option, const std::string& path, const std::string& input);

// An option that names a file to write, and the name; empty where it was not given.
struct OutputFile {
  std::string option;
  std::string path;
};
// That each can be written, and that no two are one file. Throws likewise.
void require_outputs(const std::vector<OutputFile>& outputs);

std::string joined(const std::vector<std::string>& words, std::string_view between);

}  // namespace flce::cli
