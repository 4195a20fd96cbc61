// SPDX-License-Identifier: Apache-2.0
// cuBLASLt is column-major: what is row-major to us is transposed to it, so D^T (n, m) = op(B)^T
// (n, k) * op(A)^T (k, m), with our B first.
#include "cuda/run/gemm.hpp"

#include <algorithm>
#include <map>
#include <mutex>
#include <tuple>

#include "core/check.hpp"
#include "cuda/run/current.hpp"

namespace flce::cuda {
namespace {

// Candidates that a choice is looked up among.
constexpr int kMostCandidates = 32;

// Whether cuBLASLt may split a sum of k terms. In 16 bits its version 13.1 loses the last one to
// three terms of some sums that it splits: of 12289, 16386 or 16387, for instance, all of them a
// few more than a multiple of what its tiles take at a time. Seen with multiples of 64; a wider
// berth costs little, for few lengths are so.
bool may_split(std::int64_t k, Dtype dtype) {
  constexpr std::int64_t kTile = 32;
  constexpr std::int64_t kFewest = 8;
  const std::int64_t rest = k % kTile;
  return size_of(dtype) > 2 || rest == 0 || rest >= kFewest;
}

cudaDataType_t data_type(Dtype dtype) {
  switch (dtype) {
    case Dtype::kF64:
      return CUDA_R_64F;
    case Dtype::kBF16:
      return CUDA_R_16BF;
    case Dtype::kF16:
      return CUDA_R_16F;
    default:
      return CUDA_R_32F;
  }
}

cublasComputeType_t compute_type(const Gemm& g) {
  if (g.in == Dtype::kF64) return CUBLAS_COMPUTE_64F;
  return g.allow_tf32 && g.in == Dtype::kF32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

// The bytes that an address and a row stride are both multiples of.
std::uint32_t alignment_of(const void* data, std::int64_t row_stride, Dtype dtype) {
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  std::uint32_t bytes = 256;
  while (bytes > 1 && address % bytes != 0) bytes /= 2;
  const auto stride = static_cast<std::uint64_t>(row_stride * size_of(dtype));
  while (bytes > 16 && stride % bytes != 0) bytes /= 2;  // only 16 bytes matter to the kernels
  while (bytes > 1 && stride % std::min<std::uint32_t>(bytes, 16) != 0) bytes /= 2;
  return bytes;
}

// The descriptors of one call. They live on the host and are freed with this object.
class Descriptors {
 public:
  explicit Descriptors(const Gemm& g) : lt_(cublaslt()) {
    const cudaDataType_t scale = g.in == Dtype::kF64 ? CUDA_R_64F : CUDA_R_32F;
    check_cublas(lt_.create_desc(&desc, compute_type(g), scale), "making a product");
    // Our B is its A.
    const cublasOperation_t op_a = g.b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t op_b = g.a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    set(CUBLASLT_MATMUL_DESC_TRANSA, op_a);
    set(CUBLASLT_MATMUL_DESC_TRANSB, op_b);
    if (g.device_alpha != nullptr) {
      set(CUBLASLT_MATMUL_DESC_POINTER_MODE, CUBLASLT_POINTER_MODE_DEVICE);
    }
    layout(a, g.in, g.b.transposed ? g.k : g.n, g.b.transposed ? g.n : g.k, g.b.row_stride);
    layout(b, g.in, g.a.transposed ? g.m : g.k, g.a.transposed ? g.k : g.m, g.a.row_stride);
    layout(d, g.out, g.n, g.m, g.d_row_stride);
  }
  ~Descriptors() {
    for (cublasLtMatrixLayout_t one : {a, b, d}) {
      if (one != nullptr) lt_.destroy_layout(one);
    }
    if (desc != nullptr) lt_.destroy_desc(desc);
  }
  Descriptors(const Descriptors&) = delete;
  Descriptors& operator=(const Descriptors&) = delete;

  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t a = nullptr;
  cublasLtMatrixLayout_t b = nullptr;
  cublasLtMatrixLayout_t d = nullptr;

 private:
  template <typename Value>
  void set(cublasLtMatmulDescAttributes_t attribute, Value value) {
    check_cublas(lt_.set_desc(desc, attribute, &value, sizeof value), "describing a product");
  }
  void layout(cublasLtMatrixLayout_t& to, Dtype dtype, std::int64_t rows, std::int64_t cols,
              std::int64_t stride) {
    check_cublas(lt_.create_layout(&to, data_type(dtype), static_cast<std::uint64_t>(rows),
                                   static_cast<std::uint64_t>(cols), std::max(stride, rows)),
                 "describing a matrix");
  }
  const CublasLt& lt_;
};

int algo_number(const cublasLtMatmulAlgo_t& algo, cublasLtMatmulAlgoConfigAttributes_t attribute) {
  // Clusters are 16-bit numbers, tiles 32-bit ones.
  std::uint32_t value = 0;
  std::size_t written = 0;
  const std::size_t size = attribute == CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID ? 2 : 4;
  const cublasStatus_t status = cublaslt().get_algo(&algo, attribute, &value, size, &written);
  return status == CUBLAS_STATUS_SUCCESS ? static_cast<int>(value) : 0;
}

// A handle of the current device. cuBLASLt's handles may be used by several threads at once.
cublasLtHandle_t handle_here() {
  static std::mutex mutex;
  static std::map<int, cublasLtHandle_t> handles;
  const int device = current_device();
  const std::lock_guard<std::mutex> lock(mutex);
  cublasLtHandle_t& handle = handles[device];
  if (handle == nullptr) check_cublas(cublaslt().create(&handle), "making a handle");
  return handle;
}

// All that a candidate depends on.
using Key = std::tuple<int, int, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                       std::int64_t, std::int64_t, int, int, int, std::uint32_t, std::uint32_t,
                       std::uint32_t, std::uint64_t>;

Key key_of(const Gemm& g) {
  const int flags = (g.allow_tf32 ? 1 : 0) + (g.accumulate ? 2 : 0) + (g.a.transposed ? 4 : 0) +
                    (g.b.transposed ? 8 : 0) + (g.device_alpha != nullptr ? 16 : 0);
  return {current_device(),
          static_cast<int>(g.product),
          g.m,
          g.n,
          g.k,
          g.a.row_stride,
          g.b.row_stride,
          g.d_row_stride,
          static_cast<int>(g.in),
          static_cast<int>(g.out),
          flags,
          alignment_of(g.a.data, g.a.row_stride, g.in),
          alignment_of(g.b.data, g.b.row_stride, g.in),
          alignment_of(g.d, g.d_row_stride, g.out),
          g.scratch_bytes};
}

Candidate choose(const Gemm& g) {
  const bool is_16bit = g.in == Dtype::kBF16 || g.in == Dtype::kF16;
  // Which side of the product is tokens, and which the vocabulary.
  const bool sums_tokens =
      g.product == Product::kGradWeight || g.product == Product::kGradWeightAcc;
  const std::int64_t tokens = sums_tokens ? g.k : g.m;
  const std::int64_t vocab = sums_tokens ? g.m : (g.product == Product::kGradHidden ? g.k : g.n);
  const Choice* choice =
      is_16bit ? find_choice(current_device_name(), g.product, tokens, vocab) : nullptr;
  const std::vector<Candidate> candidates =
      candidates_of(g, choice != nullptr ? kMostCandidates : 1);
  if (choice == nullptr) return candidates.front();
  for (const Candidate& one : candidates) {
    if (one.tile_id == choice->tile_id && one.cluster_id == choice->cluster_id) return one;
  }
  return candidates.front();
}

}  // namespace

std::vector<Candidate> candidates_of(const Gemm& g, int most) {
  const CublasLt& lt = cublaslt();
  const Descriptors descriptors(g);
  cublasLtMatmulPreference_t preference = nullptr;
  check_cublas(lt.create_preference(&preference), "making a preference");
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    check_cublas(lt.set_preference(preference, attribute, &value, sizeof value),
                 "setting a preference");
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, g.scratch_bytes);
  // A sum that is split into parts is put together in the compute type, never in a 16-bit output.
  const auto split = may_split(g.k, g.in) ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE
                                          : CUBLASLT_REDUCTION_SCHEME_NONE;
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, static_cast<std::uint32_t>(split));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(g.b.data, g.b.row_stride, g.in));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(g.a.data, g.a.row_stride, g.in));
  const std::uint32_t out_alignment = alignment_of(g.d, g.d_row_stride, g.out);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, out_alignment);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, out_alignment);
  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<std::size_t>(most));
  int found = 0;
  const cublasStatus_t status =
      lt.get_heuristic(handle_here(), descriptors.desc, descriptors.a, descriptors.b, descriptors.d,
                       descriptors.d, preference, most, results.data(), &found);
  lt.destroy_preference(preference);
  require(status == CUBLAS_STATUS_SUCCESS && found > 0, ErrorCode::kUnsupported,
          "cuBLASLt has no kernel for the {} product of {} x {} x {} in {} (status {}) on this "
          "device; another dtype or device cpu works",
          name_of(g.product), g.m, g.n, g.k, flce::name_of(g.in), static_cast<int>(status));
  std::vector<Candidate> candidates;
  for (int i = 0; i < found; ++i) {
    if (results[static_cast<std::size_t>(i)].state != CUBLAS_STATUS_SUCCESS) continue;
    const cublasLtMatmulAlgo_t& algo = results[static_cast<std::size_t>(i)].algo;
    candidates.push_back({algo, algo_number(algo, CUBLASLT_ALGO_CONFIG_TILE_ID),
                          algo_number(algo, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID)});
  }
  require(!candidates.empty(), ErrorCode::kUnsupported,
          "cuBLASLt has no usable kernel for the {} product on this device; device cpu works",
          name_of(g.product));
  return candidates;
}

void run_gemm(const Gemm& g, const Candidate& candidate, cudaStream_t stream) {
  const Descriptors descriptors(g);
  const double alpha = g.alpha;
  const double beta = g.accumulate ? 1.0 : 0.0;
  const auto narrow_alpha = static_cast<float>(alpha);
  const auto narrow_beta = static_cast<float>(beta);
  const bool is_f64 = g.in == Dtype::kF64;
  const void* alpha_at = is_f64 ? static_cast<const void*>(&alpha) : &narrow_alpha;
  const void* beta_at = is_f64 ? static_cast<const void*>(&beta) : &narrow_beta;
  if (g.device_alpha != nullptr) {
    alpha_at = g.device_alpha;
    beta_at = g.device_beta + (g.accumulate ? 1 : 0);
  }
  check_cublas(
      cublaslt().matmul(handle_here(), descriptors.desc, alpha_at, g.b.data, descriptors.a,
                        g.a.data, descriptors.b, beta_at, g.d, descriptors.d, g.d, descriptors.d,
                        &candidate.algo, g.scratch, g.scratch_bytes, stream),
      name_of(g.product));
}

void run_gemm(const Gemm& g, cudaStream_t stream) {
  static std::mutex mutex;
  static std::map<Key, Candidate> known;
  const Key key = key_of(g);
  Candidate candidate;
  {
    const std::lock_guard<std::mutex> lock(mutex);
    const auto found = known.find(key);
    candidate = found != known.end() ? found->second : known.emplace(key, choose(g)).first->second;
  }
  run_gemm(g, candidate, stream);
}

}  // namespace flce::cuda
