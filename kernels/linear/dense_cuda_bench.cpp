// What one rank of eight of Kimi-K2 computes beside verify attention and experts, and its drafter's
// attention: time, bytes that must move, and percent of the measured reading rate. Every call of a
// graph uses another part of a pool larger than the L2, so weights and caches are cold.
//   dense_cuda_bench [out.json [products | layer | small | draft]]
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "base/random.h"
#include "kernels/common/cuda/bench.h"
#include "kernels/common/cuda/device.h"
#include "kernels/common/cuda/device_memory.h"
#include "kernels/draft_attention/draft_attention_cuda.h"
#include "kernels/linear/library_gemm.h"
#include "kernels/linear/linear_cuda.h"
#include "kernels/rms_norm/rms_norm_cuda.h"
#include "kernels/swiglu/swiglu_cuda.h"

namespace copse::kernels::cuda {
namespace {

constexpr int warm_up = 2;
constexpr int replays = 7;
constexpr std::size_t pool_bytes = std::size_t{1200} << 20;
constexpr std::size_t activation_bytes = std::size_t{64} << 20;
constexpr std::size_t cold_bytes = std::size_t{400} << 20;

// Random bf16 values of about 1 / 64, many times over.
Status fill(DeviceBuffer<std::byte>& memory) {
  std::vector<std::uint16_t> block(std::size_t{4} << 20);
  SeededRandom random(1);
  for (std::uint16_t& bits : block) {
    const std::uint64_t r = random.next();
    bits = static_cast<std::uint16_t>((r & 0x807f) | ((120 + (r >> 16) % 4) << 7));
  }
  const std::size_t bytes = block.size() * sizeof(block[0]);
  for (std::size_t at = 0; at < memory.size(); at += bytes) {
    COPSE_RETURN_IF_ERROR(
        copy_to_device(memory.data() + at, block.data(), std::min(bytes, memory.size() - at)));
  }
  return {};
}

struct Bench {
  DeviceBuffer<std::byte> pool;
  DeviceBuffer<std::byte> activations;
  DeviceBuffer<std::byte> outputs;
  DeviceBuffer<std::byte> workspace;
  std::ofstream json;
  bool first = true;

  // Calls of a graph so that `bytes` each come to more than the L2 holds, and the i-th one's
  // memory.
  static int calls(std::size_t bytes) {
    return static_cast<int>(std::clamp<std::size_t>(cold_bytes / bytes, 3, 200));
  }
  template <class T>
  T* part(int i, std::size_t bytes) const {
    const std::size_t stride = (bytes + 255) / 256 * 256;
    const std::size_t count = pool_bytes / stride;
    return reinterpret_cast<T*>(pool.data() + static_cast<std::size_t>(i) % count * stride);
  }

  void report(const std::string& name, int rows, Result<double> us, std::uint64_t bytes) {
    if (!us.ok()) {
      std::printf("%-26s %4d  %s\n", name.c_str(), rows, describe(us.error()).c_str());
      return;
    }
    const double floor = static_cast<double>(bytes) / bench::read_bytes_per_s * 1e6;
    std::printf("%-26s %4d  %8.2f us  %9.3f MB  %6.0f GB/s  floor %7.2f us  %5.1f %%\n",
                name.c_str(), rows, *us, static_cast<double>(bytes) / 1e6,
                static_cast<double>(bytes) / *us / 1e3, floor, 100.0 * floor / *us);
    std::fflush(stdout);
    json << (first ? "[\n" : ",\n") << R"( {"name": ")" << name << R"(", "rows": )" << rows
         << R"(, "us": )" << *us << R"(, "bytes": )" << bytes << R"(, "floor_us": )" << floor
         << "}";
    first = false;
  }
};

struct Product {
  const char* name;
  int inputs;
  int outputs;
  bool float_out;
  int batch = 1;
  bool swiglu = false;
};

constexpr Product products[] = {
    {"q_a + kv_a", 7168, 2112, false},
    {"q_b", 1536, 8 * 192, false},
    {"absorb q", 128, 512, false, 8},
    {"absorb v", 512, 128, false, 8},
    {"o", 8 * 128, 7168, true},
    {"dense gate + up", 7168, 2 * 18432 / 8, false},
    {"dense SwiGLU", 7168, 18432 / 8, false, 1, true},
    {"dense down", 18432 / 8, 7168, true},
    {"shared SwiGLU", 7168, 256, false, 1, true},
    {"shared down", 256, 7168, true},
    {"router", 7168, 384, true},
    {"head", 7168, 163840 / 8, true},
};
constexpr int row_counts[] = {1, 9, 17, 33, 64};

GemmShape shape_of(const Product& product, int rows) {
  GemmShape shape = product.float_out
                        ? dense_shape<Bf16, float>(rows, product.outputs, product.inputs)
                        : dense_shape<Bf16, Bf16>(rows, product.outputs, product.inputs);
  shape.batch = product.batch;
  shape.swiglu = product.swiglu;
  if (product.batch > 1) {  // heads side by side
    shape.x_batch_stride = product.inputs;
    shape.x_stride = std::int64_t{product.batch} * product.inputs;
    shape.w_batch_stride = std::int64_t{product.inputs} * product.outputs;
    shape.y_batch_stride = product.outputs;
    shape.y_stride = std::int64_t{product.batch} * product.outputs;
  }
  return shape;
}

std::size_t weight_bytes(const GemmShape& shape) {
  return sizeof(Bf16) * static_cast<std::size_t>(shape.batch) *
         static_cast<std::size_t>(shape.inputs) *
         static_cast<std::size_t>(shape.outputs * (shape.swiglu ? 2 : 1));
}

// By our own choice, and beside it by the library.
void run_products(Bench& b, DenseGemm& gemm, const Library& library) {
  for (const Product& product : products) {
    for (const int rows : row_counts) {
      const GemmShape shape = shape_of(product, rows);
      const Status prepared = gemm.prepare(shape);
      if (!prepared.ok()) {
        b.report(product.name, rows, prepared.error(), 0);
        continue;
      }
      const std::size_t weight = weight_bytes(shape);
      const auto time = [&](const std::function<Status(const Bf16*, Stream)>& launch) {
        return bench::graph_time_us(
            Bench::calls(weight), warm_up, replays,
            [&](int i, Stream stream) { return launch(b.part<Bf16>(i, weight), stream); });
      };
      b.report(product.name, rows, time([&](const Bf16* w, Stream stream) {
                 return gemm.launch(shape, b.activations.data(), w, b.outputs.data(), stream);
               }),
               gemm_bytes_moved(shape));
      if (shape.swiglu) continue;
      const auto plan = LibraryPlan::make(library, shape);
      if (!plan.ok()) continue;
      b.report(
          std::string(product.name) + ", library", rows, time([&](const Bf16* w, Stream stream) {
            return plan->launch(library, shape, b.activations.data(), w, b.outputs.data(), stream);
          }),
          gemm_bytes_moved(shape));
    }
  }
}

// The products of one layer of experts one behind the other, as in a step but without attention and
// experts; by the library, the shared expert's SwiGLU is left out.
Status run_layer(Bench& b, int rows, bool own, DenseGemm& gemm, const Library& library) {
  std::vector<GemmShape> shapes;
  std::vector<LibraryPlan> plans;
  std::size_t weights = 0;
  std::uint64_t bytes = 0;
  for (const char* name : {"q_a + kv_a", "q_b", "absorb q", "absorb v", "o", "router",
                           "shared SwiGLU", "shared down"}) {
    const auto* product =
        std::find_if(std::begin(products), std::end(products),
                     [&](const Product& p) { return p.name == std::string(name); });
    GemmShape shape = shape_of(*product, rows);
    if (!own && shape.swiglu) {
      shape.swiglu = false;
      shape.y_stride = shape.outputs *= 2;
    }
    COPSE_RETURN_IF_ERROR(gemm.prepare(shape));
    COPSE_TRY(LibraryPlan plan, LibraryPlan::make(library, shape));
    plans.push_back(std::move(plan));
    shapes.push_back(shape);
    weights += weight_bytes(shape);
    bytes += gemm_bytes_moved(shape);
  }
  const auto launch = [&](int i, Stream stream) -> Status {
    const std::byte* w = b.part<std::byte>(i, weights);
    std::byte* x = b.activations.data();
    std::byte* y = b.outputs.data();
    for (std::size_t p = 0; p < shapes.size(); ++p) {
      if (own && p + 1 < shapes.size() && shapes[p + 1].swiglu) {  // the router beside it
        const GemmCall router = {shapes[p], w, y};
        w += weight_bytes(shapes[p]);
        const GemmCall shared = {shapes[p + 1], w, y + (1 << 20)};
        COPSE_RETURN_IF_ERROR(gemm.launch_pair(router, shared, x, stream));
        ++p;
      } else if (own) {
        COPSE_RETURN_IF_ERROR(gemm.launch(shapes[p], x, w, y, stream));
      } else {
        COPSE_RETURN_IF_ERROR(plans[p].launch(library, shapes[p], x, w, y, stream));
      }
      w += weight_bytes(shapes[p]);
      std::swap(x, y);
    }
    return {};
  };
  b.report(own ? "products of a layer" : "products of a layer, library", rows,
           bench::graph_time_us(Bench::calls(weights), warm_up, replays, launch), bytes);
  return {};
}

void run_norms(Bench& b) {
  constexpr int dim = 7168;
  for (const int rows : row_counts) {
    const std::size_t row_bytes = static_cast<std::size_t>(rows) * dim * sizeof(float);
    AddRmsNorm<Bf16> call = {.y = reinterpret_cast<Bf16*>(b.outputs.data()),
                             .rows = rows,
                             .dim = dim,
                             .weight = b.part<float>(0, 1),
                             .eps = 1e-6f};
    // Residual and partial sums were just written by others: warm, as in a step.
    call.residual = reinterpret_cast<float*>(b.activations.data());
    call.part = reinterpret_cast<float*>(b.activations.data() + (activation_bytes / 2));
    b.report("add + rms_norm", rows,
             bench::graph_time_us(50, warm_up, replays,
                                  [&](int, Stream stream) { return add_rms_norm(call, stream); }),
             3 * row_bytes + row_bytes / 2 + dim * sizeof(float));
    const Swiglu<Bf16> swiglu_call = {.gate = reinterpret_cast<Bf16*>(b.activations.data()),
                                      .up = reinterpret_cast<Bf16*>(b.activations.data()) + 2304,
                                      .in_stride = 4608,
                                      .out = reinterpret_cast<Bf16*>(b.outputs.data()),
                                      .out_stride = 2304,
                                      .rows = rows,
                                      .columns = 2304};
    b.report("swiglu 2304", rows,
             bench::graph_time_us(50, warm_up, replays,
                                  [&](int, Stream stream) { return swiglu(swiglu_call, stream); }),
             static_cast<std::uint64_t>(rows) * 2304 * 6);
  }
}

// The drafter of Kimi-K2.5: 64 query and 8 key/value heads of 128 over eight ranks, blocks of 8.
Status run_draft(Bench& b) {
  constexpr int heads = 8, kv_heads = 1, dim = 128, block = 8;
  for (const int sequences : {1, 4}) {
    const std::size_t scratch =
        draft_attention_workspace_bytes(sequences, block, heads, kv_heads, dim);
    CHECK(scratch <= b.workspace.size());
    for (const int length : {1000, 4000, 16000, 65000}) {
      const int pages = (length + 63) / 64;
      const std::size_t page_bytes = std::size_t{64} * kv_heads * dim * sizeof(Bf16);
      const std::size_t cache =
          page_bytes * static_cast<std::size_t>(pages) * static_cast<std::size_t>(sequences);
      std::vector<PageId> table(static_cast<std::size_t>(pages * sequences));
      for (std::size_t i = 0; i < table.size(); ++i) {
        table[i] = static_cast<PageId>((i * 7919) % table.size());  // scattered
      }
      const std::vector<std::int32_t> lengths(static_cast<std::size_t>(sequences), length);
      COPSE_TRY(const auto tables, DeviceBuffer<PageId>::from(std::span<const PageId>(table)));
      COPSE_TRY(const auto device_lengths,
                DeviceBuffer<std::int32_t>::from(std::span<const std::int32_t>(lengths)));
      DraftAttention<Bf16> call = {.sequences = sequences,
                                   .block = block,
                                   .heads = heads,
                                   .kv_heads = kv_heads,
                                   .dim = dim,
                                   .scale = 0.088f};
      call.q = reinterpret_cast<Bf16*>(b.activations.data());
      call.k = call.q + heads * dim;
      call.v = call.k + kv_heads * dim;
      call.q_stride = call.kv_stride = (heads + 2 * kv_heads) * dim;
      call.out = reinterpret_cast<Bf16*>(b.outputs.data());
      call.lengths = device_lengths.data();
      call.page_tables = tables.data();
      call.page_table_stride = pages;
      call.workspace = reinterpret_cast<float*>(b.workspace.data());
      const int calls = std::min(Bench::calls(2 * cache), 61);
      b.report("draft attention x" + std::to_string(sequences), length,
               bench::graph_time_us(calls, warm_up, replays,
                                    [&](int i, Stream stream) {
                                      call.key_pages = b.part<Bf16>(2 * i, cache);
                                      call.value_pages = b.part<Bf16>(2 * i + 1, cache);
                                      return draft_attention(call, stream);
                                    }),
               2 * static_cast<std::uint64_t>(sequences) * static_cast<std::uint64_t>(length) *
                   kv_heads * dim * sizeof(Bf16));
    }
  }
  return {};
}

Status run(const char* path, const std::string& only) {
  COPSE_TRY(const DeviceInfo info, open_device(0));
  std::printf("%s, %d multiprocessors\n", info.name.c_str(), info.multiprocessors);
  Bench b;
  COPSE_TRY(b.pool, DeviceBuffer<std::byte>::allocate(pool_bytes));
  COPSE_TRY(b.activations, DeviceBuffer<std::byte>::allocate(activation_bytes));
  COPSE_TRY(b.outputs, DeviceBuffer<std::byte>::allocate(activation_bytes));
  COPSE_TRY(b.workspace, DeviceBuffer<std::byte>::allocate(DenseGemm::workspace_bytes_default));
  COPSE_RETURN_IF_ERROR(fill(b.pool));
  COPSE_RETURN_IF_ERROR(fill(b.activations));
  b.json.open(path);
  COPSE_TRY(DenseGemm gemm, DenseGemm::create(b.workspace.data(), b.workspace.size()));
  COPSE_TRY(const Library library, Library::create(b.workspace.data(), b.workspace.size() / 2));
  const auto wanted = [&](const char* part) { return only.empty() || only == part; };
  if (wanted("products")) run_products(b, gemm, library);
  for (const int rows : row_counts) {
    if (!wanted("layer")) break;
    COPSE_RETURN_IF_ERROR(run_layer(b, rows, true, gemm, library));
    COPSE_RETURN_IF_ERROR(run_layer(b, rows, false, gemm, library));
  }
  if (wanted("small")) run_norms(b);
  if (wanted("draft")) COPSE_RETURN_IF_ERROR(run_draft(b));
  b.json << "\n]\n";
  return {};
}

}  // namespace
}  // namespace copse::kernels::cuda

int main(int argc, char** argv) {
  const copse::Status status =
      copse::kernels::cuda::run(argc > 1 ? argv[1] : "dense_cuda.json", argc > 2 ? argv[2] : "");
  if (!status.ok()) std::fprintf(stderr, "%s\n", describe(status.error()).c_str());
  return status.ok() ? 0 : 1;
}
