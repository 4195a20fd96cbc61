# SPDX-License-Identifier: Apache-2.0
# Toolchain file: AArch64 on an x86-64 Debian, programs run by qemu. `./dev cross` uses it.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L /usr/aarch64-linux-gnu)
# fmt is headers alone to us, and those of the host serve any processor (cmake/fmt.cmake).
file(GLOB fmt_DIR /usr/lib/*-linux-gnu/cmake/fmt)
