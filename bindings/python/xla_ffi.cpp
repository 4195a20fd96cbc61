// SPDX-License-Identifier: Apache-2.0
// What XLA calls for flce.jax: flce_run, flce_forward and flce_backward as custom calls, on the CPU
// and on CUDA. A library of its own, libflce_jax.so, over the C ABI alone.
//
// Python (flce/jax/_call.py) has planned while the program was traced, and leaves as constants of
// the program, as words of 64 bits, flce_args without addresses and the flce_plan; and the names of
// the buffers, in the order in which they come. A call puts in addresses and the stream, and asks
// for no memory: the workspace is one more result, so that XLA counts it and shares its bytes with
// others. This file must not know an option of the loss.
#include <xla/ffi/api/ffi.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "flce/flce.h"

namespace ffi = xla::ffi;

namespace {

using Words = ffi::Span<const std::int64_t>;

enum class Step { kRun, kForward, kBackward };

struct Bytes {
  void* data = nullptr;
  std::uint64_t size = 0;
};

struct Call {
  flce_args args;
  flce_plan plan;
  Bytes workspace;
  Bytes saved;  // between forward and backward
};

// A view in flce_args, by the name of its buffer.
struct Field {
  std::string_view name;
  std::size_t offset;
  bool is_matrix;
};

constexpr Field kFields[] = {
    {"hidden", offsetof(flce_args, hidden), true},
    {"weight", offsetof(flce_args, weight), true},
    {"target", offsetof(flce_args, target), false},
    {"bias", offsetof(flce_args, bias), false},
    {"class_weight", offsetof(flce_args, class_weight), false},
    {"token_weight", offsetof(flce_args, token_weight), false},
    {"temperature", offsetof(flce_args, temperature), false},
    {"normalizer", offsetof(flce_args, normalizer), false},
    {"grad_output", offsetof(flce_args, grad_output), false},
    {"grad_entropy", offsetof(flce_args, grad_entropy), false},
    {"loss", offsetof(flce_args, loss), false},
    {"lse", offsetof(flce_args, lse), false},
    {"logprob", offsetof(flce_args, logprob), false},
    {"entropy", offsetof(flce_args, entropy), false},
    {"z_loss", offsetof(flce_args, z_loss), false},
    {"argmax", offsetof(flce_args, argmax), false},
    {"num_correct", offsetof(flce_args, num_correct), false},
    {"num_valid", offsetof(flce_args, num_valid), false},
    {"grad_hidden", offsetof(flce_args, grad_hidden), true},
    {"grad_weight", offsetof(flce_args, grad_weight), true},
    {"grad_bias", offsetof(flce_args, grad_bias), false},
};

ffi::Error misfit(const std::string& what) {
  return {ffi::ErrorCode::kInternal,
          what + "; the flce package and libflce_jax.so are not of one version"};
}

ffi::ErrorCode code_of(flce_status status) {
  switch (status) {
    case FLCE_INVALID_ARGUMENT:
      return ffi::ErrorCode::kInvalidArgument;
    case FLCE_UNSUPPORTED:
      return ffi::ErrorCode::kUnimplemented;
    case FLCE_TARGET_OUT_OF_RANGE:
      return ffi::ErrorCode::kOutOfRange;
    case FLCE_OUT_OF_MEMORY:
      return ffi::ErrorCode::kResourceExhausted;
    default:
      return ffi::ErrorCode::kInternal;
  }
}

flce_dtype dtype_of(ffi::DataType type) {
  switch (type) {
    case ffi::F64:
      return FLCE_F64;
    case ffi::F32:
      return FLCE_F32;
    case ffi::BF16:
      return FLCE_BF16;
    case ffi::F16:
      return FLCE_F16;
    case ffi::S64:
      return FLCE_I64;
    case ffi::S32:
      return FLCE_I32;
    default:
      return FLCE_NONE;
  }
}

std::int64_t elements_of(const flce_matrix& view) { return view.rows * view.cols; }
std::int64_t elements_of(const flce_vector& view) { return view.size; }

// Gives a view its memory; false if the buffer is not what was planned for.
template <class View>
bool place(char* at, const ffi::AnyBuffer& buffer) {
  View view;
  std::memcpy(&view, at, sizeof view);
  auto elements = static_cast<std::int64_t>(buffer.element_count());
  flce_dtype dtype = dtype_of(buffer.element_type());
  if (view.dtype == FLCE_I64 && dtype == FLCE_I32) {  // as pairs: JAX has 64 bits by choice only
    dtype = FLCE_I64;
    elements /= 2;
  }
  if (view.dtype != dtype || elements_of(view) != elements) return false;
  view.data = buffer.untyped_data();
  std::memcpy(at, &view, sizeof view);
  return true;
}

ffi::Error attach(std::string_view name, const ffi::AnyBuffer& buffer, Call& call) {
  if (name == "workspace" || name == "saved") {
    (name == "saved" ? call.saved : call.workspace) = {buffer.untyped_data(), buffer.size_bytes()};
    return ffi::Error::Success();
  }
  for (const Field& field : kFields) {
    if (field.name != name) continue;
    char* at = reinterpret_cast<char*>(&call.args) + field.offset;
    const bool fits =
        field.is_matrix ? place<flce_matrix>(at, buffer) : place<flce_vector>(at, buffer);
    return fits ? ffi::Error::Success()
                : misfit("the buffer " + std::string(name) + " is not what was planned for");
  }
  return misfit("a buffer is called '" + std::string(name) + "'");
}

// Takes the first of names with single spaces between.
std::string_view next_name(std::string_view& names) {
  const std::size_t end = names.find(' ');
  const std::string_view name = names.substr(0, end);
  names.remove_prefix(end == std::string_view::npos ? names.size() : end + 1);
  return name;
}

ffi::AnyBuffer buffer_of(ffi::AnyBuffer operand) { return operand; }
ffi::AnyBuffer buffer_of(ffi::Result<ffi::AnyBuffer> result) { return *result; }

// `Buffers` are ffi's RemainingArgs or RemainingRets.
template <class Buffers>
ffi::Error attach_all(std::string_view names, const Buffers& buffers, Call& call) {
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    const auto buffer = buffers.template get<ffi::AnyBuffer>(i);
    if (!buffer) return buffer.error();
    if (ffi::Error error = attach(next_name(names), buffer_of(*buffer), call); error.failure()) {
      return error;
    }
  }
  return names.empty() ? ffi::Error::Success() : misfit("buffers are missing");
}

flce_status dispatch(Step step, Call& call) {
  const Bytes workspace = call.workspace, saved = call.saved;
  if (step == Step::kRun) {
    return flce_run(&call.args, &call.plan, workspace.data, workspace.size);
  }
  if (step == Step::kBackward) {
    return flce_backward(&call.args, &call.plan, workspace.data, workspace.size, saved.data,
                         saved.size);
  }
  // That there will be an upstream gradient; forward does not read it.
  double unread = 0.0;
  for (flce_vector* upstream : {&call.args.grad_output, &call.args.grad_entropy}) {
    if (upstream->dtype == FLCE_NONE) continue;
    upstream->data = &unread;
    upstream->stride = 0;
  }
  return flce_forward(&call.args, &call.plan, workspace.data, workspace.size, saved.data,
                      saved.size);
}

ffi::Error carry_out(Step step, void* stream, Words args, Words plan, std::string_view operands,
                     std::string_view results, const ffi::RemainingArgs& inputs,
                     const ffi::RemainingRets& outputs) {
  Call call;
  if (args.size() * sizeof(std::int64_t) != sizeof call.args ||
      plan.size() * sizeof(std::int64_t) != sizeof call.plan) {
    return misfit("flce_args or flce_plan has another size");
  }
  std::memcpy(&call.args, args.begin(), sizeof call.args);
  std::memcpy(&call.plan, plan.begin(), sizeof call.plan);
  call.args.stream = stream;
  ffi::Error error = attach_all(operands, inputs, call);
  if (error.success()) error = attach_all(results, outputs, call);
  if (error.failure()) return error;
  const flce_status status = dispatch(step, call);
  return status == FLCE_OK ? ffi::Error::Success() : ffi::Error(code_of(status), flce_last_error());
}

template <Step step>
ffi::Error on_cpu(Words args, Words plan, std::string_view operands, std::string_view results,
                  ffi::RemainingArgs inputs, ffi::RemainingRets outputs) {
  return carry_out(step, nullptr, args, plan, operands, results, inputs, outputs);
}

template <Step step>
ffi::Error on_cuda(void* stream, Words args, Words plan, std::string_view operands,
                   std::string_view results, ffi::RemainingArgs inputs,
                   ffi::RemainingRets outputs) {
  return carry_out(step, stream, args, plan, operands, results, inputs, outputs);
}

// What follows the stream, in the order of the functions above.
template <class Binding>
auto with_problem(Binding&& binding) {
  return std::forward<Binding>(binding)
      .template Attr<Words>("args")                 // flce_args without addresses
      .template Attr<Words>("plan")                 // flce_plan
      .template Attr<std::string_view>("operands")  // names, "hidden weight target"
      .template Attr<std::string_view>("results")   // names, "loss workspace"
      .RemainingArgs()
      .RemainingRets();
}

auto cpu_binding() { return with_problem(ffi::Ffi::Bind()); }
auto cuda_binding() { return with_problem(ffi::Ffi::Bind().Ctx<ffi::PlatformStream<void*>>()); }

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(flce_jax_run_cpu, on_cpu<Step::kRun>, cpu_binding());
XLA_FFI_DEFINE_HANDLER_SYMBOL(flce_jax_forward_cpu, on_cpu<Step::kForward>, cpu_binding());
XLA_FFI_DEFINE_HANDLER_SYMBOL(flce_jax_backward_cpu, on_cpu<Step::kBackward>, cpu_binding());
XLA_FFI_DEFINE_HANDLER_SYMBOL(flce_jax_run_cuda, on_cuda<Step::kRun>, cuda_binding());
XLA_FFI_DEFINE_HANDLER_SYMBOL(flce_jax_forward_cuda, on_cuda<Step::kForward>, cuda_binding());
XLA_FFI_DEFINE_HANDLER_SYMBOL(flce_jax_backward_cuda, on_cuda<Step::kBackward>, cuda_binding());
