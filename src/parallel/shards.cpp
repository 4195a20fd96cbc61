// SPDX-License-Identifier: Apache-2.0
#include "parallel/shards.hpp"

#include "core/check.hpp"
#include "methods/methods.hpp"

namespace flce {

std::int64_t exchange_bytes(const Backend& backend, const Plan& plan, int num_ranks) {
  return (num_ranks + 1) * plan.chunk * backend.stats_bytes();
}

void run_sharded(const Backend& backend, const Step& step, Communicator& ranks,
                 std::span<std::byte> exchange) {
  const Problem& p = step.problem();
  const Plan& plan = *step.plan;
  require(plan.method == Method::kFused, ErrorCode::kUnsupported,
          "a split vocabulary runs with method fused, not {}", name_of(plan.method));
  expect(static_cast<std::int64_t>(exchange.size()) >=
         exchange_bytes(backend, plan, ranks.num_ranks()));
  std::byte* const mine = exchange.data();
  std::byte* const all = mine + plan.chunk * backend.stats_bytes();
  backend.prepare(step);
  backend.scan_targets(step);
  const Pieces chunks(p.tokens, plan.chunk);
  for (std::int64_t i = 0; i < chunks.count(); ++i) {
    const Range tokens = chunks[i];
    backend.partial(step, tokens, step.kept.what, 0);
    backend.export_stats(step, tokens, mine);
    ranks.all_gather(mine, tokens.size() * backend.stats_bytes(), all);
    backend.merge_stats(step, tokens, all, ranks.num_ranks());
    backend.combine(step, tokens);
    if (!p.wants.any_gradient()) continue;
    backend.coefficients(step, tokens);
    grads_of_chunk(backend, step, tokens, {0, p.vocab}, 0, Turn{},
                   {chunks.is_first(i), chunks.is_last(i)});
  }
  if (p.wants.grad_hidden) ranks.all_reduce_sum(step.outputs->grad_hidden);
  backend.reduce_loss(step);
}

}  // namespace flce
