// A build without NCCL says so when it is asked for.
#include "transport/collective/nccl_collective.h"

namespace copse {
namespace {

Error absent() {
  return {ErrorCode::unsupported, "collective", "this build has no NCCL: several GPUs need it"};
}

}  // namespace

void set_nccl_environment(int /*rank*/, bool /*share_gpu*/) {}

Result<NcclId> make_nccl_id() {
  return absent();
}

Result<std::unique_ptr<DeviceCollective>> join_nccl(const NcclJoin& /*join*/) {
  return absent();
}

}  // namespace copse
