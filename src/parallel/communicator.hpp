// SPDX-License-Identifier: Apache-2.0
// What a group of ranks must be able to do: three functions, which adapters for MPI, NCCL or
// torch.distributed provide. Each call is made by every rank, in the same order.
#pragma once

#include <cstddef>
#include <cstdint>

#include "flce/types.hpp"

namespace flce {

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int num_ranks() const = 0;
  // `mine` (bytes) of every rank, in rank order, into `all` (num_ranks * bytes).
  virtual void all_gather(const std::byte* mine, std::int64_t bytes, std::byte* all) = 0;
  // Replaces `matrix` by its sum over the ranks.
  virtual void all_reduce_sum(const MatrixView& matrix) = 0;
};

}  // namespace flce
