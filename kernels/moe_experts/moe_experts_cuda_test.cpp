#include "kernels/moe_experts/moe_experts_cuda.h"

#include <algorithm>
#include <limits>
#include <string>

#include "kernels/common/cuda/testing.h"
#include "kernels/moe_experts/moe_testing.h"

namespace copse::kernels::cuda {
namespace {

using testing::index;

struct Case {
  ExpertCodec codec;
  int rows, hidden, inner, experts, experts_per_token;
};

std::string name(const Case& c) {
  return "codec " + std::to_string(static_cast<int>(c.codec)) + ", rows " + std::to_string(c.rows) +
         ", hidden " + std::to_string(c.hidden) + ", inner " + std::to_string(c.inner) +
         ", experts " + std::to_string(c.experts) + ", top " + std::to_string(c.experts_per_token);
}

struct Routing {
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
};

// Distinct ascending ids; `skew`: the first half of each row's choice among few experts.
Routing make_routing(int rows, int experts, int per_token, bool skew, testing::Generator& random) {
  Routing routing;
  for (int r = 0; r < rows; ++r) {
    std::vector<int> all(index(experts));
    for (int e = 0; e < experts; ++e) all[index(e)] = e;
    for (int i = 0; i < per_token; ++i) {
      const bool near = skew && i < per_token / 2 + 1;
      const int left = near ? std::max(1, std::min(experts, per_token / 2 + 2) - i) : experts - i;
      std::swap(all[index(i)], all[index(i + static_cast<int>(random() % unsigned(left)))]);
    }
    std::sort(all.begin(), all.begin() + per_token);
    routing.ids.insert(routing.ids.end(), all.begin(), all.begin() + per_token);
    for (int i = 0; i < per_token; ++i) {
      routing.weights.push_back(0.1f + static_cast<float>(random() % 1000) / 1000.0f);
    }
  }
  return routing;
}

template <class T>
std::vector<T> make_rows(int rows, int columns, testing::Generator& random) {
  std::normal_distribution<float> normal;
  std::vector<float> values(index(rows) * index(columns));
  for (float& value : values) value = normal(random);
  return testing::stored<T>(values);
}

DeviceBuffer<std::uint8_t> filled(std::size_t bytes, int value) {
  auto buffer = DeviceBuffer<std::uint8_t>::allocate(bytes);
  EXPECT_TRUE(buffer.ok());
  EXPECT_EQ(cudaMemset(buffer->data(), value, bytes), cudaSuccess);
  return std::move(buffer).value();
}

class MoeExpertsCuda : public testing::CudaTest {
 protected:
  std::vector<testing::TestExpert> make_experts(const ExpertShape& shape,
                                                testing::Generator& random) {
    std::vector<testing::TestExpert> experts;
    for (int e = 0; e < shape.experts; ++e) {
      experts.push_back({testing::make_matrix(shape.codec, shape.inner, shape.hidden, random),
                         testing::make_matrix(shape.codec, shape.inner, shape.hidden, random),
                         testing::make_matrix(shape.codec, shape.hidden, shape.inner, random)});
    }
    return experts;
  }
  // All experts packed one after another. Memory in front of and behind them is NaN.
  DeviceBuffer<std::uint8_t> pack(const ExpertShape& shape,
                                  const std::vector<testing::TestExpert>& experts) {
    auto packed = filled(shape.layer_bytes() + 256, 0xff);
    for (std::size_t e = 0; e < experts.size(); ++e) {
      const auto& expert = experts[e];
      std::vector<DeviceBuffer<std::uint8_t>> kept;
      const auto stored = [&](const testing::TestMatrix& matrix) {
        kept.push_back(testing::upload(matrix.values));
        const void* values = kept.back().data();
        if (matrix.scales.empty()) return StoredMatrix{values, nullptr};
        kept.push_back(testing::upload(matrix.scales));
        return StoredMatrix{values, kept.back().data()};
      };
      const StoredExpert source = {stored(expert.gate), stored(expert.up), stored(expert.down)};
      auto* to = reinterpret_cast<std::byte*>(packed.data()) + e * shape.expert_bytes();
      EXPECT_TRUE(pack_expert(shape, source, to, stream()).ok());
      synchronize();
    }
    return packed;
  }
  template <class T>
  std::vector<float> run(bool fast, const ExpertShape& shape,
                         const DeviceBuffer<std::uint8_t>& packed, const std::vector<T>& x,
                         const Routing& routing, int rows) {
    const int per_token = static_cast<int>(routing.ids.size()) / rows;
    const std::size_t bytes = moe_experts_workspace_bytes(shape, rows, per_token);
    auto workspace = filled(bytes, 0xff);
    EXPECT_EQ(cudaMemset(workspace.data(), 0, moe_experts_state_bytes()), cudaSuccess);
    const auto device_x = testing::upload(x);
    const auto ids = testing::upload(routing.ids);
    const auto weights = testing::upload(routing.weights);
    auto y = testing::upload(std::vector<float>(index(rows) * index(shape.hidden),
                                                std::numeric_limits<float>::quiet_NaN()));
    const MoeExperts<T> call = {.x = device_x.data(),
                                .ids = ids.data(),
                                .weights = weights.data(),
                                .rows = rows,
                                .experts_per_token = per_token,
                                .shape = shape,
                                .packed = reinterpret_cast<const std::byte*>(packed.data()),
                                .y = y.data(),
                                .workspace = reinterpret_cast<std::byte*>(workspace.data()),
                                .workspace_bytes = bytes};
    const auto launch = [&] {
      return fast ? moe_experts(call, stream()) : portable::moe_experts(call, stream());
    };
    EXPECT_TRUE(launch().ok());
    synchronize();
    const std::vector<float> first = testing::download(y);
    // Again on the used workspace: the state must have been left fit, the bits the same.
    EXPECT_EQ(cudaMemset(y.data(), 0xff, first.size() * sizeof(float)), cudaSuccess);
    EXPECT_TRUE(launch().ok());
    synchronize();
    const std::vector<float> second = testing::download(y);
    EXPECT_EQ(std::memcmp(first.data(), second.data(), first.size() * sizeof(float)), 0)
        << "two calls differ";
    return first;
  }
  template <class T>
  std::vector<float> expected(const ExpertShape& shape,
                              const std::vector<testing::TestExpert>& experts,
                              const std::vector<T>& x, const Routing& routing, int rows) {
    const int per_token = static_cast<int>(routing.ids.size()) / rows;
    const std::vector<float> wide = testing::widened(x);
    std::vector<float> y;
    for (int r = 0; r < rows; ++r) {
      const std::vector<float> row = testing::plain_experts(
          experts, shape.first_expert, wide.data() + index(r) * index(shape.hidden),
          routing.ids.data() + r * per_token, routing.weights.data() + r * per_token, per_token,
          shape.hidden,
          [](float v) { return testing::to_host_float(testing::from_host_float<T>(v)); });
      y.insert(y.end(), row.begin(), row.end());
    }
    return y;
  }
  // Row by row, so that one wrong row among many shows.
  template <class T>
  void compare(const std::vector<float>& actual, const std::vector<float>& wanted, int rows,
               const std::string& what) {
    ASSERT_EQ(actual.size(), wanted.size());
    const std::size_t columns = actual.size() / index(rows);
    for (int r = 0; r < rows; ++r) {
      const auto a = std::span(actual).subspan(index(r) * columns, columns);
      const auto b = std::span(wanted).subspan(index(r) * columns, columns);
      const double error = testing::relative_error(a, b);
      if (error <= testing::tolerance<T>()) continue;
      for (std::size_t i = 0; i < columns; ++i) {
        if (std::abs(a[i] - b[i]) <= 0.02f * (std::abs(b[i]) + 0.1f)) continue;
        ADD_FAILURE() << what << ": row " << r << " errs by " << error << "; output " << i << " is "
                      << a[i] << ", expected " << b[i];
        return;
      }
      ADD_FAILURE() << what << ": row " << r << " errs by " << error;
      return;
    }
  }
  template <class T>
  void check(const Case& c, bool skew, unsigned seed) {
    testing::Generator random(seed);
    const ExpertShape shape = {c.hidden, c.inner, c.experts, 0, c.codec};
    const auto experts = make_experts(shape, random);
    const auto packed = pack(shape, experts);
    const auto x = make_rows<T>(c.rows, c.hidden, random);
    const Routing routing = make_routing(c.rows, c.experts, c.experts_per_token, skew, random);
    const auto wanted = expected(shape, experts, x, routing, c.rows);
    compare<T>(run(false, shape, packed, x, routing, c.rows), wanted, c.rows,
               "portable, " + name(c));
    compare<T>(run(true, shape, packed, x, routing, c.rows), wanted, c.rows, "chosen, " + name(c));
  }
  template <class T>
  void alone_and_among_others(double tolerance) {
    testing::Generator random(10);
    for (const ExpertCodec codec :
         {ExpertCodec::bf16, ExpertCodec::fp8_block, ExpertCodec::int4_group}) {
      const ExpertShape shape = {512, 256, 16, 0, codec};
      const auto packed = pack(shape, make_experts(shape, random));
      const int rows = 150;
      const auto x = make_rows<T>(rows, shape.hidden, random);
      const Routing routing = make_routing(rows, shape.experts, 4, true, random);
      const auto all = run(true, shape, packed, x, routing, rows);
      for (const int row : {0, 77, 149}) {
        const std::vector<T> one(x.begin() + row * shape.hidden,
                                 x.begin() + (row + 1) * shape.hidden);
        const Routing alone = {
            {routing.ids.begin() + row * 4, routing.ids.begin() + row * 4 + 4},
            {routing.weights.begin() + row * 4, routing.weights.begin() + row * 4 + 4}};
        const auto y = run(true, shape, packed, one, alone, 1);
        const auto same = std::span(all).subspan(index(row * shape.hidden), index(shape.hidden));
        EXPECT_LE(testing::relative_error(y, same), tolerance) << "row " << row;
      }
    }
  }
};

constexpr ExpertCodec codecs[] = {ExpertCodec::bf16, ExpertCodec::f32, ExpertCodec::fp8_block,
                                  ExpertCodec::int4_group, ExpertCodec::int4_group_f32};

TEST_F(MoeExpertsCuda, AgreesWithPlainLoopsInEveryCodec) {
  for (const ExpertCodec codec : codecs) {
    for (const int rows : {1, 2, 9, 33}) {
      const Case c = {codec, rows, 256, 128, 16, 4};
      check<float>(c, false, 1);
      check<Bf16>(c, true, 2);
    }
  }
}

TEST_F(MoeExpertsCuda, AgreesForDimensionsOfSmallModels) {
  const Case cases[] = {
      {ExpertCodec::int4_group, 7, 64, 256, 16, 4}, {ExpertCodec::int4_group, 5, 64, 32, 16, 4},
      {ExpertCodec::bf16, 6, 64, 32, 24, 8},        {ExpertCodec::bf16, 6, 64, 4, 24, 8},
      {ExpertCodec::bf16, 3, 60, 20, 8, 2},         {ExpertCodec::fp8_block, 5, 160, 192, 8, 2},
      {ExpertCodec::f32, 5, 36, 12, 8, 3},          {ExpertCodec::bf16, 20, 512, 176, 8, 6},
      {ExpertCodec::int4_group, 3, 96, 40, 5, 5}};
  for (const Case& c : cases) {
    check<float>(c, false, 3);
    check<Bf16>(c, false, 4);
  }
}

TEST_F(MoeExpertsCuda, AgreesForDimensionsOfLargeModels) {
  const Case cases[] = {{ExpertCodec::int4_group, 9, 7168, 256, 12, 4},
                        {ExpertCodec::fp8_block, 9, 7168, 256, 12, 4},
                        {ExpertCodec::bf16, 9, 2048, 1408, 8, 3}};
  for (const Case& c : cases) check<Bf16>(c, false, 5);
}

// Every row's expert 3; none for some experts; up to all rows for one.
TEST_F(MoeExpertsCuda, AgreesForRaggedCounts) {
  for (const ExpertCodec codec :
       {ExpertCodec::bf16, ExpertCodec::fp8_block, ExpertCodec::int4_group}) {
    for (const int rows : {8, 17, 40, 65, 129, 200, 512}) {
      const Case c = {codec, rows, 128, 64, 12, 5};
      check<Bf16>(c, true, 6);
    }
  }
  check<Bf16>({ExpertCodec::int4_group, 300, 64, 64, 2, 1}, true, 7);
  check<Bf16>({ExpertCodec::int4_group, 1024, 64, 64, 40, 8}, false, 8);
}

TEST_F(MoeExpertsCuda, PaddingRowsAreZeroAndOthersDoNotChange) {
  testing::Generator random(9);
  const ExpertShape shape = {256, 64, 16, 0, ExpertCodec::int4_group};
  const auto packed = pack(shape, make_experts(shape, random));
  const int rows = 21;
  auto x = make_rows<Bf16>(rows, shape.hidden, random);
  Routing routing = make_routing(rows, shape.experts, 4, false, random);
  const auto all = run(true, shape, packed, x, routing, rows);
  for (const int row : {0, 5, 6, 20}) {
    std::fill_n(routing.ids.begin() + row * 4, 4, -1);
    std::fill_n(x.begin() + row * shape.hidden, shape.hidden, Bf16{0x7fc0});
  }
  const auto some = run(true, shape, packed, x, routing, rows);
  for (int r = 0; r < rows; ++r) {
    const auto before = std::span(all).subspan(index(r * shape.hidden), index(shape.hidden));
    const auto after = std::span(some).subspan(index(r * shape.hidden), index(shape.hidden));
    if (r == 0 || r == 5 || r == 6 || r == 20) {
      for (const float value : after) ASSERT_EQ(value, 0.0f) << "row " << r;
    } else {
      EXPECT_LE(testing::relative_error(after, before), 1e-3) << "row " << r;
    }
  }
}

// In float32 a row alone and the same row among others have the same bits; in bf16 they differ by
// rounding at most, since more rows of an expert take another way through the tensor cores.
TEST_F(MoeExpertsCuda, ARowDoesNotDependOnTheOthers) {
  alone_and_among_others<float>(0.0);
  alone_and_among_others<Bf16>(1e-3);
}

// Two ranks that hold half the experts each, and two that hold half of each expert.
TEST_F(MoeExpertsCuda, PartsOfTwoRanksAddUp) {
  testing::Generator random(11);
  const ExpertCodec codec = ExpertCodec::bf16;
  const ExpertShape whole = {128, 64, 12, 0, codec};
  const auto experts = make_experts(whole, random);
  const int rows = 19;
  const auto x = make_rows<Bf16>(rows, whole.hidden, random);
  const Routing routing = make_routing(rows, whole.experts, 4, false, random);
  const auto all = run(true, whole, pack(whole, experts), x, routing, rows);
  std::vector<float> by_experts(all.size());
  for (const int first : {0, 5}) {
    const int count = first == 0 ? 5 : 7;
    const ExpertShape shape = {128, 64, count, first, codec};
    const std::vector<testing::TestExpert> own(experts.begin() + first,
                                               experts.begin() + first + count);
    const auto y = run(true, shape, pack(shape, own), x, routing, rows);
    for (std::size_t i = 0; i < y.size(); ++i) by_experts[i] += y[i];
  }
  compare<Bf16>(by_experts, all, rows, "halves of the experts");
}

TEST_F(MoeExpertsCuda, ARankWithoutExpertsOrInnerDimensionGivesZero) {
  testing::Generator random(12);
  const int rows = 5;
  const auto x = make_rows<Bf16>(rows, 64, random);
  const Routing routing = make_routing(rows, 16, 4, false, random);
  const ExpertShape shapes[] = {{64, 32, 0, 0, ExpertCodec::bf16},
                                {64, 0, 16, 0, ExpertCodec::bf16},
                                {64, 32, 2, 100, ExpertCodec::bf16}};
  for (const ExpertShape& shape : shapes) {
    const auto packed = filled(shape.layer_bytes() + 256, 0);
    for (const float value : run(true, shape, packed, x, routing, rows)) ASSERT_EQ(value, 0.0f);
  }
}

TEST_F(MoeExpertsCuda, RandomWeightsAreFiniteAndOfUsefulSize) {
  testing::Generator random(13);
  for (const ExpertCodec codec : codecs) {
    const ExpertShape shape = {256, 128, 8, 0, codec};
    const auto packed = filled(shape.layer_bytes(), 0xff);
    ASSERT_TRUE(
        random_experts(shape, 42, reinterpret_cast<std::byte*>(packed.data()), stream()).ok());
    const int rows = 16;
    const auto x = make_rows<Bf16>(rows, shape.hidden, random);
    const Routing routing = make_routing(rows, shape.experts, 2, false, random);
    double squares = 0;
    const auto y = run(true, shape, packed, x, routing, rows);
    for (const float value : y) squares += static_cast<double>(value) * value;
    const double deviation = std::sqrt(squares / static_cast<double>(y.size()));
    EXPECT_GT(deviation, 0.05) << static_cast<int>(codec);
    EXPECT_LT(deviation, 2.0) << static_cast<int>(codec);
  }
}

}  // namespace
}  // namespace copse::kernels::cuda
