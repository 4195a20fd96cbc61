// SPDX-License-Identifier: Apache-2.0
#include "bench_csv.hpp"

#include <fmt/core.h>

#include <filesystem>
#include <string_view>

#include "flce/error.hpp"
#include "io/bytes.hpp"
#include "io/text.hpp"

namespace flce::cli {
namespace {

using Json = nlohmann::ordered_json;

// Quotes where a comma or a quote would break the line.
std::string csv_field(const Json& value) {
  if (value.is_null()) return "";
  if (!value.is_string()) return value.dump();
  const auto text = value.get<std::string>();
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + '"';
}

std::string header_of(const std::vector<Json>& rows) {
  std::string header;
  if (rows.empty()) return header;
  for (const auto& [key, value] : rows.front().items()) {
    header += (header.empty() ? "" : ",") + key;
  }
  return header;
}

std::string lines_of(const std::vector<Json>& rows) {
  std::string lines;
  for (const Json& row : rows) {
    std::string line;
    bool is_first = true;
    for (const auto& [key, value] : row.items()) {
      if (!is_first) line += ',';
      line += csv_field(value);
      is_first = false;
    }
    lines += line + "\n";
  }
  return lines;
}

}  // namespace

std::string csv_of(const std::vector<Json>& rows) {
  return header_of(rows) + "\n" + lines_of(rows);
}

std::string csv_appended(const std::string& path, const std::vector<Json>& rows) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return csv_of(rows);
  const io::Bytes bytes = io::open_bytes(path);
  std::string text(reinterpret_cast<const char*>(bytes.span.data()), bytes.span.size());
  if (text.empty()) return csv_of(rows);
  if (text.back() != '\n') text += '\n';
  const std::string header = text.substr(0, text.find('\n'));
  if (header != header_of(rows)) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("--append: {} begins with the columns {}, these rows have '{}'; give "
                            "another file",
                            path, io::in_quotes(header), header_of(rows)));
  }
  return text + lines_of(rows);
}

}  // namespace flce::cli
