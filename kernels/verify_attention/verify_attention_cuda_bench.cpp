// verify_attention_cuda_bench [VERSION [GFLOP_MAX [HEADS [NODES [PREFIX]]]]]
//   VERSION: naive, portable, prefix_tail, hopper or automatic (default); shapes of more than
//   GFLOP_MAX are left out; 0 for all heads, nodes or prefixes of the table.
// One layer, batch 1, bf16, latent 512 + 64, pages of 64 in random order, a random tree. Cold: a
// graph of at least 61 calls, each on a cache of its own, 400 MB at least in all. Warm: the same
// graph on one cache. The plan is made once, as in a step; its own time stands in the last column.
// JSON, one object a line, to out/verify_attention.json.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/random.h"
#include "kernels/common/cuda/bench.h"
#include "kernels/common/cuda/device.h"
#include "kernels/common/cuda/device_memory.h"
#include "kernels/common/cuda/status.h"
#include "kernels/verify_attention/verify_attention_cuda.h"

namespace copse::kernels::cuda {
namespace {

constexpr int latent = 512;
constexpr int width = 576;
constexpr int calls_min = 61;
constexpr std::size_t cold_bytes = 400'000'000;

template <class T>
T must(Result<T> result) {
  if (result.ok()) return std::move(result).value();
  std::fprintf(stderr, "%s\n", describe(result.error()).c_str());
  std::exit(1);
}
void must(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", describe(status.error()).c_str());
  std::exit(1);
}

// Random values in (-1, 1), which repeat after 64 MB.
DeviceBuffer<Bf16> random_values(std::size_t count, std::uint64_t seed) {
  SeededRandom random(seed);
  std::vector<Bf16> block(std::min<std::size_t>(count, (32u << 20) + 8));
  for (Bf16& value : block) {
    const auto integer = static_cast<std::int64_t>(random.below(1 << 16)) - (1 << 15);
    value = to_bf16(static_cast<float>(integer) / (1 << 15));
  }
  auto buffer = must(DeviceBuffer<Bf16>::allocate(count));
  for (std::size_t at = 0; at < count; at += block.size()) {
    const std::size_t part = std::min(block.size(), count - at);
    must(at == 0 ? copy_to_device(buffer.data(), block.data(), part * sizeof(Bf16))
                 : cuda_status(cudaMemcpy(buffer.data() + at, buffer.data(), part * sizeof(Bf16),
                                          cudaMemcpyDeviceToDevice),
                               "cudaMemcpy"));
  }
  return buffer;
}

struct Shape {
  int heads, nodes, prefix;
};

double floor_us(const Shape& shape, double* bytes, double* flops) {
  const double tokens = shape.prefix + shape.nodes;
  const double queries = static_cast<double>(shape.heads) * shape.nodes;
  *bytes = 2 * (tokens * width + queries * (width + latent));
  *flops = 2 * queries * (width + latent) * tokens;
  return 1e6 * std::max(*bytes / bench::read_bytes_per_s, *flops / bench::bf16_flops_per_s);
}

// Memory for the largest shape; every call of a graph takes pages and queries of its own.
class Bench {
 public:
  Bench(const std::vector<Shape>& shapes, VerifyVersion version) : version_(version) {
    std::size_t pages = 0;
    std::size_t queries = 0;
    for (const Shape& shape : shapes) {
      pages = std::max(pages, calls(shape) * pages_of(shape));
      queries = std::max(queries, static_cast<std::size_t>(shape.heads * shape.nodes));
    }
    pages_ = random_values(pages * 64 * width, 1);
    scratch_ = random_values(scratch_rows * width * calls_min, 2);
    q_ = random_values(queries * width * calls_min, 3);
    out_ = must(DeviceBuffer<Bf16>::allocate(queries * latent * calls_min));
  }

  void run(const Shape& shape, const char* version, std::FILE* json) {
    prepare(shape);
    const int count = static_cast<int>(calls(shape));
    const double cold = time(count, true);
    const double warm = time(calls_min, false);
    const double plan = must(bench::graph_time_us(20, 1, 3, [&](int, Stream stream) {
      return verify_plan<Bf16>(call_.shape, call_.sequences, call_.workspace, stream);
    }));
    double bytes = 0;
    double flops = 0;
    const double floor = floor_us(shape, &bytes, &flops);
    std::printf("%5d %5d %7d %9.1f %9.1f %7.0f %7.0f %9.2f %6.0f %% %8.1f  %s\n", shape.heads,
                shape.nodes, shape.prefix, cold, warm, bytes / cold / 1e3, flops / cold / 1e6,
                floor, 100 * floor / cold, plan, version);
    std::fflush(stdout);
    if (json == nullptr) return;
    std::fprintf(json,
                 "{\"version\": \"%s\", \"heads\": %d, \"nodes\": %d, \"prefix\": %d, "
                 "\"cold_us\": %.2f, \"warm_us\": %.2f, \"floor_us\": %.3f, \"bytes\": %.0f, "
                 "\"flops\": %.0f, \"plan_us\": %.2f, \"calls\": %d}\n",
                 version, shape.heads, shape.nodes, shape.prefix, cold, warm, floor, bytes, flops,
                 plan, count);
  }

 private:
  static constexpr int scratch_rows = 513;

  static std::size_t pages_of(const Shape& shape) {
    return static_cast<std::size_t>((shape.prefix + 63) / 64);
  }
  static std::size_t calls(const Shape& shape) {
    const std::size_t bytes = pages_of(shape) * 64 * width * sizeof(Bf16);
    return std::max<std::size_t>(calls_min, (cold_bytes + bytes - 1) / bytes);
  }

  void prepare(const Shape& shape) {
    SeededRandom random(7);
    std::vector<PageId> table;
    for (std::size_t i = 0; i < pages_of(shape); ++i) table.push_back(static_cast<PageId>(i));
    for (std::size_t i = table.size(); i > 1; --i) std::swap(table[i - 1], table[random.below(i)]);
    const int words = (shape.nodes + 63) / 64;
    std::vector<std::uint64_t> masks(static_cast<std::size_t>(shape.nodes * words));
    for (int row = 0; row < shape.nodes; ++row) {
      std::uint64_t* mask = &masks[static_cast<std::size_t>(row * words)];
      const auto parent = row == 0 ? 0 : random.below(static_cast<std::uint64_t>(row));
      for (int w = 0; w < words && row > 0; ++w) {
        mask[w] = masks[static_cast<std::size_t>(parent) * static_cast<std::size_t>(words) +
                        static_cast<std::size_t>(w)];
      }
      mask[row / 64] |= 1ull << (row % 64);
    }
    table_ = must(DeviceBuffer<PageId>::from(table));
    masks_ = must(DeviceBuffer<std::uint64_t>::from(masks));
    const std::vector<VerifySequence> sequence = {
        {0, shape.nodes, shape.prefix, 0, table_.data(), masks_.data(), words}};
    sequences_ = must(DeviceBuffer<VerifySequence>::from(sequence));
    call_ = {};
    call_.shape = {shape.heads, latent, width - latent, scratch_rows, 1, shape.nodes, version_};
    call_.scale = 0.07f;
    call_.rows = shape.nodes;
    call_.pages_count = static_cast<int>(pages_of(shape));
    call_.slots = 1;
    call_.sequences = sequences_.data();
    workspace_ = must(DeviceBuffer<std::byte>::allocate(verify_workspace_bytes<Bf16>(call_.shape)));
    call_.workspace = workspace_.data();
    must(verify_plan<Bf16>(call_.shape, call_.sequences, call_.workspace, nullptr));
  }

  double time(int count, bool cold) {
    return must(bench::graph_time_us(count, 1, 3, [&](int i, Stream stream) {
      VerifyAttentionCall<Bf16> call = call_;
      const auto turn = static_cast<std::size_t>(cold ? i : 0);
      const auto ring = turn % calls_min;
      const auto queries = static_cast<std::size_t>(call.rows * call.shape.heads);
      call.pages = pages_.data() + turn * static_cast<std::size_t>(call.pages_count) * 64 * width;
      call.scratch = scratch_.data() + ring * scratch_rows * width;
      call.q = q_.data() + ring * queries * width;
      call.out = out_.data() + ring * queries * latent;
      return verify_attention(call, stream);
    }));
  }

  VerifyVersion version_;
  DeviceBuffer<Bf16> pages_, scratch_, q_, out_;
  DeviceBuffer<PageId> table_;
  DeviceBuffer<std::uint64_t> masks_;
  DeviceBuffer<VerifySequence> sequences_;
  DeviceBuffer<std::byte> workspace_;
  VerifyAttentionCall<Bf16> call_;
};

int run(const std::string& version_name, double gflop_max, int heads, int nodes, int prefix) {
  const std::vector<std::pair<std::string, VerifyVersion>> versions = {
      {"automatic", VerifyVersion::automatic},
      {"naive", VerifyVersion::naive},
      {"portable", VerifyVersion::portable},
      {"prefix_tail", VerifyVersion::prefix_tail},
      {"hopper", VerifyVersion::hopper}};
  const auto found = std::find_if(versions.begin(), versions.end(),
                                  [&](const auto& v) { return v.first == version_name; });
  if (found == versions.end()) {
    std::fprintf(stderr, "no version %s\n", version_name.c_str());
    return 2;
  }
  const DeviceInfo device = must(open_device(0));
  std::vector<Shape> shapes;
  for (const int h : {8, 16, 64}) {
    for (const int n : {1, 9, 17, 33, 64}) {
      for (const int p : {1024, 4096, 16384, 65536, 131072}) {
        const Shape shape = {h, n, p};
        double bytes = 0;
        double flops = 0;
        floor_us(shape, &bytes, &flops);
        if ((heads == 0 || heads == h) && (nodes == 0 || nodes == n) &&
            (prefix == 0 || prefix == p) && flops <= gflop_max * 1e9) {
          shapes.push_back(shape);
        }
      }
    }
  }
  if (shapes.empty()) return 0;
  std::printf(
      "%s, %s\nheads nodes  prefix   cold us   warm us    GB/s TFLOP/s  floor us of floor "
      "plan us  version\n",
      device.name.c_str(), version_name.c_str());
  std::FILE* json = std::fopen("out/verify_attention.json", "a");
  Bench bench(shapes, found->second);
  for (const Shape& shape : shapes) bench.run(shape, version_name.c_str(), json);
  if (json != nullptr) std::fclose(json);
  return 0;
}

}  // namespace
}  // namespace copse::kernels::cuda

int main(int argc, char** argv) {
  const auto number = [&](int i, double other) { return argc > i ? std::atof(argv[i]) : other; };
  return copse::kernels::cuda::run(argc > 1 ? argv[1] : "automatic", number(2, 1e9),
                                   static_cast<int>(number(3, 0)), static_cast<int>(number(4, 0)),
                                   static_cast<int>(number(5, 0)));
}
