// SPDX-License-Identifier: Apache-2.0
#include "cpu/quota.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <string_view>
#include <system_error>

#include "core/int_math.hpp"

namespace flce::cpu {
namespace {

constexpr std::int64_t kMaxThreads = 1024;

// Whole CPUs of `quota` microseconds in each `period`; 0 if the numbers are no quota.
int cpus_of(std::int64_t quota, std::int64_t period) {
  if (quota <= 0 || period <= 0) return 0;
  return static_cast<int>(std::min(ceil_div(quota, period), kMaxThreads));
}

// What a file holds; "" if it is not there. A stream would take a lack of memory for the file's
// end, and the process would keep a wrong number of threads; here it throws.
std::string text_of(const std::string& path) {
  struct File {
    int number;
    ~File() {
      if (number >= 0) ::close(number);
    }
  } const file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  std::string text;
  char piece[4096];
  while (file.number >= 0) {
    const ssize_t count = ::read(file.number, piece, sizeof piece);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    text.append(piece, static_cast<std::size_t>(count));
  }
  return text;
}

// The number that `text` begins with, which is taken off; 0 if there is none.
std::int64_t take_number(std::string_view& text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return error == std::errc{} ? value : 0;
}

// cpu.max holds "150000 100000", or "max 100000" where there is no limit.
int quota_v2(const std::string& folder) {
  const std::string text = text_of(folder + "/cpu.max");
  std::string_view rest = text;
  const std::int64_t quota = take_number(rest);
  return cpus_of(quota, take_number(rest));
}

std::int64_t number_in(const std::string& path) {
  const std::string text = text_of(path);
  std::string_view rest = text;
  return take_number(rest);
}

int quota_v1(const std::string& folder) {
  return cpus_of(number_in(folder + "/cpu.cfs_quota_us"), number_in(folder + "/cpu.cfs_period_us"));
}

// Whether the comma-separated `controllers` of a line of /proc/self/cgroup name the CPU's.
bool has_cpu(std::string_view controllers) {
  while (!controllers.empty()) {
    const std::size_t comma = std::min(controllers.find(','), controllers.size());
    if (controllers.substr(0, comma) == "cpu") return true;
    controllers.remove_prefix(std::min(comma + 1, controllers.size()));
  }
  return false;
}

// The process's group in the hierarchy of version 2 (a line "0::/path") or in that of version 1's
// cpu controller ("4:cpu,cpuacct:/path"); "" if there is none. Within a container this may be a
// path of the host that is not mounted; the folders above it then count.
std::string group_of_process(const std::string& root, bool is_v2) {
  const std::string text = text_of(root + "/proc/self/cgroup");
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    const std::size_t first = line.find(':');
    const std::size_t second = first == line.npos ? first : line.find(':', first + 1);
    if (second == line.npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    if (is_v2 ? controllers.empty() : has_cpu(controllers)) {
      return std::string(line.substr(second + 1));
    }
  }
  return "";
}

// The smallest quota of `group` and of all groups above it, the hierarchy's root among them.
int smallest_quota(const std::string& hierarchy, std::string group,
                   int (*quota_of)(const std::string&)) {
  int smallest = 0;
  for (;;) {
    const int quota = quota_of(hierarchy + group);
    if (quota > 0) smallest = smallest > 0 ? std::min(smallest, quota) : quota;
    if (group.empty()) return smallest;
    const std::size_t slash = group.rfind('/');
    group.resize(slash == group.npos ? 0 : slash);
  }
}

}  // namespace

int quota_threads(const std::string& root) {
  const std::string base = root + "/sys/fs/cgroup";
  const int quota = smallest_quota(base, group_of_process(root, true), quota_v2);
  if (quota > 0) return quota;
  return smallest_quota(base + "/cpu", group_of_process(root, false), quota_v1);
}

}  // namespace flce::cpu
