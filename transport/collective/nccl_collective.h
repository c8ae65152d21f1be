#pragma once
// The device collective over NCCL: one process a rank, a GPU each, or all on one (share_gpu).
//
// Order of a rank's calls: set_nccl_environment, then on rank 0 make_nccl_id, whose bytes somebody
// carries to the other ranks, then join_nccl on all ranks.
//
// Sums run round one ring: each element is added in the ring's order, by the rank whose turn it is,
// and the sum is then copied, so every rank ends with the same bits, and the same count gives the
// same bits on every run of one machine. Bf16 is rounded at every hop.
//
// Where this build has no NCCL, make_nccl_id and join_nccl return Error{unsupported}.
#include <array>
#include <cstddef>
#include <memory>

#include "base/clock.h"
#include "transport/collective/device_collective.h"

namespace copse {

using NcclId = std::array<std::byte, 128>;  // where rank 0 listens, and a secret

// Settles, by environment variables, what NCCL would otherwise choose: before any other NCCL call
// of this process and while it has one thread. A variable that is set already is kept.
//   NCCL_ALGO=Ring         one order of summation for every size; trees and switches have others
//   NCCL_NVLS_ENABLE=0     no multicast: sums in the switch have an order of their own
//   NCCL_SOCKET_IFNAME=lo  ranks of one host; nothing listens beyond it
// share_gpu: ranks of one GPU, which NCCL refuses unless each says that it is a host of its own
// (NCCL_HOSTID); they then meet over sockets. For tests: 2 ranks take milliseconds a call, 8 ranks
// about a hundred.
void set_nccl_environment(int rank, bool share_gpu);

// Errors: io, unsupported.
Result<NcclId> make_nccl_id();

struct NcclJoin {
  int rank = 0;
  int world_size = 1;
  NcclId id = {};
  // Of joining, and of what one call may wait on the host for its peers' set-up.
  Duration timeout = milliseconds(60'000);
};

// On the thread whose current device is the rank's GPU. Waits for all ranks, and runs one call of
// each kind, so that later calls allocate nothing. Errors: deadline, io, unsupported.
//
// Before the collective is destroyed its stream must be idle, and graphs that hold its calls
// destroyed: NCCL waits for them.
Result<std::unique_ptr<DeviceCollective>> join_nccl(const NcclJoin& join);

}  // namespace copse
