// SPDX-License-Identifier: Apache-2.0
// The second implementation: cross-entropy of hidden @ weight^T in extended precision over logits
// that are simply stored, every option of docs/math.md included. It shares no header with the
// library, so that a fault has to be made twice to go unseen. Everybody in tests/ may call it.
//
//   z = scale * (x_i . W_j) + b_j,  u = softcap * tanh(z / softcap) / T,  L = logsumexp(u)
//   loss_i = m_i * [(1 - eps) * w_y * (L - u_y) + (eps / V) * sum_j w_j * (L - u_j) + lambda * L^2]
#pragma once

#include <cstdint>
#include <vector>

namespace oracle {

enum class Reduction { kNone, kSum, kMean };

// Values, already rounded to the types under test. Empty vectors mean "not given".
struct Input {
  std::int64_t tokens = 0;
  std::int64_t hidden = 0;
  std::int64_t vocab = 0;
  std::vector<double> x;  // (tokens, hidden)
  std::vector<double> w;  // (vocab, hidden)
  std::vector<std::int64_t> target;
  std::vector<double> bias;
  std::vector<double> class_weight;
  std::vector<double> token_weight;           // by hidden row, as the next three
  std::vector<double> temperature_per_token;  // replaces `temperature`
  std::vector<double> grad_output;            // empty: 1; one number; or one per token
  std::vector<double> grad_entropy;           // not divided by the divisor of the loss

  Reduction reduction = Reduction::kMean;
  std::int64_t ignore_index = -100;
  double smoothing = 0.0;
  double z_loss = 0.0;
  double softcap = 0.0;
  double scale = 1.0;
  double temperature = 1.0;
  double normalizer = 0.0;  // with kSum; without a valid token the loss is 0 for any
  bool has_normalizer = false;
  std::int64_t shift = 0;
  std::int64_t sequence_length = 0;
  std::int64_t topk = 0;
};

// How large the terms are that the results are sums of: what rounding errors scale with.
struct Conditioning {
  double logit = 0.0;                 // max over valid logits of (|scale| * sum_k |x w| + |b|) / T
  std::vector<double> loss;           // per token: the sum of |coefficient of L - u|
  double grad_hidden = 0.0;           // Frobenius norm of scale * |G| |W|
  double grad_weight = 0.0;           // Frobenius norm of scale * |G|^T |X|
  double grad_bias = 0.0;             // norm of the column sums of |G|
  double grad_hidden_uncapped = 0.0;  // the same, the derivative of the cap replaced by 1
  double grad_weight_uncapped = 0.0;
  double grad_bias_uncapped = 0.0;
};

// Per-token vectors hold 0 (argmax and top-k too) at ignored tokens.
struct Result {
  std::vector<double> loss;        // one number, or one per token with kNone
  std::vector<double> z_loss;      // shaped as loss
  std::vector<double> token_loss;  // one per token before any reduction
  std::vector<double> lse;
  std::vector<double> logprob;
  std::vector<double> entropy;
  std::vector<std::int64_t> argmax;
  std::vector<double> topk_logprob;  // (tokens, topk)
  std::vector<std::int64_t> topk_index;
  std::int64_t num_correct = 0;
  std::int64_t num_valid = 0;
  std::vector<double> grad_hidden;  // (tokens, hidden)
  std::vector<double> grad_weight;  // (vocab, hidden)
  std::vector<double> grad_bias;    // (vocab)
  std::vector<double> grad_logits;  // (tokens, vocab), with respect to z
  std::vector<double> logprobs;     // (tokens, vocab), u - L
  double divisor = 1.0;
  Conditioning conditioning;
};

// The class that token i is trained to predict, or -1 where it has none (ignored, or shifted out of
// its sequence). Throws std::out_of_range for any other value outside [0, vocab).
std::vector<std::int64_t> resolved_targets(const Input& input);

// What the summed loss is divided by (1 for kNone and kSum without a normalizer).
double divisor_of(const Input& input, const std::vector<std::int64_t>& targets);

Result evaluate(const Input& input);

}  // namespace oracle
