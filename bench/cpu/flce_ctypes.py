# SPDX-License-Identifier: Apache-2.0
"""The C ABI of libflce (include/flce/flce.h) for the benchmark, on memory given by address."""

import ctypes
from ctypes import c_char_p, c_double, c_int32, c_int64, c_uint32, c_uint64, c_void_p

F32, BF16, I64 = 2, 3, 5
FUSED = 3


class Matrix(ctypes.Structure):
    _fields_ = [
        ("data", c_void_p),
        ("rows", c_int64),
        ("cols", c_int64),
        ("row_stride", c_int64),
        ("col_stride", c_int64),
        ("dtype", c_int32),
        ("reserved", c_int32),
    ]


class Vector(ctypes.Structure):
    _fields_ = [
        ("data", c_void_p),
        ("size", c_int64),
        ("stride", c_int64),
        ("dtype", c_int32),
        ("reserved", c_int32),
    ]


class Args(ctypes.Structure):
    _fields_ = (
        [
            ("struct_size", c_uint64),
            ("abi_major", c_uint32),
            ("abi_minor", c_uint32),
            ("hidden", Matrix),
            ("weight", Matrix),
        ]
        + [
            (name, Vector)
            for name in (
                "target",
                "bias",
                "class_weight",
                "token_weight",
                "temperature",
                "normalizer",
                "grad_output",
                "grad_entropy",
                "loss",
                "lse",
                "logprob",
                "entropy",
                "z_loss",
                "argmax",
                "num_correct",
                "num_valid",
            )
        ]
        + [
            ("topk_logprob", Matrix),
            ("topk_index", Matrix),
            ("grad_hidden", Matrix),
            ("grad_weight", Matrix),
            ("grad_bias", Vector),
            ("ignore_index", c_int64),
        ]
        + [
            (name, c_double)
            for name in (
                "label_smoothing",
                "z_loss_weight",
                "softcap",
                "scale",
                "temperature_value",
                "normalizer_value",
            )
        ]
        + [("shift", c_int64), ("sequence_length", c_int64)]
        + [
            (name, c_int32)
            for name in (
                "reduction",
                "pass_",
                "has_normalizer_value",
                "accumulate_grad_weight",
                "accumulate_grad_bias",
                "device",
            )
        ]
    )


class PlanRequest(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_uint64),
        ("budget_bytes", c_uint64),
        ("chunk", c_int64),
        ("method", c_int32),
        ("policy", c_int32),
        ("num_threads", c_int32),
        ("reserved", c_int32),
    ]


class Plan(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_uint64),
        ("workspace_bytes", c_uint64),
        ("saved_bytes", c_uint64),
        ("extra_bytes", c_uint64),
        ("input_bytes", c_uint64),
        ("output_bytes", c_uint64),
        ("peak_bytes", c_uint64),
        ("chunk", c_int64),
        ("num_chunks", c_int64),
        ("seconds", c_double),
        ("method", c_int32),
        ("gemms", c_int32),
        ("num_threads", c_int32),
        ("reserved", c_int32),
    ]


class Library:
    def __init__(self, path):
        self.lib = ctypes.CDLL(path)
        self.lib.flce_version.restype = c_char_p
        self.lib.flce_last_error.restype = c_char_p
        # C++ functions of flce.hpp and calibrate.hpp, by their Itanium names.
        self.lib._ZN4flce7cpu_isaEv.restype = c_char_p
        self.lib._ZN4flce20measure_matmul_flopsENS_5DtypeEi.restype = c_double

    def version(self):
        return self.lib.flce_version().decode()

    def isa(self):
        return self.lib._ZN4flce7cpu_isaEv().decode()

    def peak_flops(self, dtype, threads):
        return self.lib._ZN4flce20measure_matmul_flopsENS_5DtypeEi(c_int32(dtype), c_int32(threads))

    def check(self, status):
        if status != 0:
            raise RuntimeError(self.lib.flce_last_error().decode())


class Fused:
    """One planned problem; `tensors` maps names to (address, rows, cols, dtype)."""

    def __init__(self, library, tensors, threads):
        self.library, lib = library, library.lib
        self.args, self.plan, request = Args(), Plan(), PlanRequest()
        library.check(lib.flce_args_init(ctypes.byref(self.args), c_uint64(ctypes.sizeof(Args))))
        library.check(
            lib.flce_plan_request_init(ctypes.byref(request), c_uint64(ctypes.sizeof(PlanRequest)))
        )
        for name, (address, rows, cols, dtype) in tensors.items():
            view = (
                Vector(address, rows, 1, dtype, 0)
                if cols is None
                else Matrix(address, rows, cols, cols, 1, dtype, 0)
            )
            setattr(self.args, name, view)
        request.method, request.num_threads = FUSED, threads
        self.plan.struct_size = ctypes.sizeof(Plan)
        library.check(
            lib.flce_make_plan(
                ctypes.byref(self.args), ctypes.byref(request), ctypes.byref(self.plan)
            )
        )
        self.memory = ctypes.create_string_buffer(self.plan.workspace_bytes + 64)
        self.workspace = (ctypes.addressof(self.memory) + 63) // 64 * 64

    def run(self):
        self.library.check(
            self.library.lib.flce_run(
                ctypes.byref(self.args),
                ctypes.byref(self.plan),
                c_void_p(self.workspace),
                c_uint64(self.plan.workspace_bytes),
            )
        )
