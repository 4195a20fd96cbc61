// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "backend/backend.hpp"
#include "parallel/communicator.hpp"

namespace flce {

// Bytes of the exchange buffer of run_sharded.
std::int64_t exchange_bytes(const Backend& backend, const Plan& plan, int num_ranks);

// `fused` over a head whose vocabulary rows are split over ranks (Problem::shard): per chunk
// partial, one all-gather of the statistics, combine, grads. grad_weight and grad_bias stay local,
// grad_hidden is summed over the ranks, every other result is the same on every rank.
void run_sharded(const Backend& backend, const Step& step, Communicator& ranks,
                 std::span<std::byte> exchange);

}  // namespace flce
