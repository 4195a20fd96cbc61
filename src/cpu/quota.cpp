// SPDX-License-Identifier: Apache-2.0
#include "cpu/quota.hpp"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <string_view>

#include "core/int_math.hpp"

namespace flce::cpu {
namespace {

constexpr std::int64_t kMaxThreads = 1024;

// Whole CPUs of `quota` microseconds in each `period`; 0 if the numbers are no quota.
int cpus_of(std::int64_t quota, std::int64_t period) {
  if (quota <= 0 || period <= 0) return 0;
  return static_cast<int>(std::min(ceil_div(quota, period), kMaxThreads));
}

// A number alone in a file; 0 if it is not there.
std::int64_t number_in(const std::string& path) {
  std::ifstream file(path);
  std::int64_t value = 0;
  return file >> value ? value : 0;
}

// cpu.max holds "150000 100000", or "max 100000" where there is no limit.
int quota_v2(const std::string& folder) {
  std::ifstream file(folder + "/cpu.max");
  std::int64_t quota = 0;
  std::int64_t period = 0;
  return file >> quota >> period ? cpus_of(quota, period) : 0;
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
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == line.npos ? first : line.find(':', first + 1);
    if (second == line.npos) continue;
    const std::string_view controllers(line.data() + first + 1, second - first - 1);
    if (is_v2 ? controllers.empty() : has_cpu(controllers)) return line.substr(second + 1);
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
