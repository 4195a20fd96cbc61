// SPDX-License-Identifier: Apache-2.0
// Ours against the rivals in one process: `bench_rivals --help`.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

#include "flce/flce.hpp"
#include "measure.hpp"
#include "results.hpp"
#include "softmax.hpp"

namespace flce::bench {
namespace {

constexpr const char* kUsage =
    "usage: bench_rivals [OPTIONS]\n"
    "  --shape NxHxV[,NxHxV..]  default 512x256x8192\n"
    "  --dtype f32,bf16         default f32\n"
    "  --threads 1,2            default: those that the library takes\n"
    "  --systems A,B            of fused, naive, recompute, chunked, openblas, onednn; the first "
    "is\n"
    "                           the one that ratios refer to; default fused,naive,openblas,onednn\n"
    "  --onednn-isa ISA         ONEDNN_MAX_CPU_ISA of this process; the rival is onednn-<isa> "
    "then\n"
    "  --seconds S              aim for the rounds of a case (default 60), within\n"
    "  --rounds MIN[-MAX]       default 3-15\n"
    "  --together               all cases share the rounds (for how time grows)\n"
    "  --series NAME            first column of the CSV (default headline)\n"
    "  --csv FILE               write rows there, replacing those of the same key\n"
    "OPENBLAS_CORETYPE is unset, unless OpenBLAS does not know the processor.\n"
    "Exit code: 0 fine, 1 results disagree or a run failed, 2 usage.\n";

struct Arguments {
  std::vector<std::string> shapes = {"512x256x8192"};
  std::vector<std::string> dtypes = {"f32"};
  std::vector<std::string> threads;
  Settings settings;
  bool together = false;
  std::string series = "headline";
  std::string csv;
};

struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == separator) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

std::int64_t number(const std::string& text) {
  char* end = nullptr;
  const long long value = std::strtoll(text.c_str(), &end, 10);
  if (text.empty() || *end != '\0' || value < 1) {
    throw UsageError("'" + text + "' is no whole number above 0");
  }
  return value;
}

void set_option(Arguments& args, const std::string& name, const std::string& value) {
  if (name == "--shape") {
    args.shapes = split(value, ',');
  } else if (name == "--dtype") {
    args.dtypes = split(value, ',');
  } else if (name == "--threads") {
    args.threads = split(value, ',');
  } else if (name == "--systems") {
    args.settings.systems = split(value, ',');
  } else if (name == "--onednn-isa") {
    args.settings.onednn_isa = value;
  } else if (name == "--seconds") {
    args.settings.seconds = static_cast<double>(number(value));
  } else if (name == "--rounds") {
    const std::vector<std::string> range = split(value, '-');
    args.settings.min_rounds = static_cast<int>(number(range.front()));
    args.settings.max_rounds = static_cast<int>(number(range.back()));
  } else if (name == "--series") {
    args.series = value;
  } else if (name == "--csv") {
    args.csv = value;
  } else {
    throw UsageError("unknown option '" + name + "'");
  }
}

Arguments parse(int argc, char** argv) {
  Arguments args;
  args.settings.systems = {"fused", "naive", "openblas", "onednn"};
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--together") {
      args.together = true;
      continue;
    }
    if (i + 1 == argc) throw UsageError("'" + name + "' is no option, or lacks its value");
    set_option(args, name, argv[++i]);
  }
  return args;
}

std::vector<Case> cases_of(const Arguments& args) {
  std::vector<Case> cases;
  std::vector<std::string> threads = args.threads;
  if (threads.empty()) threads = {std::to_string(cpu_caps().num_threads)};
  for (const std::string& text : args.shapes) {
    const std::vector<std::string> sizes = split(text, 'x');
    if (sizes.size() != 3) throw UsageError("--shape '" + text + "': it is NxHxV");
    for (const std::string& dtype : args.dtypes) {
      for (const std::string& count : threads) {
        Case one;
        one.tokens = number(sizes[0]);
        one.hidden = number(sizes[1]);
        one.vocab = number(sizes[2]);
        one.dtype = dtype_of(dtype);
        one.threads = static_cast<int>(number(count));
        if (one.dtype != Dtype::kF32 && one.dtype != Dtype::kBF16) {
          throw UsageError("--dtype '" + dtype + "': f32 and bf16 are compared");
        }
        cases.push_back(one);
      }
    }
  }
  return cases;
}

// Before any rival is loaded: they read these once.
void set_environment(const Settings& settings) {
  if (std::getenv("OPENBLAS_CORETYPE") != nullptr) {
    std::fprintf(stderr, "note: OPENBLAS_CORETYPE was set and is unset here\n");
    ::unsetenv("OPENBLAS_CORETYPE");
  }
  // Idle threads of the rivals sleep after a moment instead of spinning beside the softmax pass.
  ::setenv("OPENBLAS_THREAD_TIMEOUT", "10", 0);
  ::setenv("GOMP_SPINCOUNT", "10000", 0);
  if (!settings.onednn_isa.empty()) {
    ::setenv("ONEDNN_MAX_CPU_ISA", settings.onednn_isa.c_str(), 1);
  }
}

void report(const Arguments& args, const std::vector<Row>& rows) {
  std::fputs(results_table(rows).c_str(), stdout);
  std::fflush(stdout);
  if (!args.csv.empty()) write_results(args.csv, args.series, rows);
}

int run(int argc, char** argv) {
  const Arguments args = parse(argc, argv);
  const std::vector<Case> cases = cases_of(args);
  set_environment(args.settings);
  std::vector<std::string> missing;
  std::printf("flce %s on %s; the rivals' softmax pass on %s\n", version(), cpu_isa(),
              softmax_table().isa);
  if (args.together) {
    report(args, measure(cases, args.settings, missing));
  } else {
    for (const Case& one : cases) report(args, measure({one}, args.settings, missing));
  }
  for (const std::string& text : missing) std::printf("missing: %s\n", text.c_str());
  return 0;
}

}  // namespace
}  // namespace flce::bench

int main(int argc, char** argv) {
  if (argc == 2 && (std::strcmp(argv[1], "--help") == 0 || std::strcmp(argv[1], "-h") == 0)) {
    std::fputs(flce::bench::kUsage, stdout);
    return 0;
  }
  try {
    return flce::bench::run(argc, argv);
  } catch (const flce::bench::UsageError& error) {
    std::fprintf(stderr, "bench_rivals: %s\n%s", error.what(), flce::bench::kUsage);
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_rivals: %s\n", error.what());
    return 1;
  }
}
