#pragma once
// A collective that does nothing: one rank of a group, measured alone. What it computes is wrong,
// and what is measured lacks the collectives: both are said where the figures are printed.
#include "transport/collective/device_collective.h"

namespace copse {

class LeftOutCollective final : public DeviceCollective {
 public:
  LeftOutCollective(int rank, int world_size) : rank_(rank), world_size_(world_size) {}
  int rank() const override { return rank_; }
  int world_size() const override { return world_size_; }
  Status all_reduce_sum(float*, std::size_t, Stream) override { return {}; }
  Status all_reduce_sum(Bf16*, std::size_t, Stream) override { return {}; }
  Status all_reduce_sum(std::uint64_t*, std::size_t, Stream) override { return {}; }
  Status all_gather(const void*, void*, std::size_t, Stream) override { return {}; }
  Status status() override { return {}; }
  void abort() noexcept override {}

 private:
  int rank_;
  int world_size_;
};

}  // namespace copse
