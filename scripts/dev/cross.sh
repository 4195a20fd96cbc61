# SPDX-License-Identifier: Apache-2.0
# Sourced by ./dev: `cross` compiles the library for AArch64, where the portable tiles (16-byte
# vectors) serve, and runs tests/cross/self_check.cpp on them under qemu.

cross() {
  setup cross
  step "configure aarch64" configure aarch64
  step "compile aarch64" compile aarch64 bin/self_check
  step "self_check under qemu" run_ctest aarch64
}
