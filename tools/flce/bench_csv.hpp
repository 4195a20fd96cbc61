// SPDX-License-Identifier: Apache-2.0
// Rows as a CSV file, new or behind the rows that a file already has.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace flce::cli {

// Rows of equal columns; null is an empty field.
std::string csv_of(const std::vector<nlohmann::ordered_json>& rows);

// What the file holds and the rows behind it; the rows alone where there is no file yet. Throws
// Error{kInvalidArgument} if the file has other columns.
std::string csv_appended(const std::string& path, const std::vector<nlohmann::ordered_json>& rows);

}  // namespace flce::cli
