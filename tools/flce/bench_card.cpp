// SPDX-License-Identifier: Apache-2.0
#include "bench_card.hpp"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <new>
#include <sstream>

#include "bench_measure.hpp"

extern char** environ;

namespace flce::cli {
namespace {

double number_at(const char*& text) {
  char* end = nullptr;
  const double value = std::strtod(text, &end);
  const bool is_number = end != text && value >= 0.0;
  while (*text != '\0' && *text != ',') ++text;
  if (*text == ',') ++text;
  return is_number ? value : -1.0;
}

// The pid of a program whose stdout goes to `output`; -1 if it cannot be started.
pid_t start(std::array<const char*, 7> arguments, int output) {
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  pid_t child = -1;
  const int failure = ::posix_spawnp(&child, arguments[0], &actions, nullptr,
                                     const_cast<char**>(arguments.data()), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  return failure == 0 ? child : -1;
}

// CUDA numbers the cards that CUDA_VISIBLE_DEVICES lists, nvidia-smi all of them.
std::string smi_id(int card) {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  std::istringstream list(visible == nullptr ? "" : visible);
  std::string id;
  for (int i = 0; i <= card; ++i) {
    if (!std::getline(list, id, ',')) return std::to_string(card);
  }
  return id;
}

}  // namespace

CardSample card_sample_of(const std::string& line) {
  const char* text = line.c_str();
  CardSample sample;
  sample.watts = number_at(text);
  sample.sm_mhz = number_at(text);
  return sample;
}

CardMonitor::CardMonitor(int card) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return;
  const std::string id = smi_id(card);
  child_ = start({"nvidia-smi", "--query-gpu=power.draw,clocks.sm", "--format=csv,noheader,nounits",
                  "-i", id.c_str(), "--loop-ms=250", nullptr},
                 ends[1]);
  ::close(ends[1]);
  if (child_ < 0) {
    ::close(ends[0]);
    return;
  }
  output_ = ends[0];
  try {
    reader_ = std::thread([this] {
      try {
        read_lines();
      } catch (const std::bad_alloc&) {  // then there are fewer samples
      }
    });
  } catch (...) {  // no thread: no samples
    finish();
  }
}

CardMonitor::~CardMonitor() { finish(); }

void CardMonitor::read_lines() {
  std::string line;
  char letter = 0;
  while (true) {
    const ssize_t count = ::read(output_, &letter, 1);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;
    if (letter != '\n') {
      line += letter;
      continue;
    }
    const CardSample sample = card_sample_of(line);
    line.clear();
    if (!is_counting_) continue;
    if (sample.watts >= 0.0) watts_.push_back(sample.watts);
    if (sample.sm_mhz >= 0.0) sm_mhz_.push_back(sample.sm_mhz);
  }
}

CardSample CardMonitor::finish() {
  if (child_ > 0) {
    ::kill(child_, SIGTERM);  // the end of its output ends the reader
    while (::waitpid(child_, nullptr, 0) < 0 && errno == EINTR) {
    }
    child_ = -1;
    if (reader_.joinable()) reader_.join();
    ::close(output_);
  }
  return {median_of(watts_), median_of(sm_mhz_)};
}

}  // namespace flce::cli
