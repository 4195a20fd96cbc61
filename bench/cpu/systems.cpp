// SPDX-License-Identifier: Apache-2.0
// Ours through the public interface, and the rivals' modules, which lie beside the program.
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <utility>

#include "flce/flce.hpp"
#include "system.hpp"

namespace flce::bench {
namespace {

class Ours final : public System {
 public:
  Ours(const std::string& method, const Case& shape, Data& data)
      : plan_(make_plan(method, shape, data)), workspace_(plan_.workspace_bytes) {
    bind(shape, data, in_, out_);
  }

  void prepare(int) override {}
  void run() override { flce::run(plan_, in_, out_, workspace_.span()); }

  SystemFacts facts() const override {
    SystemFacts facts;
    facts.method = name_of(plan_.method);
    facts.system = "flce-" + facts.method;
    facts.kernel = cpu_isa();
    facts.version = std::string("flce ") + version();
    facts.chunk = plan_.chunk;
    facts.extra_bytes = plan_.extra_bytes;
    return facts;
  }

 private:
  static void bind(const Case& shape, Data& data, Inputs& in, Outputs& out) {
    const std::int64_t n = shape.tokens;
    const std::int64_t h = shape.hidden;
    const std::int64_t v = shape.vocab;
    in.hidden = {data.hidden.data(), n, h, h, 1, shape.dtype};
    in.weight = {data.weight.data(), v, h, h, 1, shape.dtype};
    in.target = {data.target.data(), n, 1, Dtype::kI64};
    out.loss = {&data.loss, 1, 1, Dtype::kF32};
    out.grad_hidden = {data.grad_hidden.data(), n, h, h, 1, shape.dtype};
    out.grad_weight = {data.grad_weight.data(), v, h, h, 1, shape.dtype};
  }

  static Plan make_plan(const std::string& method, const Case& shape, Data& data) {
    Inputs in;
    Outputs out;
    bind(shape, data, in, out);
    DeviceCaps caps = cpu_caps();
    caps.num_threads = shape.threads;
    PlanRequest request;
    request.method = method_of(method);
    return plan(problem_of(in, out, Options{}), caps, request);
  }

  Plan plan_;
  Workspace workspace_;
  Inputs in_;
  Outputs out_;
};

std::filesystem::path module_path(const std::string& name) {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() /
         ("flce_rival_" + name + ".so");
}

// The kernel that OpenBLAS would choose, seen by a child: the choice is made once, at loading.
std::string openblas_core() {
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) return "";
  const pid_t child = ::fork();
  if (child == 0) {
    void* const module = ::dlopen(module_path("openblas").c_str(), RTLD_NOW | RTLD_LOCAL);
    void* const entry = module != nullptr ? ::dlsym(module, "openblas_get_corename") : nullptr;
    const std::string core = entry != nullptr ? reinterpret_cast<char* (*)()>(entry)() : "";
    ::_exit(::write(ends[1], core.data(), core.size()) < 0 ? 1 : 0);
  }
  ::close(ends[1]);
  std::array<char, 64> text{};
  const ssize_t size = child > 0 ? ::read(ends[0], text.data(), text.size()) : 0;
  ::close(ends[0]);
  if (child > 0) ::waitpid(child, nullptr, 0);
  return {text.data(), static_cast<std::size_t>(size > 0 ? size : 0)};
}

// An OpenBLAS older than the processor may fall back to SSE3. A rival is to be at its best, so it
// is told the kernels that the processor can run; the name in the table says which ran.
void help_openblas() {
#if defined(__x86_64__)
  static const std::string core = openblas_core();
  if (core != "Prescott" && core != "Core2" && core != "Nehalem") return;
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl")) {
    ::setenv("OPENBLAS_CORETYPE", "SkylakeX", 1);
  } else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    ::setenv("OPENBLAS_CORETYPE", "Haswell", 1);
  }
#endif
}

// The module stays loaded to the end: a library's threads may outlive its last call.
RivalEntry load_rival(const std::string& name, std::string& refusal) {
  const std::string path = module_path(name).string();
  if (!std::filesystem::exists(path)) {
    refusal = "not built here (its library was not found), " + path + " is missing";
    return nullptr;
  }
  if (name == "openblas") help_openblas();
  void* const module = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (module == nullptr) {
    refusal = ::dlerror();
    return nullptr;
  }
  void* const entry = ::dlsym(module, kRivalEntry);
  if (entry == nullptr) refusal = path + " has no " + kRivalEntry;
  return reinterpret_cast<RivalEntry>(entry);
}

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  return text;
}

}  // namespace

std::unique_ptr<System> make_ours(const std::string& method, const Case& shape, Data& data) {
  return std::make_unique<Ours>(method, shape, data);
}

std::unique_ptr<System> make_system(const std::string& name, const Case& shape, Data& data,
                                    Workers& workers, const std::string& onednn_isa,
                                    std::string& refusal) {
  if (name != "openblas" && name != "onednn") return make_ours(name, shape, data);
  const RivalEntry entry = load_rival(name, refusal);
  if (entry == nullptr) return nullptr;
  const bool limited = name == "onednn" && !onednn_isa.empty();
  const std::string suffix = limited ? "-" + lower(onednn_isa) : "";
  return std::unique_ptr<System>(entry(shape, data, workers, suffix.c_str(), refusal));
}

}  // namespace flce::bench
