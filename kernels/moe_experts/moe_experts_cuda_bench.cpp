// Times of one layer's experts with cold weights, against the bytes of the experts that were
// touched at what one H200 reads. Routing is uniform and independent. Prints a table and writes
// out/moe_experts.json.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <set>
#include <vector>

#include "kernels/common/cuda/bench.h"
#include "kernels/common/cuda/device.h"
#include "kernels/common/cuda/device_memory.h"
#include "kernels/moe_experts/moe_experts_cuda.h"
#include "kernels/moe_experts/packed_linear.h"

namespace copse::kernels::cuda {
namespace {

constexpr int layers = 2;  // in turn; each is larger than any cache
constexpr int calls = 16;  // of one graph, each with routing of its own

struct Model {
  const char* name;
  ExpertShape shape;
  int experts_per_token;
};
constexpr Model models[] = {
    {"Kimi-K2.6 / 8, int4", {7168, 256, 384, 0, ExpertCodec::int4_group}, 8},
    {"DeepSeek-V3 / 8, fp8", {7168, 256, 256, 0, ExpertCodec::fp8_block}, 8},
    {"DeepSeek-V2-Lite, bf16", {2048, 1408, 64, 0, ExpertCodec::bf16}, 6}};

struct Routing {
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
  double touched = 0;  // experts a call, on average
};

Routing make_routing(int rows, const Model& model, std::mt19937& random) {
  Routing routing;
  for (int call = 0; call < calls; ++call) {
    std::set<int> touched;
    for (int row = 0; row < rows; ++row) {
      std::set<int> chosen;
      while (static_cast<int>(chosen.size()) < model.experts_per_token) {
        chosen.insert(static_cast<int>(random() % static_cast<unsigned>(model.shape.experts)));
      }
      for (const int id : chosen) {
        routing.ids.push_back(id);
        routing.weights.push_back(1.0f / static_cast<float>(model.experts_per_token));
        touched.insert(id);
      }
    }
    routing.touched += static_cast<double>(touched.size()) / calls;
  }
  return routing;
}

Result<DeviceBuffer<Bf16>> make_x(std::size_t count, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<Bf16> x(count);
  for (Bf16& value : x) value = to_bf16(normal(random));
  return DeviceBuffer<Bf16>::from(std::span<const Bf16>(x));
}

Result<double> time_experts(const Model& model, int rows, const Routing& routing,
                            const DeviceBuffer<std::byte>& weights, const DeviceBuffer<Bf16>& x) {
  COPSE_TRY(const auto ids, DeviceBuffer<std::int32_t>::from(routing.ids));
  COPSE_TRY(const auto factors, DeviceBuffer<float>::from(routing.weights));
  const std::size_t outputs =
      static_cast<std::size_t>(rows) * static_cast<std::size_t>(model.shape.hidden);
  COPSE_TRY(const auto y, DeviceBuffer<float>::allocate(outputs));
  const std::size_t bytes = moe_experts_workspace_bytes(model.shape, rows, model.experts_per_token);
  COPSE_TRY(const auto workspace, DeviceBuffer<std::byte>::allocate(bytes));
  const std::vector<std::byte> zeros(moe_experts_state_bytes());
  COPSE_RETURN_IF_ERROR(copy_to_device(workspace.data(), zeros.data(), zeros.size()));
  return bench::graph_time_us(calls, 2, 5, [&](int i, Stream stream) {
    const int pairs = rows * model.experts_per_token;
    return moe_experts<Bf16>({.x = x.data(),
                              .ids = ids.data() + i * pairs,
                              .weights = factors.data() + i * pairs,
                              .rows = rows,
                              .experts_per_token = model.experts_per_token,
                              .shape = model.shape,
                              .packed = weights.data() + static_cast<std::size_t>(i % layers) *
                                                             model.shape.layer_bytes(),
                              .y = y.data(),
                              .workspace = workspace.data(),
                              .workspace_bytes = bytes},
                             stream);
  });
}

Status bench_model(const Model& model, std::FILE* json) {
  std::mt19937 random(1);
  COPSE_TRY(const auto weights,
            DeviceBuffer<std::byte>::allocate(layers * model.shape.layer_bytes()));
  for (int i = 0; i < layers; ++i) {
    COPSE_RETURN_IF_ERROR(random_experts(
        model.shape, static_cast<std::uint64_t>(i),
        weights.data() + static_cast<std::size_t>(i) * model.shape.layer_bytes(), nullptr));
  }
  std::printf("%s\n  rows  experts      us   floor  GB/s  %% of floor\n", model.name);
  for (const int rows : {1, 9, 17, 33, 65, 129, 256, 512, 1024}) {
    const Routing routing = make_routing(rows, model, random);
    COPSE_TRY(const auto x,
              make_x(static_cast<std::size_t>(rows) * static_cast<std::size_t>(model.shape.hidden),
                     random));
    COPSE_TRY(const double us, time_experts(model, rows, routing, weights, x));
    const double touched_bytes =
        routing.touched *
        static_cast<double>(model.shape.gate_up().bytes() + model.shape.down().bytes());
    const double floor_us = touched_bytes / bench::read_bytes_per_s * 1e6;
    std::printf("  %4d  %7.1f  %7.1f  %6.1f  %4.0f  %3.0f\n", rows, routing.touched, us, floor_us,
                touched_bytes / us / 1e3, 100 * floor_us / us);
    std::fflush(stdout);
    std::fprintf(json,
                 "{\"model\": \"%s\", \"rows\": %d, \"experts\": %.1f, \"us\": %.2f, \"floor_us\": "
                 "%.2f}\n",
                 model.name, rows, routing.touched, us, floor_us);
  }
  return {};
}

struct Product {
  const char* name;
  PackedLinear shape;
};
constexpr Product products[] = {
    {"fp8 [2112][7168]", {2112, 7168, ExpertCodec::fp8_block}},
    {"int4 [2112][7168]", {2112, 7168, ExpertCodec::int4_group}},
    {"fp8 [7168][2048]", {7168, 2048, ExpertCodec::fp8_block}},
};

Status bench_product(const Product& product, std::FILE* json) {
  constexpr int copies = 32;
  std::mt19937 random(2);
  COPSE_TRY(const auto weights, DeviceBuffer<std::byte>::allocate(copies * product.shape.bytes()));
  for (int i = 0; i < copies; ++i) {
    COPSE_RETURN_IF_ERROR(random_linear(
        product.shape, static_cast<std::uint64_t>(i),
        weights.data() + static_cast<std::size_t>(i) * product.shape.bytes(), nullptr));
  }
  std::printf("%s\n  rows       us   floor  %% of floor\n", product.name);
  for (const int rows : {1, 9, 17, 33, 65}) {
    const auto count = [&](int columns) {
      return static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns);
    };
    COPSE_TRY(const auto x, make_x(count(product.shape.inputs), random));
    COPSE_TRY(const auto y, DeviceBuffer<Bf16>::allocate(count(product.shape.outputs)));
    COPSE_TRY(
        const double us, bench::graph_time_us(copies, 2, 5, [&](int i, Stream stream) {
          return quantized_linear<Bf16, Bf16>(
              {x.data(), rows, product.shape,
               weights.data() + static_cast<std::size_t>(i) * product.shape.bytes(), y.data()},
              stream);
        }));
    const double floor_us =
        static_cast<double>(product.shape.bytes()) / bench::read_bytes_per_s * 1e6;
    std::printf("  %4d  %7.1f  %6.1f  %3.0f\n", rows, us, floor_us, 100 * floor_us / us);
    std::fprintf(json, "{\"product\": \"%s\", \"rows\": %d, \"us\": %.2f, \"floor_us\": %.2f}\n",
                 product.name, rows, us, floor_us);
  }
  return {};
}

Status bench_all() {
  COPSE_TRY(const DeviceInfo info, open_device(0));
  std::printf("%s\n", info.name.c_str());
  std::FILE* json = std::fopen("out/moe_experts.json", "w");
  if (json == nullptr) return Error{ErrorCode::io, "out", "there is no folder out to write to"};
  Status status;
  for (const Model& model : models) {
    if (status.ok()) status = bench_model(model, json);
  }
  for (const Product& product : products) {
    if (status.ok()) status = bench_product(product, json);
  }
  std::fclose(json);
  return status;
}

}  // namespace
}  // namespace copse::kernels::cuda

int main() {
  const copse::Status status = copse::kernels::cuda::bench_all();
  if (!status.ok()) std::fprintf(stderr, "%s\n", copse::describe(status.error()).c_str());
  return status.ok() ? 0 : 1;
}
