# SPDX-License-Identifier: Apache-2.0
"""The benchmark of peers: `children` and `command_line` are the parent's, `child` the child's."""
