// SPDX-License-Identifier: Apache-2.0
// A main for the fuzz targets that needs no libFuzzer: runs the target on each file and on each
// file of each folder named, in the order of their names. Crashes where the target does.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "fuzz_common.hpp"

namespace fs = std::filesystem;

namespace {

std::vector<fs::path> files_of(const fs::path& path) {
  if (!fs::is_directory(path)) return {path};
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(path)) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

void replay(const fs::path& path) {
  std::printf("%s\n", path.c_str());
  std::fflush(stdout);
  std::ifstream stream(path, std::ios::binary);
  const std::vector<char> content{std::istreambuf_iterator<char>(stream), {}};
  flce::fuzz::demand(stream.good() || stream.eof(), "the corpus file can be read");
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(content.data()), content.size());
}

}  // namespace

int main(int argc, char** argv) {
  std::size_t count = 0;
  for (int i = 1; i < argc; ++i) {
    for (const fs::path& file : files_of(argv[i])) {
      replay(file);
      ++count;
    }
  }
  std::printf("%zu files replayed\n", count);
  if (count == 0) std::fprintf(stderr, "usage: %s FILE_OR_FOLDER...\n", argv[0]);
  return count == 0 ? 2 : 0;
}
