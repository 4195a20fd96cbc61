// SPDX-License-Identifier: Apache-2.0
// numpy's .npy files, versions 1.0, 2.0 and 3.0: one dense little-endian array in C order.
//
// numpy has no name for bfloat16: it saves such an array as '<V2', two raw bytes. The reader takes
// these bytes for bfloat16 only when the caller says so; the writer writes '<V2'.
#pragma once

#include <span>
#include <string>

#include "io/bytes.hpp"
#include "io/tensor.hpp"

namespace flce::io {

enum class RawPairs { kRefuse, kAreBf16 };  // what an array of '<V2' means

// The tensor is a view into `file` and shares its owner; it is a copy only where the bytes are not
// aligned to the element size. Its name is the file's name without folder and extension.
// Throws Error{kInvalidArgument} for anything but one whole array of a known type.
LoadedTensor parse_npy(const Bytes& file, RawPairs raw_pairs = RawPairs::kRefuse);
LoadedTensor read_npy(const std::string& path, RawPairs raw_pairs = RawPairs::kRefuse);

// Writes a version 1.0 file; see atomic_file.hpp for what "atomic" means.
void write_npy(const std::string& path, const TensorView& tensor);

// Writes each tensor to FOLDER/NAME.npy. The folder is made if it is missing (its parent is not).
// Every file is complete under a temporary name before the first one gets its own.
void write_npy_folder(const std::string& folder, std::span<const TensorView> tensors);

// Magic, version and header of a file of this type and shape: everything before the data.
std::string npy_header(const TensorView& tensor);

}  // namespace flce::io
