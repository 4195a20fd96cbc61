// SPDX-License-Identifier: Apache-2.0
// The C interface: plain structs in, a status out. Every function catches everything; the text of
// the last failure is kept per thread (last_error.hpp).
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <new>
#include <string_view>

#include "api/last_error.hpp"
#include "api/planning.hpp"
#include "api/registry.hpp"
#include "core/check.hpp"
#include "core/text.hpp"
#include "flce/device.hpp"
#include "flce/flce.h"
#include "flce/flce.hpp"

namespace flce {
namespace {

flce_status remember(ErrorCode code, const char* text) {
  keep_last_error(code, text);
  return static_cast<flce_status>(code);
}

// Runs `body` and turns whatever it throws into a status.
template <typename Body>
flce_status guarded(Body&& body) noexcept {
  try {
    body();
    return FLCE_OK;
  } catch (const Error& error) {
    return remember(error.code(), error.what());
  } catch (const std::bad_alloc&) {
    return remember(ErrorCode::kOutOfMemory, "out of memory");
  } catch (const std::exception& error) {
    return remember(ErrorCode::kInternal, error.what());
  } catch (...) {
    return remember(ErrorCode::kInternal, "an unknown exception");
  }
}

// The sizes of ABI 1.0: fields are only appended, so no caller has smaller structs.
constexpr std::uint64_t kArgsSize = 944;
constexpr std::uint64_t kRequestSize = 40;
constexpr std::uint64_t kPlanSize = 96;
constexpr std::uint64_t kPlanSizeOf11 = 104;  // with allow_tf32
constexpr std::uint64_t kPlanSizeOf14 = 112;  // with slab
constexpr std::uint64_t kLargestStruct = 1u << 16;

void require_size(const char* name, std::uint64_t given, std::uint64_t smallest) {
  if (given >= smallest && given <= kLargestStruct) return;
  const bool is_plan = std::string_view(name) == "flce_plan";  // which has no function that sets it
  fail(ErrorCode::kInvalidArgument,
       "{}.struct_size is {}; it is from {} to {} bytes: {} sizeof({})", name, given, smallest,
       kLargestStruct, is_plan ? "set it to" : fmt::format("call {}_init with", name), name);
}

// A caller's struct as this library knows it. Fields that an older header lacks are zero; what a
// newer one appended must be zero, or something would be silently ignored.
template <typename Struct>
Struct taken(const char* name, const Struct* given, std::uint64_t smallest) {
  require(given != nullptr, "{} is null", name);
  const std::uint64_t size = given->struct_size;
  require_size(name, size, smallest);
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  require(std::all_of(bytes + std::min<std::uint64_t>(size, sizeof(Struct)), bytes + size,
                      [](unsigned char b) { return b == 0; }),
          ErrorCode::kUnsupported,
          "{} sets fields that this library (ABI {}.{}) does not know; use a newer library", name,
          FLCE_ABI_MAJOR, FLCE_ABI_MINOR);
  Struct copy{};
  std::memcpy(&copy, given, std::min<std::uint64_t>(size, sizeof(Struct)));
  return copy;
}

MatrixView view(const flce_matrix& m) {
  return {m.data, m.rows, m.cols, m.row_stride, m.col_stride, static_cast<Dtype>(m.dtype)};
}
VectorView view(const flce_vector& v) {
  return {v.data, v.size, v.stride, static_cast<Dtype>(v.dtype)};
}

Inputs inputs_of(const flce_args& a) {
  return {view(a.hidden),       view(a.weight),       view(a.target),      view(a.bias),
          view(a.class_weight), view(a.token_weight), view(a.temperature), view(a.normalizer),
          view(a.grad_output),  view(a.grad_entropy)};
}

Outputs outputs_of(const flce_args& a) {
  return {view(a.loss),         view(a.lse),        view(a.logprob),     view(a.entropy),
          view(a.z_loss),       view(a.argmax),     view(a.num_correct), view(a.num_valid),
          view(a.topk_logprob), view(a.topk_index), view(a.grad_hidden), view(a.grad_weight),
          view(a.grad_bias)};
}

Options options_of(const flce_args& a) {
  Options o;
  o.reduction = static_cast<Reduction>(a.reduction);
  o.ignore_index = a.ignore_index;
  o.label_smoothing = a.label_smoothing;
  o.z_loss = a.z_loss_weight;
  o.softcap = a.softcap;
  o.scale = a.scale;
  o.temperature = a.temperature_value;
  o.normalizer = a.normalizer_value;
  o.has_normalizer = a.has_normalizer_value != 0;
  o.shift = a.shift;
  o.sequence_length = a.sequence_length;
  return o;
}

DeviceKind device_of(std::int32_t device) {
  require(device == FLCE_DEVICE_CPU || device == FLCE_DEVICE_CUDA, ErrorCode::kUnsupported,
          "device {} is unknown; FLCE_DEVICE_CPU (0) and FLCE_DEVICE_CUDA (1) exist", device);
  return static_cast<DeviceKind>(device);
}

RunOptions run_options_of(const flce_args& a) {
  return {.stream = a.stream, .check_targets = a.check_targets != 0};
}

// The checks that every function makes of its args.
flce_args checked(const flce_args* args) {
  const flce_args a = taken("flce_args", args, kArgsSize);
  require(a.abi_major == FLCE_ABI_MAJOR,
          "args was made for ABI {}.{}; this library has {}.{} (call flce_args_init)", a.abi_major,
          a.abi_minor, FLCE_ABI_MAJOR, FLCE_ABI_MINOR);
  device_of(a.device);
  require(a.reserved2 == 0, "flce_args.reserved2 is {}; it must be 0", a.reserved2);
  return a;
}

Problem problem_of_args(const flce_args& args) {
  return problem_of(inputs_of(args), outputs_of(args), options_of(args),
                    args.accumulate_grad_weight != 0, args.accumulate_grad_bias != 0,
                    static_cast<Pass>(args.pass));
}

DeviceCaps caps_for(DeviceKind device, std::int32_t num_threads) {
  if (device == DeviceKind::kCuda) {
    require(num_threads == 0, "num_threads is {}: threads are the CPU's; with CUDA it must be 0",
            num_threads);
    return cuda_caps();
  }
  DeviceCaps caps = cpu_caps();
  if (num_threads > 0) caps.num_threads = num_threads;
  return caps;
}

Plan make(const flce_args& args, const flce_plan_request& wanted, std::int64_t slab = 0) {
  require(wanted.num_threads >= 0, "num_threads is {}; it must be 0 (all) or more",
          wanted.num_threads);
  const PlanRequest request{static_cast<Method>(wanted.method),
                            wanted.chunk,
                            wanted.budget_bytes,
                            static_cast<ChunkPolicy>(wanted.policy),
                            static_cast<Route>(wanted.route),
                            wanted.allow_tf32 != 0};
  const DeviceCaps caps = caps_for(device_of(args.device), wanted.num_threads);
  return checked_plan(problem_of_args(args), caps, request, false, slab);
}

// The full plan behind the plain struct: planning again with its tiling, which is pure.
Plan plan_again(const flce_args& args, const flce_plan* plan) {
  const flce_plan given = taken("flce_plan", plan, kPlanSize);
  flce_plan_request request{};
  request.method = given.method;
  request.chunk = given.chunk;
  request.num_threads = given.num_threads;
  request.route = given.route;
  request.allow_tf32 = given.allow_tf32;
  Plan made = make(args, request, given.slab);
  require(
      made.workspace_bytes == given.workspace_bytes && made.saved_bytes == given.saved_bytes,
      "the plan was made for other arguments: it books {} + {} bytes, these arguments need {} + "
      "{}; call flce_make_plan again",
      given.workspace_bytes, given.saved_bytes, made.workspace_bytes, made.saved_bytes);
  return made;
}

flce_plan plain_plan(const Plan& plan) {
  flce_plan plain{};
  plain.workspace_bytes = plan.workspace_bytes;
  plain.saved_bytes = plan.saved_bytes;
  plain.extra_bytes = plan.extra_bytes;
  plain.input_bytes = plan.input_bytes;
  plain.output_bytes = plan.output_bytes;
  plain.peak_bytes = plan.peak_bytes;
  plain.chunk = plan.chunk;
  plain.num_chunks = plan.num_chunks;
  plain.seconds = plan.seconds;
  plain.method = static_cast<flce_method>(plan.method);
  plain.gemms = plan.methods[static_cast<std::size_t>(plan.method) - 1].gemms;
  plain.num_threads = plan.caps.kind == DeviceKind::kCpu ? plan.caps.num_threads : 0;
  plain.route = static_cast<std::int32_t>(plan.route);
  plain.allow_tf32 = plan.request.allow_tf32 ? 1 : 0;
  plain.slab = plan.slab;
  return plain;
}

std::span<std::byte> bytes_at(void* data, std::uint64_t size) {
  return {static_cast<std::byte*>(data), data == nullptr ? 0 : static_cast<std::size_t>(size)};
}

}  // namespace
}  // namespace flce

using namespace flce;  // the functions below are C, in the global namespace

extern "C" {

const char* flce_version(void) { return version(); }

const char* flce_last_error(void) { return last_error(); }

const char* flce_status_name(flce_status status) {
  constexpr std::array kNames{"ok",
                              "invalid_argument",
                              "unsupported",
                              "out_of_budget",
                              "target_out_of_range",
                              "workspace_too_small",
                              "device_error",
                              "internal",
                              "out_of_memory"};
  return status >= 0 && status < static_cast<flce_status>(kNames.size()) ? kNames[status]
                                                                         : "unknown status";
}

flce_status flce_args_init(flce_args* args, uint64_t struct_size) {
  return guarded([&] {
    require(args != nullptr, "flce_args is null");
    require_size("flce_args", struct_size, kArgsSize);
    std::memset(args, 0, struct_size);
    args->struct_size = struct_size;
    args->abi_major = FLCE_ABI_MAJOR;
    args->abi_minor = FLCE_ABI_MINOR;
    const Options defaults;
    args->reduction = static_cast<std::int32_t>(defaults.reduction);
    args->ignore_index = defaults.ignore_index;
    args->scale = defaults.scale;
    args->temperature_value = defaults.temperature;
    for (flce_matrix* m : {&args->hidden, &args->weight, &args->topk_logprob, &args->topk_index,
                           &args->grad_hidden, &args->grad_weight}) {
      m->col_stride = 1;
    }
    for (flce_vector* v :
         {&args->target, &args->bias, &args->class_weight, &args->token_weight, &args->temperature,
          &args->normalizer, &args->grad_output, &args->grad_entropy, &args->loss, &args->lse,
          &args->logprob, &args->entropy, &args->z_loss, &args->argmax, &args->num_correct,
          &args->num_valid, &args->grad_bias}) {
      v->stride = 1;
    }
  });
}

flce_status flce_plan_request_init(flce_plan_request* request, uint64_t struct_size) {
  return guarded([&] {
    require(request != nullptr, "flce_plan_request is null");
    require_size("flce_plan_request", struct_size, kRequestSize);
    std::memset(request, 0, struct_size);
    request->struct_size = struct_size;
  });
}

flce_status flce_make_plan(const flce_args* args, const flce_plan_request* request,
                           flce_plan* plan) {
  return guarded([&] {
    const flce_args a = checked(args);
    require(plan != nullptr, "flce_plan is null");
    const std::uint64_t size = plan->struct_size;
    require_size("flce_plan", size, kPlanSize);
    flce_plan_request wanted{};
    if (request != nullptr) wanted = taken("flce_plan_request", request, kRequestSize);
    require(wanted.allow_tf32 == 0 || size >= kPlanSizeOf11,
            "allow_tf32 is set, but flce_plan of {} bytes cannot keep it; it needs {}", size,
            kPlanSizeOf11);
    flce_plan made = plain_plan(make(a, wanted));
    require(size >= kPlanSizeOf14 || wanted.budget_bytes == 0 || made.method != FLCE_RECOMPUTE,
            "budget_bytes is set, but flce_plan of {} bytes cannot keep the slab that the budget "
            "gives recompute; it needs {}",
            size, kPlanSizeOf14);
    made.struct_size = size;
    std::memset(plan, 0, size);
    std::memcpy(plan, &made, std::min<std::uint64_t>(size, sizeof made));
  });
}

flce_status flce_can_serve(const flce_args* args, flce_method method) {
  return guarded([&] {
    const flce_args a = checked(args);
    const MethodInfo* info = find_method(static_cast<Method>(method));
    require(info != nullptr, "method {} is unknown; FLCE_NAIVE to FLCE_RECOMPUTE exist", method);
    const Problem problem = problem_of_args(a);
    // A device of that kind without figures: whether the memory is enough is not the question.
    DeviceCaps caps;
    caps.kind = device_of(a.device);
    const Plan report = plan_report(problem, caps);
    std::array<char, 320> refusal = report.methods[static_cast<std::size_t>(method) - 1].refusal;
    const char* reason = info->planned_only != nullptr ? info->planned_only(problem) : nullptr;
    if (reason != nullptr) write_text(refusal, "{}: {}", name_of(info->method), reason);
    require(refusal[0] == '\0', ErrorCode::kUnsupported, "{}", refusal.data());
    clear_last_error();
  });
}

flce_status flce_run(const flce_args* args, const flce_plan* plan, void* workspace,
                     uint64_t workspace_bytes) {
  return guarded([&] {
    const flce_args a = checked(args);
    run(plan_again(a, plan), inputs_of(a), outputs_of(a), bytes_at(workspace, workspace_bytes),
        run_options_of(a));
  });
}

flce_status flce_forward(const flce_args* args, const flce_plan* plan, void* workspace,
                         uint64_t workspace_bytes, void* saved, uint64_t saved_bytes) {
  return guarded([&] {
    const flce_args a = checked(args);
    forward(plan_again(a, plan), inputs_of(a), outputs_of(a), bytes_at(workspace, workspace_bytes),
            bytes_at(saved, saved_bytes), run_options_of(a));
  });
}

flce_status flce_backward(const flce_args* args, const flce_plan* plan, void* workspace,
                          uint64_t workspace_bytes, void* saved, uint64_t saved_bytes) {
  return guarded([&] {
    const flce_args a = checked(args);
    backward(plan_again(a, plan), inputs_of(a), outputs_of(a), bytes_at(workspace, workspace_bytes),
             bytes_at(saved, saved_bytes), run_options_of(a));
  });
}

flce_status flce_scale_grads(const flce_vector* upstream, const flce_matrix* grad_hidden,
                             const flce_matrix* grad_weight, const flce_vector* grad_bias) {
  return flce_scale_grads_on(FLCE_DEVICE_CPU, nullptr, upstream, grad_hidden, grad_weight,
                             grad_bias);
}

flce_status flce_scale_grads_on(int32_t device, void* stream, const flce_vector* upstream,
                                const flce_matrix* grad_hidden, const flce_matrix* grad_weight,
                                const flce_vector* grad_bias) {
  return guarded([&] {
    require(upstream != nullptr, "upstream is null");
    scale_grads(view(*upstream), grad_hidden ? view(*grad_hidden) : MatrixView{},
                grad_weight ? view(*grad_weight) : MatrixView{},
                grad_bias ? view(*grad_bias) : VectorView{}, device_of(device), stream);
  });
}

const char* flce_cuda_refusal(void) {
  try {
    return cuda_refusal().c_str();
  } catch (...) {
    return "out of memory while looking for CUDA";
  }
}

flce_status flce_parse_bytes(const char* text, uint64_t* bytes) {
  return guarded([&] {
    require(text != nullptr, "text is null");
    require(bytes != nullptr, "bytes is null");
    *bytes = parse_bytes(text);
  });
}

}  // extern "C"
