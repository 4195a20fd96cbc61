// SPDX-License-Identifier: Apache-2.0
// Files that numpy and safetensors themselves wrote and read, where python3 has them.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "io/npy.hpp"
#include "io/safetensors.hpp"
#include "test_io_support.hpp"

namespace flce::io {
namespace {

class IoPython : public WithFolder {
 protected:
  // Whether a python3 in PATH runs `script` in the test's folder without an error.
  bool python(const std::string& script) const {
    put("script.py", script);
    const std::string command = "cd '" + folder_ + "' && python3 script.py >log 2>&1";
    return std::system(command.c_str()) == 0;
  }
  std::string log() const { return content_of(path("log")); }
};

TEST_F(IoPython, ReadsWhatNumpyWrites) {
  if (!python("import numpy")) GTEST_SKIP() << "python3 has no numpy";
  ASSERT_TRUE(python(R"(
import numpy as np
for name in ['f8', 'f4', 'f2', 'i8', 'i4']:
    np.save(name, np.arange(6).reshape(2, 3).astype('<' + name))
    np.save(name + '_scalar', np.array(7).astype('<' + name))
    np.save(name + '_empty', np.zeros((0, 3)).astype('<' + name))
    np.save(name + '_big', np.arange(6).astype('>' + name))
    np.save(name + '_fortran', np.asfortranarray(np.arange(6).reshape(2, 3).astype('<' + name)))
np.lib.format.write_array(open('v2.npy', 'wb'), np.arange(3, dtype='<f4'), version=(2, 0))
np.lib.format.write_array(open('v3.npy', 'wb'), np.arange(3, dtype='<f4'), version=(3, 0))
np.save('pairs', np.array([1, 2], '<u2').view('V2'))
)")) << log();
  const std::pair<const char*, Dtype> types[] = {{"f8", Dtype::kF64},
                                                 {"f4", Dtype::kF32},
                                                 {"f2", Dtype::kF16},
                                                 {"i8", Dtype::kI64},
                                                 {"i4", Dtype::kI32}};
  for (const auto& [name, dtype] : types) {
    const std::string stem = path(name);
    const LoadedTensor tensor = read_npy(stem + ".npy");
    EXPECT_EQ(tensor.view.dtype, dtype);
    EXPECT_EQ(tensor.view.shape, (Shape{2, 3}));
    EXPECT_EQ(read_npy(stem + "_scalar.npy").view.shape, Shape{});
    EXPECT_EQ(read_npy(stem + "_empty.npy").view.shape, (Shape{0, 3}));
    expect_contains(error_of([&] { read_npy(stem + "_big.npy"); }), "is big-endian");
    expect_contains(error_of([&] { read_npy(stem + "_fortran.npy"); }), "Fortran order");
  }
  const std::string floats = raw<float>({0, 1, 2});
  EXPECT_EQ(as_text(read_npy(path("v2.npy")).view.bytes), floats);
  EXPECT_EQ(as_text(read_npy(path("v3.npy")).view.bytes), floats);
  EXPECT_EQ(as_text(read_npy(path("i8.npy")).view.bytes), raw<std::int64_t>({0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(read_npy(path("pairs.npy"), RawPairs::kAreBf16).view.dtype, Dtype::kBF16);
}

TEST_F(IoPython, NumpyReadsWhatWeWrite) {
  if (!python("import numpy")) GTEST_SKIP() << "python3 has no numpy";
  const std::string values = raw<double>({1.5, -2.0, 3.0, 0.25, 5.0, 6.0});
  Tensor matrix("matrix", Dtype::kF64, {2, 3});
  std::memcpy(matrix.data(), values.data(), values.size());
  const Tensor scalar("scalar", Dtype::kI32, {});
  const Tensor vector("vector", Dtype::kF16, {4});
  const Tensor pairs("pairs", Dtype::kBF16, {0, 2});
  write_npy_folder(
      folder_, std::vector<TensorView>{matrix.view(), scalar.view(), vector.view(), pairs.view()});
  EXPECT_TRUE(python(R"(
import numpy as np
matrix = np.load('matrix.npy')
assert matrix.dtype == np.float64 and (matrix == [[1.5, -2, 3], [0.25, 5, 6]]).all()
assert np.load('scalar.npy').dtype == np.int32 and np.load('scalar.npy').shape == ()
assert np.load('vector.npy').dtype == np.float16 and np.load('vector.npy').shape == (4,)
assert np.load('pairs.npy').dtype == np.dtype('V2') and np.load('pairs.npy').shape == (0, 2)
assert np.load('matrix.npy', mmap_mode='r').flags.aligned
)")) << log();
}

TEST_F(IoPython, SafetensorsGoBothWays) {
  if (!python("import numpy, safetensors.numpy")) GTEST_SKIP() << "python3 has no safetensors";
  ASSERT_TRUE(python(R"(
import numpy as np
from safetensors.numpy import save_file
save_file({'hidden': np.arange(6, dtype=np.float32).reshape(2, 3), 'flag': np.array([True]),
           'target': np.array([-100, 7]), 'empty': np.zeros((0, 3), np.float16),
           'odd': np.arange(3, dtype=np.uint8)}, 'theirs.safetensors', {'format': 'np'})
)")) << log();
  const Safetensors theirs = read_safetensors(path("theirs.safetensors"));
  EXPECT_EQ(theirs.entries().size(), 5u);
  EXPECT_EQ(theirs.metadata(), (Metadata{{"format", "np"}}));
  const LoadedTensor hidden = theirs.tensor("hidden");
  const LoadedTensor target = theirs.tensor("target");
  EXPECT_EQ(as_text(hidden.view.bytes), raw<float>({0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(as_text(target.view.bytes), raw<std::int64_t>({-100, 7}));

  write_safetensors(path("ours.safetensors"), std::vector{hidden.view, target.view},
                    {{"format", "np"}});
  EXPECT_TRUE(python(R"(
from safetensors import safe_open
with safe_open('ours.safetensors', 'np') as file:
    assert file.metadata() == {'format': 'np'}
    assert sorted(file.keys()) == ['hidden', 'target']
    assert (file.get_tensor('hidden') == [[0, 1, 2], [3, 4, 5]]).all()
    assert (file.get_tensor('target') == [-100, 7]).all()
)")) << log();
}

}  // namespace
}  // namespace flce::io
