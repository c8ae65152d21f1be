#pragma once
// The group's collective with the calling thread's CPU time inside it counted, so that a step can
// tell computing from communicating: on few cores a rank that waits may burn the others' time.
#include <ctime>

#include "transport/collective/collective.h"

namespace copse {

// CPU time of the calling thread, nanoseconds.
inline std::int64_t thread_cpu_ns() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<std::int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

class MeteredCollective final : public Collective {
 public:
  explicit MeteredCollective(Collective& inner) : inner_(inner) {}

  std::int64_t cpu_ns() const { return cpu_ns_; }

  int rank() const override { return inner_.rank(); }
  int world_size() const override { return inner_.world_size(); }
  Status all_reduce_sum(std::span<float> values) override {
    return metered([&] { return inner_.all_reduce_sum(values); });
  }
  Status all_reduce_sum(std::span<Bf16> values) override {
    return metered([&] { return inner_.all_reduce_sum(values); });
  }
  Status all_reduce_sum(std::span<std::uint64_t> values) override {
    return metered([&] { return inner_.all_reduce_sum(values); });
  }
  Status all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    return metered([&] { return inner_.all_gather(mine, all); });
  }
  Status broadcast(std::span<std::byte> values, int root) override {
    return metered([&] { return inner_.broadcast(values, root); });
  }
  Status barrier() override {
    return metered([&] { return inner_.barrier(); });
  }
  void abort() noexcept override { inner_.abort(); }
  CollectiveStats stats() const override { return inner_.stats(); }

 private:
  template <class Call>
  Status metered(const Call& call) {
    const std::int64_t before = thread_cpu_ns();
    Status status = call();
    cpu_ns_ += thread_cpu_ns() - before;
    return status;
  }
  Collective& inner_;
  std::int64_t cpu_ns_ = 0;
};

}  // namespace copse
