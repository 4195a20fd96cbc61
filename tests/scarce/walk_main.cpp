// SPDX-License-Identifier: Apache-2.0
// A walk over a whole program: preloaded with SCARCE_WALK set, main runs again and again, each time
// in a forked child in which one more request fails, until a child passes untouched. Each child
// must end as the program promises: exit code 2 and one line on stderr, or exit code 0; what it
// writes is there as it was before or whole, and nothing else is left. What is found goes to
// SCARCE_REPORT: the numbers of runs, of those that failed and of requests, then a line for each
// fault.
//
//   SCARCE_WALK    "once" or "from" (SCARCE_ONCE, SCARCE_FROM)
//   SCARCE_EVERY   only every n-th request is refused (default: every one)
//   SCARCE_SETUP   the same for the first requests, as many as `program --version` makes
//   SCARCE_OUTPUT  the file that the program writes; it holds kBefore before each run
//   SCARCE_VARIES  "1": a CSV file whose numbers differ from run to run
//   SCARCE_AT      no walk: main runs once, with this request refused (for a debugger)
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "scarce/scarce.h"

namespace {

using Main = int (*)(int, char**, char**);

constexpr const char* kBefore = "what stood here before\n";
constexpr long kSetup = -1;  // stands for the number of a request in the run that only counts
constexpr unsigned kSecondsOfAChild = 60;

Main program_main;

// What a child tells its parent when main returns.
struct Shared {
  long refused;  // -1: it has not returned
  long requests;
};
Shared* shared;

std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::string variable(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : otherwise;
}

// The child: main with stderr in a file and stdout nowhere. Ends as the program would.
int armed_main(int argc, char** argv, char** environment, const std::string& err, long at,
               int mode) {
  ::alarm(kSecondsOfAChild);
  const int file = ::open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  const int nowhere = ::open("/dev/null", O_WRONLY);
  ::dup2(file, STDERR_FILENO);
  ::dup2(nowhere, STDOUT_FILENO);
  ::unsetenv("SCARCE_WALK");  // programs that it starts do not walk
  ::unsetenv("LD_PRELOAD");
  const pid_t self = ::getpid();
  scarce_arm(at, mode, mode == SCARCE_KILL ? SCARCE_FILES : SCARCE_ALL);
  const int status = program_main(argc, argv, environment);
  const long requests = scarce_requests();
  const long refused = scarce_disarm();
  if (self == ::getpid()) *shared = {refused, requests};
  return status;
}

// Everything in the folder of the output file.
std::size_t num_files_beside(const std::string& output) {
  const auto folder = std::filesystem::path(output).parent_path();
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

long number(const char* name) { return std::max(1L, std::atol(variable(name, "1").c_str())); }

void remove_temporary_files(const std::string& output) {
  const auto folder = std::filesystem::path(output).parent_path();
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".tmp") std::filesystem::remove(entry.path());
  }
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }
auto num_lines(const std::string& text) { return std::count(text.begin(), text.end(), '\n'); }

int mode_of(const std::string& walk) {
  return walk == "kill" ? SCARCE_KILL : walk == "from" ? SCARCE_FROM : SCARCE_ONCE;
}

// The walk's settings and what its first, untouched run has made.
struct Walk {
  int mode = mode_of(variable("SCARCE_WALK", ""));
  long every = number("SCARCE_EVERY");
  long every_of_setup = number("SCARCE_SETUP");
  bool varies = variable("SCARCE_VARIES", "0") == "1";
  std::string output = variable("SCARCE_OUTPUT", "");
  std::string report = variable("SCARCE_REPORT", "");
  std::string err = report + ".err";
  std::string right;
  std::size_t num_files = 0;

  bool is_whole(const std::string& text) const {
    if (!varies) return text == right;
    return first_line(text) == first_line(right) && num_lines(text) == num_lines(right) &&
           text.back() == '\n';
  }

  // What is wrong with the way a child ended; "" if nothing is.
  std::string fault_of(int status) const {
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && mode == SCARCE_KILL) {
      const std::string text = text_of(output);
      return text == kBefore || is_whole(text) ? "" : "killed, and a part of the output file";
    }
    if (!WIFEXITED(status)) return "ended by signal " + std::to_string(WTERMSIG(status));
    const int code = WEXITSTATUS(status);
    if (code != 0 && code != 2) return "exit code " + std::to_string(code);
    const std::string text = text_of(output);
    if (code == 0 && !is_whole(text)) return "exit code 0 with another output file";
    if (code == 2 && text != kBefore && !is_whole(text)) return "a part of the output file";
    if (num_files_beside(output) != num_files) return "a file is left behind";
    const std::string said = text_of(err);
    if (code == 0) return said.empty() ? "" : "exit code 0 and an error";
    const bool is_line = said.rfind("flce: error: ", 0) == 0 && said.back() == '\n';
    return is_line && num_lines(said) == 1 ? "" : "not one line on stderr";
  }
};

int run_walk(int argc, char** argv, char** environment) {
  Walk walk;
  if (const char* at = std::getenv("SCARCE_AT")) {
    scarce_arm(std::atol(at), walk.mode, SCARCE_ALL);
    const int status = program_main(argc, argv, environment);
    scarce_disarm();
    return status;
  }
  shared = static_cast<Shared*>(
      ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  std::string faults;
  long runs = 0;
  long failed = 0;
  long setup = 0;
  std::size_t most_left = 0;
  for (long at = kSetup;; at += at < 1 ? 1 : at < setup ? walk.every_of_setup : walk.every) {
    std::ofstream(walk.output, std::ios::binary) << kBefore;
    *shared = {-1, 0};
    const pid_t child = ::fork();
    if (child == 0) {
      static char version[] = "--version";
      char* only_version[] = {argv[0], version, nullptr};
      return at == kSetup ? armed_main(2, only_version, environment, walk.err, 0, walk.mode)
                          : armed_main(argc, argv, environment, walk.err, at, walk.mode);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    if (at == kSetup) {
      setup = shared->requests;
      continue;
    }
    if (at == 0) {
      walk.right = text_of(walk.output);
      walk.num_files = num_files_beside(walk.output);
    }
    std::string fault = walk.fault_of(status);
    if (at == 0 && status != 0) fault += " (the untouched run has failed)";
    most_left = std::max(most_left, num_files_beside(walk.output) - walk.num_files);
    remove_temporary_files(walk.output);
    if (!fault.empty()) {
      faults += "request " + std::to_string(at) + ": " + fault + ": " + text_of(walk.err) + "\n";
    }
    if (at == 0 ? !fault.empty() : status == 0 && shared->refused == 0) break;
    ++runs;
    failed += status != 0;
  }
  if (most_left > 1) faults += "more than one file left behind\n";
  std::ofstream(walk.report) << runs << ' ' << failed << ' ' << shared->requests << '\n' << faults;
  return 0;
}

}  // namespace

// glibc calls main from here; the program's own static objects are made before.
extern "C" __attribute__((visibility("default"))) int __libc_start_main(Main main, int argc,
                                                                        char** argv, void (*init)(),
                                                                        void (*fini)(),
                                                                        void (*rtld_fini)(),
                                                                        void* stack_end) {
  const auto real =
      reinterpret_cast<decltype(&__libc_start_main)>(::dlsym(RTLD_NEXT, "__libc_start_main"));
  program_main = main;
  const bool walks = std::getenv("SCARCE_WALK") != nullptr;
  return real(walks ? run_walk : main, argc, argv, init, fini, rtld_fini, stack_end);
}
