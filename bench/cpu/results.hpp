// SPDX-License-Identifier: Apache-2.0
// Rows of the results file. A rerun replaces the rows of the same key: the first kKeyColumns
// columns. bench/results.py reads and writes the same file.
#pragma once

#include <string>
#include <vector>

#include "measure.hpp"

namespace flce::bench {

inline constexpr int kKeyColumns = 8;  // series,system,tokens,hidden,vocab,dtype,isa,threads

// The table for people.
std::string results_table(const std::vector<Row>& rows);

// Writes the rows into the CSV at `path`, in the place of those of the same key. Throws
// std::runtime_error if the file cannot be written or has other columns.
void write_results(const std::string& path, const std::string& series,
                   const std::vector<Row>& rows);

}  // namespace flce::bench
