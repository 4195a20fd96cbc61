// SPDX-License-Identifier: Apache-2.0
// The functions that libscarce.so puts before libc's own. They must not allocate.
#include "scarce/scarce.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>

// glibc's own functions behind the names that are taken here.
extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);
void __libc_free(void*);
}

namespace {

std::atomic<int> kinds_counted{0};
std::atomic<int> mode_now{SCARCE_ONCE};
std::atomic<long> refused_at{0};
std::atomic<long> requests{0};
std::atomic<long> refused{0};
std::atomic<long> live_blocks{0};

bool is_refused(int kind) {
  if ((kinds_counted.load(std::memory_order_relaxed) & kind) == 0) return false;
  const long number = requests.fetch_add(1) + 1;
  const long at = refused_at.load();
  const bool hit = at > 0 && (mode_now.load() == SCARCE_FROM ? number >= at : number == at);
  if (hit && mode_now.load() == SCARCE_KILL) ::kill(::getpid(), SIGKILL);
  if (hit) refused.fetch_add(1);
  return hit;
}

// libc's own function of a name that is taken here.
template <typename Function>
Function* behind(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

void* counted(void* block) {
  if (block != nullptr) live_blocks.fetch_add(1, std::memory_order_relaxed);
  return block;
}

void* none() {
  errno = ENOMEM;
  return nullptr;
}

}  // namespace

extern "C" {

#define SCARCE_EXPORT __attribute__((visibility("default")))

SCARCE_EXPORT void scarce_arm(long at, int mode, int kinds) {
  requests = 0;
  refused = 0;
  mode_now = mode;
  refused_at = at;
  kinds_counted = kinds;
}

SCARCE_EXPORT long scarce_disarm(void) {
  kinds_counted = 0;
  return refused;
}

SCARCE_EXPORT long scarce_requests(void) { return requests; }
SCARCE_EXPORT long scarce_live_blocks(void) { return live_blocks; }

SCARCE_EXPORT int32_t scarce_call(void* function, const uint64_t* a, long at, int mode, int kinds,
                                  long* number) {
  using Function = int32_t (*)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);
  scarce_arm(at, mode, kinds);
  const int32_t status = reinterpret_cast<Function>(function)(a[0], a[1], a[2], a[3], a[4], a[5]);
  *number = scarce_disarm();
  return status;
}

SCARCE_EXPORT void* malloc(std::size_t size) {
  return is_refused(SCARCE_HEAP) ? none() : counted(__libc_malloc(size));
}

SCARCE_EXPORT void* calloc(std::size_t count, std::size_t size) {
  return is_refused(SCARCE_HEAP) ? none() : counted(__libc_calloc(count, size));
}

SCARCE_EXPORT void* realloc(void* block, std::size_t size) {
  if (size != 0 && is_refused(SCARCE_HEAP)) return none();
  if (block == nullptr) return counted(__libc_realloc(block, size));
  if (size == 0) live_blocks.fetch_sub(1, std::memory_order_relaxed);
  return __libc_realloc(block, size);
}

SCARCE_EXPORT void free(void* block) {
  if (block != nullptr) live_blocks.fetch_sub(1, std::memory_order_relaxed);
  __libc_free(block);
}

SCARCE_EXPORT void* memalign(std::size_t alignment, std::size_t size) {
  return is_refused(SCARCE_ALIGNED) ? none() : counted(__libc_memalign(alignment, size));
}

SCARCE_EXPORT void* aligned_alloc(std::size_t alignment, std::size_t size) {
  return memalign(alignment, size);
}

SCARCE_EXPORT int posix_memalign(void** block, std::size_t alignment, std::size_t size) {
  void* const made = memalign(alignment, size);
  if (made == nullptr) return ENOMEM;
  *block = made;
  return 0;
}

SCARCE_EXPORT void* mmap(void* address, std::size_t size, int protection, int flags, int file,
                         off_t offset) {
  if (is_refused(SCARCE_MAP)) {
    errno = ENOMEM;
    return MAP_FAILED;
  }
  return reinterpret_cast<void*>(
      ::syscall(SYS_mmap, address, size, protection, flags, file, offset));
}

SCARCE_EXPORT int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                                 void* (*routine)(void*), void* argument) {
  if (is_refused(SCARCE_THREAD)) return EAGAIN;
  static const auto real = behind<decltype(pthread_create)>("pthread_create");
  return real(thread, attributes, routine, argument);
}

SCARCE_EXPORT ssize_t write(int file, const void* bytes, std::size_t size) {
  is_refused(SCARCE_FILES);
  return ::syscall(SYS_write, file, bytes, size);
}

SCARCE_EXPORT int fsync(int file) {
  is_refused(SCARCE_FILES);
  return static_cast<int>(::syscall(SYS_fsync, file));
}

SCARCE_EXPORT int linkat(int from_folder, const char* from, int to_folder, const char* to,
                         int flags) {
  is_refused(SCARCE_FILES);
  return static_cast<int>(::syscall(SYS_linkat, from_folder, from, to_folder, to, flags));
}

SCARCE_EXPORT int rename(const char* from, const char* to) {
  is_refused(SCARCE_FILES);
  return static_cast<int>(::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}

}  // extern "C"
