#include "kernels/draft_attention/draft_attention_cuda.h"

#include <numeric>

#include "kernels/common/cuda/strided_testing.h"
#include "kernels/draft_attention/draft_attention.h"

namespace copse::kernels::cuda {
namespace {

using kernels::testing::Fill;
using kernels::testing::Inputs;
using testing::Strided;

struct Shape {
  int heads, kv_heads, dim, block, window;
};

// Memory of one call. q, k and v of a row stand side by side, as a fused product leaves them; what
// no row may read is NaN.
template <class T>
class World {
 public:
  World(const Shape& shape, const std::vector<int>& lengths, int gap, Fill fill = Fill::random)
      : shape_(shape),
        lengths_(lengths),
        values_(fill, 9),
        qkv_(rows(), shape.heads + 2 * shape.kv_heads, shape.dim, 0, gap, values_),
        out_(rows(), shape.heads, shape.dim, 0, 0) {
    lay_pages();
    device_keys_ = testing::upload(testing::stored<T>(keys_));
    device_page_values_ = testing::upload(testing::stored<T>(page_values_));
    keys_ = testing::widened(testing::stored<T>(keys_));
    page_values_ = testing::widened(testing::stored<T>(page_values_));
    device_lengths_ = testing::upload(std::vector<std::int32_t>(lengths.begin(), lengths.end()));
    device_slots_ = testing::upload(slots_);
    device_tables_ = testing::upload(tables_);
    const std::size_t bytes = draft_attention_workspace_bytes(sequences(), shape.block, shape.heads,
                                                              shape.kv_heads, shape.dim);
    workspace_ = testing::upload(std::vector<float>(bytes / sizeof(float) + 8, std::nanf("")));
  }

  Status run(Stream stream) {
    const DraftAttention<T> call = {
        .sequences = sequences(),
        .block = shape_.block,
        .heads = shape_.heads,
        .kv_heads = shape_.kv_heads,
        .dim = shape_.dim,
        .window = shape_.window,
        .scale = 0.21f,
        .q = qkv_.data(),
        .q_stride = qkv_.row_stride(),
        .k = qkv_.data() + shape_.heads * shape_.dim,
        .v = qkv_.data() + (shape_.heads + shape_.kv_heads) * shape_.dim,
        .kv_stride = qkv_.row_stride(),
        .key_pages = device_keys_.data(),
        .value_pages = device_page_values_.data(),
        .out = out_.data(),
        .lengths = device_lengths_.data(),
        .slots = device_slots_.data(),
        .page_tables = device_tables_.data(),
        .page_table_stride = table_stride_,
        .workspace = workspace_.data()};
    return draft_attention(call, stream);
  }

  // Against the plain reference; rows of inactive sequences must be untouched.
  ::testing::AssertionResult matches() {
    std::vector<float> expected = reference(false);
    std::vector<float> magnitudes = reference(true);
    const std::vector<float> actual = out_.results();
    const auto width = static_cast<std::size_t>(shape_.heads * shape_.dim * shape_.block);
    std::vector<float> results;
    std::vector<float> wanted;
    std::vector<float> sizes;
    for (std::size_t s = 0; s < lengths_.size(); ++s) {
      const auto of = [&](const std::vector<float>& from) {
        return std::pair(from.begin() + static_cast<std::ptrdiff_t>(s * width),
                         from.begin() + static_cast<std::ptrdiff_t>((s + 1) * width));
      };
      const auto [first, last] = of(actual);
      if (lengths_[s] < 0) {
        if (!std::all_of(first, last, [](float value) { return std::isnan(value); })) {
          return ::testing::AssertionFailure() << "wrote rows of inactive sequence " << s;
        }
        continue;
      }
      results.insert(results.end(), first, last);
      wanted.insert(wanted.end(), of(expected).first, of(expected).second);
      sizes.insert(sizes.end(), of(magnitudes).first, of(magnitudes).second);
    }
    // Weights of the tensor core path are rounded to bf16.
    const int terms = sizeof(T) == 2 ? 1 << 16 : 8 * (shape_.dim + 64);
    return testing::all_close<T>(results, wanted, sizes, terms);
  }
  std::vector<float> results() const { return out_.results(); }

 private:
  int sequences() const { return static_cast<int>(lengths_.size()); }
  int rows() const { return sequences() * shape_.block; }

  // Sequences use the slots from the last to the first, and pages in falling order.
  void lay_pages() {
    const int longest = std::max(*std::max_element(lengths_.begin(), lengths_.end()), 1);
    table_stride_ = (longest + 63) / 64 + 1;
    PageId pages = 2;  // never used
    for (const int length : lengths_) pages += (std::max(length, 0) + 63) / 64;
    const auto token = static_cast<std::size_t>(shape_.kv_heads * shape_.dim);
    keys_.assign(static_cast<std::size_t>(pages) * 64 * token, std::nanf(""));
    page_values_ = keys_;
    tables_.assign(static_cast<std::size_t>(sequences() * table_stride_), pages - 1);
    PageId next = pages - 2;
    for (int s = 0; s < sequences(); ++s) {
      slots_.push_back(sequences() - 1 - s);
      PageId* table = tables_.data() + (sequences() - 1 - s) * table_stride_;
      for (int p = 0; p < lengths_[static_cast<std::size_t>(s)]; ++p) {
        if (p % 64 == 0) table[p / 64] = next--;
        if (shape_.window > 0 && p <= lengths_[static_cast<std::size_t>(s)] - shape_.window) {
          continue;  // not even the first row's window reaches it
        }
        const auto at = static_cast<std::size_t>(table[p / 64] * 64 + p % 64) * token;
        for (std::size_t i = 0; i < token; ++i) {
          keys_[at + i] = values_.next();
          page_values_[at + i] = values_.next();
        }
      }
    }
  }

  std::vector<float> reference(bool magnitudes) {
    std::vector<float> q, k, v;
    const std::vector<float> all = qkv_.values();
    const int heads = shape_.heads + 2 * shape_.kv_heads;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const int head = static_cast<int>(i) / shape_.dim % heads;
      (head < shape_.heads ? q : head < shape_.heads + shape_.kv_heads ? k : v).push_back(all[i]);
    }
    std::vector<float> values = page_values_;
    for (float& value : values) value = magnitudes ? std::abs(value) : value;
    for (float& value : v) value = magnitudes ? std::abs(value) : value;
    std::vector<DraftContext> contexts;
    for (int s = 0; s < sequences(); ++s) {
      contexts.push_back({std::max(lengths_[static_cast<std::size_t>(s)], 0),
                          tables_.data() + (sequences() - 1 - s) * table_stride_});
    }
    std::vector<float> out(q.size());
    kernels::ref::draft_attention({.heads = shape_.heads,
                                   .kv_heads = shape_.kv_heads,
                                   .dim = shape_.dim,
                                   .block = shape_.block,
                                   .window = shape_.window,
                                   .scale = 0.21f,
                                   .q = q.data(),
                                   .k = k.data(),
                                   .v = v.data(),
                                   .key_pages = keys_.data(),
                                   .value_pages = values.data(),
                                   .out = out.data(),
                                   .sequences = contexts});
    return out;
  }

  Shape shape_;
  std::vector<int> lengths_;
  Inputs values_;
  Strided<T> qkv_;
  Strided<T> out_;
  int table_stride_ = 0;
  std::vector<float> keys_, page_values_;
  std::vector<std::int32_t> slots_;
  std::vector<PageId> tables_;
  DeviceBuffer<T> device_keys_, device_page_values_;
  DeviceBuffer<std::int32_t> device_lengths_, device_slots_;
  DeviceBuffer<PageId> device_tables_;
  DeviceBuffer<float> workspace_;
};

class DraftAttentionCuda : public testing::CudaTest {
 protected:
  template <class T>
  void run(const Shape& shape, const std::vector<int>& lengths, int gap) {
    SCOPED_TRACE(::testing::Message()
                 << shape.heads << "/" << shape.kv_heads << " heads of " << shape.dim << ", block "
                 << shape.block << ", window " << shape.window << ", first length " << lengths[0]
                 << ", " << sizeof(T) << " bytes");
    World<T> world(shape, lengths, gap);
    const Status status = world.run(stream());
    ASSERT_TRUE(status.ok()) << describe(status.error());
    synchronize();
    EXPECT_TRUE(world.matches());
  }
};

const std::vector<int> few[] = {{0}, {1, 64, 127}, {60, -1, 200, 0, 63}};

TEST_F(DraftAttentionCuda, PlainPathTakesEveryShape) {
  for (const Shape& shape : {Shape{8, 4, 32, 16, 0}, Shape{1, 1, 32, 16, 0}, Shape{6, 2, 24, 7, 0},
                             Shape{4, 1, 20, 5, 40}, Shape{2, 2, 5, 3, 2}, Shape{8, 1, 128, 8, 100},
                             Shape{2, 2, 16, 32, 0}, Shape{2, 1, 256, 4, 0}}) {
    for (const std::vector<int>& lengths : few) {
      run<float>(shape, lengths, 3);
      run<Bf16>(shape, lengths, 3);
    }
  }
}

TEST_F(DraftAttentionCuda, TensorCorePathTakesItsShapes) {
  for (const int dim : {32, 64, 128}) {
    for (const Shape& shape :
         {Shape{8, 4, dim, 16, 0}, Shape{1, 1, dim, 16, 0}, Shape{4, 1, dim, 16, 0},
          Shape{8, 1, dim, 16, 100}, Shape{6, 2, dim, 7, 64}, Shape{5, 1, dim, 32, 0},
          Shape{2, 2, dim, 3, 2}}) {
      for (const std::vector<int>& lengths : few) run<Bf16>(shape, lengths, 8);
    }
  }
}

TEST_F(DraftAttentionCuda, LongContextsAreSplit) {
  run<Bf16>({4, 1, 128, 16, 0}, {6001, 2048}, 0);
  run<Bf16>({2, 1, 64, 16, 1000}, {9000}, 0);
  run<Bf16>({1, 1, 32, 16, 0}, {20000}, 0);
  run<float>({2, 1, 64, 16, 0}, {5000, 64}, 0);
}

// Many sequences leave few splits, so that a block walks many tiles.
TEST_F(DraftAttentionCuda, ManySequencesOfManyTiles) {
  std::vector<int> lengths(32, 1500);
  lengths[3] = 1472;
  lengths[7] = -1;
  for (const int dim : {32, 64, 128}) run<Bf16>({1, 1, dim, 4, 0}, lengths, 0);
  run<Bf16>({2, 1, 128, 4, 1000}, lengths, 0);
  run<float>({1, 1, 32, 4, 0}, lengths, 0);
}

// What else is in the batch changes no bit, and a repeated call gives the same ones.
TEST_F(DraftAttentionCuda, ASequenceIsTheSameInEveryCallOfItsShape) {
  const Shape shape = {4, 2, 64, 16, 0};
  World<Bf16> one(shape, {3000, -1, -1}, 0);
  World<Bf16> two(shape, {3000, -1, -1}, 0);
  for (World<Bf16>* world : {&one, &two, &two}) ASSERT_TRUE(world->run(stream()).ok());
  synchronize();
  const std::vector<float> first = one.results();
  const std::vector<float> second = two.results();
  const std::size_t count = std::size_t{4} * 64 * 16;
  for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(first[i], second[i]) << i;
}

}  // namespace
}  // namespace copse::kernels::cuda
