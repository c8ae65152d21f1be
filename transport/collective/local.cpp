#include "transport/collective/local.h"

#include <atomic>
#include <cstring>

namespace copse {
namespace {

class LocalCollective final : public Collective {
 public:
  int rank() const override { return 0; }
  int world_size() const override { return 1; }

  Status all_reduce_sum(std::span<float> values) override { return count(values.size_bytes()); }
  Status all_reduce_sum(std::span<Bf16> values) override { return count(values.size_bytes()); }
  Status all_reduce_sum(std::span<std::uint64_t> values) override {
    return count(values.size_bytes());
  }
  Status all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    CHECK(all.size() == mine.size());
    COPSE_RETURN_IF_ERROR(count(mine.size()));
    if (!mine.empty()) std::memmove(all.data(), mine.data(), mine.size());
    return {};
  }
  Status broadcast(std::span<std::byte> values, int root) override {
    CHECK(root == 0);
    return count(values.size());
  }
  Status barrier() override { return count(0); }

  void abort() noexcept override { aborted_.store(true, std::memory_order_relaxed); }
  CollectiveStats stats() const override { return stats_; }

 private:
  Status count(std::size_t bytes) {
    if (aborted_.load(std::memory_order_relaxed)) {
      return Error{ErrorCode::aborted, "collective", "the group was aborted"};
    }
    ++stats_.calls;
    stats_.bytes += bytes;
    return {};
  }

  std::atomic<bool> aborted_{false};
  CollectiveStats stats_;
};

}  // namespace

std::unique_ptr<Collective> make_local_collective() {
  return std::make_unique<LocalCollective>();
}

}  // namespace copse
