// SPDX-License-Identifier: Apache-2.0
#include "cuda/run/cublaslt.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>

#include "core/check.hpp"

namespace flce::cuda {
namespace {

// 12.0 knows clusters, which the choices of candidates are made by.
constexpr std::size_t kOldest = 120000;
constexpr std::array kNames{"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"};
constexpr std::array kFolders{"", "/usr/local/cuda/lib64/", "/usr/lib/x86_64-linux-gnu/",
                              "/opt/cuda/lib64/"};

// The one that is loaded already comes first, so that a process never holds two.
void* open_library() {
  for (const char* name : kNames) {
    if (void* handle = ::dlopen(name, RTLD_NOW | RTLD_NOLOAD)) return handle;
  }
  for (const char* folder : kFolders) {
    for (const char* name : kNames) {
      const std::string path = std::string(folder) + name;
      if (void* handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return handle;
    }
  }
  return nullptr;
}

class Finder {
 public:
  Finder(void* handle, std::string& missing) : handle_(handle), missing_(missing) {}

  template <typename Function>
  void operator()(const char* name, Function& function) {
    function = reinterpret_cast<Function>(::dlsym(handle_, name));
    if (function == nullptr && missing_.empty()) missing_ = name;
  }

 private:
  void* handle_;
  std::string& missing_;
};

CublasLt load() {
  CublasLt lt;
  void* const handle = open_library();
  if (handle == nullptr) {
    lt.refusal =
        "cuBLASLt was not found (libcublasLt.so.13 or .12); install CUDA's libcublas and put its "
        "folder on LD_LIBRARY_PATH, or import a framework that brings it first; device cpu works";
    return lt;
  }
  std::string missing;
  Finder find(handle, missing);
  decltype(&cublasLtGetVersion) get_version = nullptr;
  find("cublasLtGetVersion", get_version);
  find("cublasLtCreate", lt.create);
  find("cublasLtMatmul", lt.matmul);
  find("cublasLtMatmulAlgoGetHeuristic", lt.get_heuristic);
  find("cublasLtMatmulDescCreate", lt.create_desc);
  find("cublasLtMatmulDescDestroy", lt.destroy_desc);
  find("cublasLtMatmulDescSetAttribute", lt.set_desc);
  find("cublasLtMatrixLayoutCreate", lt.create_layout);
  find("cublasLtMatrixLayoutDestroy", lt.destroy_layout);
  find("cublasLtMatmulPreferenceCreate", lt.create_preference);
  find("cublasLtMatmulPreferenceDestroy", lt.destroy_preference);
  find("cublasLtMatmulPreferenceSetAttribute", lt.set_preference);
  find("cublasLtMatmulAlgoConfigGetAttribute", lt.get_algo);
  if (get_version != nullptr) lt.version = get_version();
  Dl_info info{};
  if (lt.matmul != nullptr && ::dladdr(reinterpret_cast<const void*>(lt.matmul), &info) != 0) {
    lt.path = info.dli_fname;
  }
  if (!missing.empty()) {
    lt.refusal = fmt::format("{} lacks {}; cuBLASLt 12.0 or newer is needed", lt.path, missing);
  } else if (lt.version < kOldest) {
    lt.refusal = fmt::format("{} is cuBLASLt {}; 12.0 ({}) or newer is needed", lt.path, lt.version,
                             kOldest);
  }
  return lt;
}

}  // namespace

const CublasLt& cublaslt() {
  static const CublasLt instance = load();
  return instance;
}

void check_cublas(cublasStatus_t status, const char* what) {
  require(status == CUBLAS_STATUS_SUCCESS, ErrorCode::kDevice, "cuBLASLt: {} failed with status {}",
          what, static_cast<int>(status));
}

}  // namespace flce::cuda
