// The real NCCL between processes that share one GPU: what the sums are, and that nobody waits for
// ever. How fast it is cannot be seen here.
#include "transport/collective/nccl_collective.h"

#include <gtest/gtest.h>

#include <chrono>

#include "base/random.h"
#include "transport/collective/device_collective_local.h"
#include "transport/collective/gpu_ranks_for_test.h"

namespace copse {
namespace {

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Says what did not hold, since a forked rank cannot use the test's own assertions.
#define RANK_EXPECT(condition)                                                         \
  do {                                                                                 \
    if (!(condition)) {                                                                \
      std::fprintf(stderr, "rank %d: line %d: %s\n", self.collective.rank(), __LINE__, \
                   #condition);                                                        \
      return false;                                                                    \
    }                                                                                  \
  } while (false)

template <class T>
struct DeviceArray {
  explicit DeviceArray(const std::vector<T>& values) : size(values.size()) {
    void* memory = nullptr;
    CHECK(cudaMalloc(&memory, size * sizeof(T)) == cudaSuccess);
    data = static_cast<T*>(memory);
    CHECK(cudaMemcpy(data, values.data(), size * sizeof(T), cudaMemcpyHostToDevice) == cudaSuccess);
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
  }
  ~DeviceArray() { cudaFree(data); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  std::vector<T> read() const {
    std::vector<T> values(size);
    CHECK(cudaMemcpy(values.data(), data, size * sizeof(T), cudaMemcpyDeviceToHost) == cudaSuccess);
    return values;
  }
  T* data = nullptr;
  std::size_t size;
};

template <class T>
T number(int value) {
  if constexpr (std::is_same_v<T, Bf16>) {
    return to_bf16(static_cast<float>(value));
  } else {
    return static_cast<T>(value);
  }
}
template <class T>
bool same(T a, T b) {
  if constexpr (std::is_same_v<T, Bf16>) {
    return a.bits == b.bits;
  } else {
    return a == b;
  }
}

// Small whole numbers: every order of adding them is exact in every type.
template <class T>
bool sums_exactly(GpuRank& self, std::size_t count) {
  const int ranks = self.collective.world_size();
  std::vector<T> mine;
  std::vector<T> sum;
  for (std::size_t i = 0; i < count; ++i) {
    const int step = static_cast<int>(i % 7);
    mine.push_back(number<T>(self.collective.rank() + step));
    sum.push_back(number<T>(ranks * (ranks - 1) / 2 + ranks * step));
  }
  const DeviceArray<T> values(mine);
  RANK_EXPECT(self.collective.all_reduce_sum(values.data, count, self.stream).ok());
  RANK_EXPECT(cudaStreamSynchronize(self.stream) == cudaSuccess);
  const std::vector<T> result = values.read();
  for (std::size_t i = 0; i < count; ++i) RANK_EXPECT(same(result[i], sum[i]));
  return true;
}

// Numbers whose sum depends on the order: every rank must end with the same bits.
bool sums_alike(GpuRank& self) {
  SeededRandom random(static_cast<std::uint64_t>(self.collective.rank()));
  std::vector<float> mine(7168);
  for (float& value : mine) value = static_cast<float>(random.below(1 << 24)) * 1e-3f;
  const DeviceArray<float> values(mine);
  RANK_EXPECT(self.collective.all_reduce_sum(values.data, mine.size(), self.stream).ok());
  RANK_EXPECT(cudaStreamSynchronize(self.stream) == cudaSuccess);
  std::uint64_t digest = 0;
  for (const float value : values.read()) {
    digest = digest * 0x9e3779b97f4a7c15u + std::bit_cast<std::uint32_t>(value);
  }
  self.meeting.digest[self.collective.rank()] = digest;
  return true;
}

bool gathers(GpuRank& self, bool in_place) {
  const int rank = self.collective.rank();
  const auto ranks = static_cast<std::size_t>(self.collective.world_size());
  constexpr std::size_t count = 100;
  std::vector<std::uint64_t> mine(count);
  for (std::size_t i = 0; i < count; ++i) mine[i] = static_cast<std::uint64_t>(rank) * 1000 + i;
  std::vector<std::uint64_t> before(ranks * count, ~std::uint64_t{0});
  std::copy(mine.begin(), mine.end(), before.begin() + rank * static_cast<int>(count));
  const DeviceArray<std::uint64_t> from(mine);
  const DeviceArray<std::uint64_t> all(in_place ? before
                                                : std::vector<std::uint64_t>(ranks * count, 0));
  const void* source = in_place ? all.data + static_cast<std::size_t>(rank) * count : from.data;
  RANK_EXPECT(self.collective.all_gather(source, all.data, count * 8, self.stream).ok());
  RANK_EXPECT(cudaStreamSynchronize(self.stream) == cudaSuccess);
  const std::vector<std::uint64_t> result = all.read();
  for (std::size_t i = 0; i < result.size(); ++i) {
    RANK_EXPECT(result[i] == i / count * 1000 + i % count);
  }
  return true;
}

struct Graph {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  ~Graph() {
    if (exec != nullptr) cudaGraphExecDestroy(exec);
    if (graph != nullptr) cudaGraphDestroy(graph);
  }
};

// `calls` all-reduces of `values`, one after the other.
bool capture(GpuRank& self, const DeviceArray<float>& values, int calls, Graph& graph) {
  RANK_EXPECT(cudaStreamBeginCapture(self.stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
  Status status;
  for (int i = 0; i < calls && status.ok(); ++i) {
    status = self.collective.all_reduce_sum(values.data, values.size, self.stream);
  }
  RANK_EXPECT(cudaStreamEndCapture(self.stream, &graph.graph) == cudaSuccess);
  if (!status.ok()) return fail(self.collective.rank(), status.error());
  RANK_EXPECT(cudaGraphInstantiate(&graph.exec, graph.graph, 0) == cudaSuccess);
  return true;
}

// Each call multiplies by the number of ranks, once all have the same.
bool replays(GpuRank& self, int count) {
  const DeviceArray<float> values(std::vector<float>(500, 1.0f));
  Graph graph;
  if (!capture(self, values, 2, graph)) return false;
  float expected = 1;
  for (int i = 0; i < count; ++i) {
    RANK_EXPECT(cudaGraphLaunch(graph.exec, self.stream) == cudaSuccess);
    expected *= static_cast<float>(self.collective.world_size() * self.collective.world_size());
  }
  RANK_EXPECT(cudaStreamSynchronize(self.stream) == cudaSuccess);
  for (const float value : values.read()) RANK_EXPECT(value == expected);
  RANK_EXPECT(self.collective.status().ok());
  return true;
}

// Rank 0 waits for a peer that never calls, and another thread ends that. `launch` starts the wait.
bool is_freed(GpuRank& self, const std::function<bool()>& launch) {
  if (!launch()) return false;
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  RANK_EXPECT(cudaStreamQuery(self.stream) == cudaErrorNotReady);
  const auto begin = std::chrono::steady_clock::now();
  std::thread watchdog([&] { self.collective.abort(); });
  RANK_EXPECT(cudaStreamSynchronize(self.stream) == cudaSuccess);
  watchdog.join();
  std::fprintf(stderr, "freed after %.3f s\n", seconds_since(begin));
  RANK_EXPECT(seconds_since(begin) < 5.0);
  RANK_EXPECT(self.collective.status().error().code == ErrorCode::aborted);
  RANK_EXPECT(!self.collective.all_gather(nullptr, nullptr, 0, self.stream).ok());
  self.collective.abort();  // once more does nothing
  return true;
}

class NcclCollectiveTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!gpu_here()) GTEST_SKIP() << "there is no GPU here";
  }
};

TEST_F(NcclCollectiveTest, TwoRanksSumGatherAndReplay) {
  GpuRanks ranks;
  EXPECT_TRUE(ranks.run(2, [](GpuRank& self) {
    bool good = true;
    for (const std::size_t count : {1u, 1000u, 300001u}) {
      good = good && sums_exactly<float>(self, count) && sums_exactly<Bf16>(self, count) &&
             sums_exactly<std::uint64_t>(self, count);
    }
    return good && sums_alike(self) && gathers(self, false) && gathers(self, true) &&
           replays(self, 3);
  }));
  EXPECT_EQ(ranks.meeting().digest[0], ranks.meeting().digest[1]);
  EXPECT_NE(ranks.meeting().digest[0], 0u);
}

TEST_F(NcclCollectiveTest, EightRanksSumGatherAndReplay) {
  GpuRanks ranks;
  EXPECT_TRUE(ranks.run(8, [](GpuRank& self) {
    return sums_exactly<float>(self, 7168) && sums_exactly<std::uint64_t>(self, 33) &&
           sums_alike(self) && gathers(self, false) && replays(self, 2);
  }));
  for (int r = 1; r < 8; ++r) EXPECT_EQ(ranks.meeting().digest[0], ranks.meeting().digest[r]);
}

TEST_F(NcclCollectiveTest, AnotherThreadEndsAStuckCall) {
  GpuRanks ranks;
  EXPECT_TRUE(ranks.run(2, [](GpuRank& self) {
    if (self.collective.rank() == 1) {
      self.meeting.wait_for_stage(1);
      self.collective.abort();
      return true;
    }
    const DeviceArray<float> values(std::vector<float>(100, 1.0f));
    const bool good = is_freed(self, [&] {
      return self.collective.all_reduce_sum(values.data, values.size, self.stream).ok();
    });
    self.meeting.stage.store(1);
    return good;
  }));
}

TEST_F(NcclCollectiveTest, AnotherThreadEndsAStuckGraph) {
  GpuRanks ranks;
  EXPECT_TRUE(ranks.run(2, [](GpuRank& self) {
    const DeviceArray<float> values(std::vector<float>(100, 1.0f));
    Graph graph;
    if (!capture(self, values, 3, graph)) return false;
    if (self.collective.rank() == 1) {
      self.meeting.wait_for_stage(1);
      self.collective.abort();
      return true;
    }
    const bool good =
        is_freed(self, [&] { return cudaGraphLaunch(graph.exec, self.stream) == cudaSuccess; });
    self.meeting.stage.store(1);
    return good;
  }));
}

TEST_F(NcclCollectiveTest, ARankAloneDoesNotWaitForEver) {
  GpuRanks ranks;
  const auto begin = std::chrono::steady_clock::now();
  const pid_t pid = fork();
  if (pid == 0) {
    set_nccl_environment(0, true);
    if (cudaSetDevice(0) != cudaSuccess) _exit(2);
    const Result<NcclId> id = make_nccl_id();
    if (!id.ok()) _exit(3);
    const auto joined =
        join_nccl({.rank = 0, .world_size = 2, .id = *id, .timeout = milliseconds(2000)});
    _exit(!joined.ok() && joined.error().code == ErrorCode::deadline ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_LT(seconds_since(begin), 15.0);
}

TEST_F(NcclCollectiveTest, OneRankNeedsNoNccl) {
  const pid_t pid = fork();
  if (pid == 0) {
    Meeting meeting;
    const auto local = make_local_device_collective();
    cudaStream_t stream = nullptr;
    if (cudaStreamCreate(&stream) != cudaSuccess) _exit(2);
    GpuRank self{meeting, *local, stream};
    const bool good = sums_exactly<float>(self, 10) && gathers(self, false) &&
                      gathers(self, true) && replays(self, 2);
    local->abort();
    _exit(good && !local->status().ok() &&
                  !local->all_reduce_sum(static_cast<float*>(nullptr), 0, stream).ok()
              ? 0
              : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

}  // namespace
}  // namespace copse
