# SPDX-License-Identifier: Apache-2.0
"""libflce for the benchmark, on memory given by address: the package's structs of the C ABI, the
planned call by itself, and two functions of the C++ interface.
"""

import ctypes
import sys
from ctypes import c_char_p, c_double, c_int32, c_uint64, c_void_p
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "bindings" / "python"))
from flce import _abi


class Library(_abi.Library):
    def __init__(self, path):
        super().__init__(Path(path))
        # C++ functions of flce.hpp and calibrate.hpp, by their Itanium names.
        self.functions._ZN4flce7cpu_isaEv.restype = c_char_p
        self.functions._ZN4flce20measure_matmul_flopsENS_5DtypeEi.restype = c_double

    def version(self):
        return self.functions.flce_version().decode()

    def isa(self):
        return self.functions._ZN4flce7cpu_isaEv().decode()

    def peak_flops(self, dtype, threads):
        return self.functions._ZN4flce20measure_matmul_flopsENS_5DtypeEi(
            c_int32(dtype), c_int32(threads)
        )


class Fused:
    """One planned problem; `tensors` maps names to (address, rows, cols, dtype)."""

    def __init__(self, library, tensors, threads):
        self.library, self.args = library, _abi.new_args(library)
        for name, (address, rows, cols, dtype) in tensors.items():
            view = (
                _abi.Vector(address, rows, 1, dtype, 0)
                if cols is None
                else _abi.Matrix(address, rows, cols, cols, 1, dtype, 0)
            )
            setattr(self.args, name, view)
        request = _abi.new_request(library)
        request.method, request.num_threads = _abi.METHODS["fused"], threads
        self.plan = _abi.make_plan(library, self.args, request)
        self.memory = ctypes.create_string_buffer(self.plan.workspace_bytes + 64)
        self.workspace = (ctypes.addressof(self.memory) + 63) // 64 * 64

    def run(self):
        self.library.check(
            self.library.functions.flce_run(
                ctypes.byref(self.args),
                ctypes.byref(self.plan),
                c_void_p(self.workspace),
                c_uint64(self.plan.workspace_bytes),
            )
        )
