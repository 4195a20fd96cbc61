# SPDX-License-Identifier: Apache-2.0
# Threads and memory: how many CPUs there are, whole operations beside each other, the workspace.
flce_room_test(quota san)
flce_room_test(workspace san)
flce_room_test(threads_run tsan flce_test_support)
flce_room_test(thread_count san)
