// SPDX-License-Identifier: Apache-2.0
// How many CPUs the process's cgroup pays for. Files are read; nothing else of the system is asked.
#pragma once

#include <string>

namespace flce::cpu {

// The smallest quota of the process's cgroup and those above it (version 2, else version 1), in
// CPUs, rounded up; 0 if there is none. /proc/self/cgroup and /sys/fs/cgroup are looked for under
// `root`; what is missing or makes no sense is no quota.
int quota_threads(const std::string& root);

}  // namespace flce::cpu
