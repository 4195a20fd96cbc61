// SPDX-License-Identifier: Apache-2.0
#include "results.hpp"

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <map>
#include <stdexcept>

#include "flce/flce.hpp"

namespace flce::bench {
namespace {

constexpr const char* kHeader =
    "series,system,tokens,hidden,vocab,dtype,isa,threads,method,chunk,rounds,median_ms,min_ms,"
    "max_ms,gflops,peak_gflops,share_of_peak,ours_ms,ratio_to_ours,extra_bytes,diff_loss,"
    "diff_grad_hidden,diff_grad_weight,kernel,system_version,flce_version,compiler,cpu_model,date";

template <typename... Args>
std::string format(const char* pattern, Args... args) {
  char text[512];
  std::snprintf(text, sizeof text, pattern, args...);
  return text;
}

// Commas and quotes have no place in these texts; the file stays one that `cut` can read.
std::string plain(std::string text) {
  std::replace(text.begin(), text.end(), ',', ';');
  std::replace(text.begin(), text.end(), '"', '\'');
  return text;
}

// "AMD EPYC (family 25 model 1)": many virtual machines give no more than a brand.
std::string cpu_model() {
  std::map<std::string, std::string> facts;
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line) && !line.empty();) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::string key = line.substr(0, line.find_last_not_of("\t ", colon - 1) + 1);
    facts[key] = colon + 2 <= line.size() ? line.substr(colon + 2) : "";
  }
  return facts["model name"] + " (family " + facts["cpu family"] + " model " + facts["model"] + ")";
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d", std::gmtime(&now));
  return text;
}

struct Figures {
  double median_ms;
  double min_ms;
  double max_ms;
  double gflops;
  double peak_gflops;
  double share;
  double ours_ms;
  double ratio;
};

Figures figures_of(const Row& row) {
  Figures f{};
  const double seconds = median(row.seconds);
  f.median_ms = seconds * 1e3;
  f.min_ms = *std::min_element(row.seconds.begin(), row.seconds.end()) * 1e3;
  f.max_ms = *std::max_element(row.seconds.begin(), row.seconds.end()) * 1e3;
  f.gflops = row.shape.flops() / seconds * 1e-9;
  f.peak_gflops = median(row.peak_flops) * 1e-9;
  f.share = f.gflops / f.peak_gflops;
  f.ours_ms = median(row.ours_seconds) * 1e3;
  f.ratio = median(row.ratios);
  return f;
}

std::string csv_line(const std::string& series, const Row& row) {
  const Case& s = row.shape;
  const Figures f = figures_of(row);
  std::string line =
      format("%s,%s,%lld,%lld,%lld,%s,%s,%d", series.c_str(), plain(row.facts.system).c_str(),
             static_cast<long long>(s.tokens), static_cast<long long>(s.hidden),
             static_cast<long long>(s.vocab), name_of(s.dtype), cpu_isa(), s.threads);
  line +=
      format(",%s,%lld,%zu,%.3f,%.3f,%.3f,%.2f,%.2f,%.4f,%.3f,%.4f,%llu", row.facts.method.c_str(),
             static_cast<long long>(row.facts.chunk), row.seconds.size(), f.median_ms, f.min_ms,
             f.max_ms, f.gflops, f.peak_gflops, f.share, f.ours_ms, f.ratio,
             static_cast<unsigned long long>(row.facts.extra_bytes));
  line += format(",%.2e,%.2e,%.2e", row.differences.loss, row.differences.grad_hidden,
                 row.differences.grad_weight);
  for (const std::string& text : {row.facts.kernel, row.facts.version, std::string(version()),
                                  "gcc " + std::string(__VERSION__), cpu_model(), today()}) {
    line += "," + plain(text);
  }
  return line;
}

std::string key_of(const std::string& line) {
  std::size_t end = 0;
  for (int i = 0; i < kKeyColumns && end != std::string::npos; ++i) {
    end = line.find(',', i == 0 ? 0 : end + 1);
  }
  return line.substr(0, end);
}

}  // namespace

std::string results_table(const std::vector<Row>& rows) {
  std::string text =
      format("%-22s %-24s %5s %7s %6s %11s %9s %6s %7s %12s  %s\n", "shape", "system", "thr",
             "chunk", "rounds", "median ms", "GFLOP/s", "peak", "ratio", "extra bytes", "kernel");
  for (const Row& row : rows) {
    const Case& s = row.shape;
    const Figures f = figures_of(row);
    const std::string shape =
        format("%lldx%lldx%lld %s", static_cast<long long>(s.tokens),
               static_cast<long long>(s.hidden), static_cast<long long>(s.vocab), name_of(s.dtype));
    text +=
        format("%-22s %-24s %5d %7lld %6zu %11.2f %9.1f %5.1f%% %7.3f %12llu  %s\n", shape.c_str(),
               row.facts.system.c_str(), s.threads, static_cast<long long>(row.facts.chunk),
               row.seconds.size(), f.median_ms, f.gflops, 100.0 * f.share, f.ratio,
               static_cast<unsigned long long>(row.facts.extra_bytes), row.facts.kernel.c_str());
  }
  return text;
}

void write_results(const std::string& path, const std::string& series,
                   const std::vector<Row>& rows) {
  std::vector<std::string> lines;
  {
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
      if (!line.empty()) lines.push_back(line);
    }
  }
  if (lines.empty()) lines.push_back(kHeader);
  if (lines.front() != kHeader) throw std::runtime_error(path + " has other columns; move it away");
  for (const Row& row : rows) {
    const std::string line = csv_line(series, row);
    const auto same = std::find_if(lines.begin(), lines.end(), [&](const std::string& other) {
      return key_of(other) == key_of(line);
    });
    if (same == lines.end()) {
      lines.push_back(line);
    } else {
      *same = line;
    }
  }
  const std::string part = path + ".part";
  std::ofstream file(part);
  for (const std::string& line : lines) file << line << '\n';
  file.close();
  if (!file || std::rename(part.c_str(), path.c_str()) != 0) {
    throw std::runtime_error("cannot write " + path);
  }
}

}  // namespace flce::bench
