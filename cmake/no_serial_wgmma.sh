#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A compiler launcher: runs nvcc, and fails where ptxas says C7510, that it has put the tensor
# cores' instructions of a kernel one after the other (wgmma serialised). Such a kernel is right and
# several times slower. For ptxas this is no warning but information, so no option of its own makes
# it an error.
said=$(mktemp) || exit 1
trap 'rm -f "$said"' EXIT
"$@" >"$said" 2>&1
status=$?
cat "$said" >&2
[ "$status" -eq 0 ] || exit "$status"
grep -q 'C7510' "$said" || exit 0
# The next build must not find the object.
object=''
for argument; do
  if [ "$object" = -o ]; then
    object=$argument
    break
  fi
  [ "$argument" != -o ] || object=-o
done
[ "$object" = -o ] || rm -f "$object"
echo "error: ptxas serialises wgmma in the kernel named above (C7510), which makes it several" \
  "times slower; its main loop may call no function (an assert is one: compile with NDEBUG) and" \
  "must have enough registers" >&2
exit 1
