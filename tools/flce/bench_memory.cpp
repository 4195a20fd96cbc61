// SPDX-License-Identifier: Apache-2.0
#include "bench_memory.hpp"

#include <fmt/core.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <new>
#include <string>

#include "flce/error.hpp"

namespace flce::cli {
namespace {

using Json = nlohmann::json;

// A line of /proc/self/status in bytes ("VmRSS:   1234 kB"); 0 if there is none.
std::uint64_t status_bytes(const std::string& key) {
  std::ifstream file("/proc/self/status");
  std::string word;
  while (file >> word) {
    std::uint64_t kib = 0;
    if (word == key && file >> kib) return kib * 1024;
    file.ignore(4096, '\n');
  }
  return 0;
}

[[noreturn]] void fail_system(const char* what) {
  throw Error(ErrorCode::kDevice, fmt::format("{}: {}", what, std::strerror(errno)));
}

Json answer_of(const std::function<Json()>& work) {
  const auto failure = [](ErrorCode code, const char* text) {
    return Json{{"code", static_cast<int>(code)}, {"text", text}};
  };
  try {
    return {{"value", work()}};
  } catch (const Error& error) {
    return failure(error.code(), error.what());
  } catch (const std::bad_alloc&) {
    return failure(ErrorCode::kOutOfMemory, "out of memory; give a smaller problem");
  } catch (const std::exception& error) {
    return failure(ErrorCode::kInternal, error.what());
  }
}

void write_all(int fd, const std::string& text) {
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t count = ::write(fd, text.data() + done, text.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;
    done += static_cast<std::size_t>(count);
  }
}

std::string read_all(int fd) {
  std::string text;
  char buffer[4096];
  for (;;) {
    const ssize_t count = ::read(fd, buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return text;
    text.append(buffer, static_cast<std::size_t>(count));
  }
}

// The child's part. Nothing may leave it: the parent's objects are not the child's to destroy.
// Where there is no memory for an answer, none is given.
[[noreturn]] void end_with_answer(int fd, const std::function<Json()>& work) noexcept {
  try {
    write_all(fd, answer_of(work).dump());
  } catch (const std::exception&) {
    ::_exit(1);
  }
  std::fflush(nullptr);
  ::_exit(0);
}

int wait_for(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) fail_system("waiting for the measuring process failed");
  }
  return status;
}

}  // namespace

void ResidentGrowth::start() {
  std::ofstream("/proc/self/clear_refs") << "5\n";  // the peak starts anew
  start_bytes_ = status_bytes("VmRSS:");
}

std::uint64_t ResidentGrowth::bytes() const {
  const std::uint64_t peak = status_bytes("VmHWM:");
  return peak > start_bytes_ ? peak - start_bytes_ : 0;
}

Json run_in_child(const std::function<Json()>& work) {
  int ends[2];
  if (::pipe(ends) != 0) fail_system("no pipe to a measuring process");
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child < 0) fail_system("no measuring process");
  if (child == 0) {
    ::close(ends[0]);
    end_with_answer(ends[1], work);
  }
  ::close(ends[1]);
  const std::string text = read_all(ends[0]);
  ::close(ends[0]);
  const int status = wait_for(child);
  if (WIFSIGNALED(status)) {
    throw Error(ErrorCode::kDevice,
                fmt::format("the measuring process was ended by signal {} ({}); a smaller problem "
                            "needs less memory",
                            WTERMSIG(status), strsignal(WTERMSIG(status))));
  }
  const Json answer = Json::parse(text, nullptr, false);
  if (answer.is_discarded()) {
    throw Error(ErrorCode::kInternal,
                "the measuring process gave no answer; it may "
                "have had no memory left for one");
  }
  if (answer.contains("value")) return answer["value"];
  throw Error(static_cast<ErrorCode>(answer["code"].get<int>()), answer["text"].get<std::string>());
}

}  // namespace flce::cli
