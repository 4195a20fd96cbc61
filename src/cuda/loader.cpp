// SPDX-License-Identifier: Apache-2.0
// Finds and loads libflce_cuda.so, once. It lies beside libflce.so, in the lib folder beside a
// program's bin, or where the dynamic linker looks.
#include <dlfcn.h>

#include <string>

#include "cuda/library.hpp"
#include "flce/flce.hpp"

namespace flce {
namespace {

constexpr const char* kFile = "libflce_cuda.so";

// The folder of the file that this code was loaded from, with the slash; empty if it is unknown.
std::string own_folder() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&own_folder), &info) == 0 || !info.dli_fname)
    return {};
  const std::string path = info.dli_fname;
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? "./" : path.substr(0, slash + 1);
}

struct Loaded {
  const CudaLibrary* found = nullptr;    // refuses or not
  const CudaLibrary* library = nullptr;  // null if it refuses
  std::string refusal;
};

Loaded load() {
  Loaded loaded;
  void* handle = nullptr;
  std::string missing;
  for (const std::string& place : {own_folder(), own_folder() + "../lib/", std::string()}) {
    handle = ::dlopen((place + kFile).c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle != nullptr) break;
    const char* reason = ::dlerror();
    missing = reason != nullptr ? reason : "unknown reason";
  }
  if (handle == nullptr) {
    loaded.refusal = std::string("this build has no CUDA part, or it cannot be loaded (") +
                     missing + "); device cpu works";
    return loaded;
  }
  const auto entry =
      reinterpret_cast<decltype(&flce_cuda_library)>(::dlsym(handle, "flce_cuda_library"));
  const CudaLibrary* library = entry == nullptr ? nullptr : entry(version());
  loaded.found = library;
  if (library == nullptr) {
    loaded.refusal = std::string(kFile) + " is of another version than " + version() +
                     "; install both from one build";
  } else if (!library->refusal().empty()) {
    loaded.refusal = library->refusal();
  } else {
    loaded.library = library;
  }
  return loaded;  // the handle stays for the life of the process
}

const Loaded& loaded() {
  static const Loaded instance = load();
  return instance;
}

}  // namespace

const CudaLibrary* cuda_library() { return loaded().library; }
const CudaLibrary* cuda_library_found() { return loaded().found; }
const std::string& cuda_library_refusal() { return loaded().refusal; }

}  // namespace flce
