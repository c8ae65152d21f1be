#include "kernels/moe_experts/moe_experts.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/common/testing.h"
#include "kernels/common/tolerance.h"
#include "kernels/common/tree_sum.h"

namespace copse::kernels {
namespace {

using testing::Backend;
using testing::Fill;
using testing::Guarded;
using testing::Inputs;

struct Shape {
  int rows, experts, per_token, hidden, inner, shared_inner;
};
constexpr Shape shapes[] = {{1, 16, 4, 64, 32, 32},  {1, 4, 4, 16, 8, 0},   {9, 16, 4, 80, 24, 48},
                            {33, 16, 4, 64, 32, 32}, {2, 64, 6, 40, 16, 8}, {70, 8, 2, 33, 8, 16}};

// The unsharded weights of a layer, and slices of them.
class Layer {
 public:
  Layer(const Shape& shape, WeightType type, Inputs& values) : shape_(shape), type_(type) {
    for (int e = 0; e < shape.experts; ++e) experts_.push_back(floats(shape.inner, values));
    shared_ = floats(shape.shared_inner, values);
  }

  struct Part {
    std::vector<ExpertWeights> experts;
    ExpertWeights shared;
    MoeLayer view;
  };
  // Rank `rank` of `ranks`, leaves of the whole world / ranks.
  void slice(Part& part, int rank, int ranks, int leaves, bool whole_experts) const {
    const int count = shape_.experts / ranks;
    const int inner = shape_.inner / ranks;
    part.view.whole_experts = whole_experts;
    part.view.leaves = leaves / ranks;
    if (whole_experts) {
      part.view.first_expert = rank * count;
      for (int e = rank * count; e < (rank + 1) * count; ++e) {
        part.experts.push_back(pack(experts_[at(e)], shape_.inner, 0, shape_.inner));
      }
    } else {
      for (int e = 0; e < shape_.experts; ++e) {
        part.experts.push_back(pack(experts_[at(e)], shape_.inner, rank * inner, inner));
      }
    }
    part.view.experts = part.experts;
    if (shape_.shared_inner == 0) return;
    const int shared = shape_.shared_inner / ranks;
    part.shared = pack(shared_, shape_.shared_inner, rank * shared, shared);
    part.view.shared = &part.shared;
  }

  // Float64, with the sum of magnitudes of what is added last.
  void exact(const float* x, const std::int32_t* ids, const float* weights, std::vector<double>& y,
             std::vector<double>& magnitude) const {
    y.assign(at(shape_.hidden), 0);
    magnitude.assign(at(shape_.hidden), 0);
    for (int i = 0; i < shape_.per_token; ++i) {
      add_exact(x, experts_[at(ids[i])], shape_.inner, weights[i], y, magnitude);
    }
    if (shape_.shared_inner > 0) add_exact(x, shared_, shape_.shared_inner, 1, y, magnitude);
  }

 private:
  struct Floats {
    std::vector<float> gate, up, down;  // [inner][hidden], [inner][hidden], [hidden][inner]
  };
  static std::size_t at(int index) { return static_cast<std::size_t>(index); }

  Floats floats(int inner, Inputs& values) const {
    Floats result;
    for (auto* tensor : {&result.gate, &result.up, &result.down}) {
      tensor->resize(at(inner * shape_.hidden));
      for (float& value : *tensor) value = to_float(to_bf16(values.next() / 4));
    }
    return result;
  }

  PackedWeight pack_one(const float* source, int outputs, int inputs, int stride) const {
    if (type_ == WeightType::float32) return pack_weight(source, outputs, inputs, stride);
    std::vector<Bf16> halves(at(outputs * inputs));
    for (int o = 0; o < outputs; ++o) {
      for (int k = 0; k < inputs; ++k) {
        halves[at(o * inputs + k)] = to_bf16(source[o * stride + k]);
      }
    }
    return pack_weight(halves.data(), outputs, inputs, inputs);
  }

  ExpertWeights pack(const Floats& from, int inner, int first, int count) const {
    const int hidden = shape_.hidden;
    return {pack_one(from.gate.data() + first * hidden, count, hidden, hidden),
            pack_one(from.up.data() + first * hidden, count, hidden, hidden),
            pack_one(from.down.data() + first, hidden, count, inner)};
  }

  void add_exact(const float* x, const Floats& expert, int inner, double weight,
                 std::vector<double>& y, std::vector<double>& magnitude) const {
    for (int i = 0; i < inner; ++i) {
      double gate = 0, up = 0, gate_size = 0, up_size = 0;
      for (int k = 0; k < shape_.hidden; ++k) {
        const double g = static_cast<double>(x[k]) * expert.gate[at(i * shape_.hidden + k)];
        const double u = static_cast<double>(x[k]) * expert.up[at(i * shape_.hidden + k)];
        gate += g, up += u, gate_size += std::abs(g), up_size += std::abs(u);
      }
      const double silu = gate / (1 + std::exp(-gate));
      for (int n = 0; n < shape_.hidden; ++n) {
        const double down = expert.down[at(n * inner + i)] * weight;
        y[at(n)] += silu * up * down;
        // Errors of the gate and of up reach the product through the other factor.
        magnitude[at(n)] += (gate_size * up_size + 1e-30) * std::abs(down) * 1.2;
      }
    }
  }

  Shape shape_;
  WeightType type_;
  std::vector<Floats> experts_;
  Floats shared_;
};

struct Routes {
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
};

Routes make_routes(const Shape& s, std::uint64_t seed) {
  Routes routes;
  SeededRandom random(seed);
  for (int r = 0; r < s.rows; ++r) {
    std::vector<std::int32_t> all;
    for (int e = 0; e < s.experts; ++e) all.push_back(e);
    for (std::size_t i = 0; i + 1 < all.size(); ++i) {
      std::swap(all[i], all[i + random.below(all.size() - i)]);
    }
    all.resize(static_cast<std::size_t>(s.per_token));
    std::sort(all.begin(), all.end());
    routes.ids.insert(routes.ids.end(), all.begin(), all.end());
    for (int i = 0; i < s.per_token; ++i) {
      routes.weights.push_back(static_cast<float>(random.below(1000)) / 1000.0f);
    }
  }
  return routes;
}

class MoeExperts : public ::testing::TestWithParam<Backend> {
 protected:
  void run(const Shape& s, ConstMatrix x, const Routes& routes, const MoeLayer& layer, Matrix y) {
    testing::UseBackend use(GetParam());
    if (GetParam().reference) {
      ref::moe_experts(x, routes.ids, routes.weights, s.per_token, layer, y);
      return;
    }
    MoeWorkspace workspace(x.rows, s.per_token, s.experts, s.inner, s.shared_inner, s.hidden);
    for (auto* floats :
         {&workspace.activation, &workspace.shared_activation, &workspace.leaf_sums}) {
      std::fill(floats->begin(), floats->end(), testing::nan_poison);
    }
    moe_experts(x, routes.ids, routes.weights, s.per_token, layer, y, workspace, use.pool);
  }
};

TEST_P(MoeExperts, AllShapesAndInputs) {
  for (const Shape& s : shapes) {
    for (const Fill fill : testing::fills) {
      for (const WeightType type : {WeightType::bf16, WeightType::float32}) {
        for (const bool whole : {false, true}) {
          Inputs values(fill);
          const Layer layer(s, type, values);
          Guarded x(s.rows, s.hidden, testing::nan_poison);
          x.fill(values);
          const Routes routes = make_routes(s, 3);
          const int leaves = whole && s.experts < 8 ? 4 : 8;
          Layer::Part part;
          layer.slice(part, 0, 1, leaves, whole);
          Guarded y(s.rows, s.hidden, testing::huge_poison);
          Guarded expected(s.rows, s.hidden, testing::huge_poison);
          run(s, x.view(), routes, part.view, y.view());
          ref::moe_experts(x.view(), routes.ids, routes.weights, s.per_token, part.view,
                           expected.view());
          EXPECT_TRUE(y.intact());
          std::vector<double> exact, magnitude;
          for (int r = 0; r < s.rows; ++r) {
            const auto first = static_cast<std::size_t>(r * s.per_token);
            layer.exact(x.view().row(r), routes.ids.data() + first, routes.weights.data() + first,
                        exact, magnitude);
            for (int n = 0; n < s.hidden; ++n) {
              const auto at = static_cast<std::size_t>(n);
              ASSERT_TRUE(testing::same(y.view().row(r)[n], expected.view().row(r)[n]))
                  << r << ' ' << n;
              ASSERT_TRUE(within_tolerance(y.view().row(r)[n], exact[at], magnitude[at],
                                           s.hidden + s.inner + s.shared_inner))
                  << y.view().row(r)[n] << " for " << exact[at];
            }
          }
        }
      }
    }
  }
}

TEST_P(MoeExperts, ARowIsTheSameAlone) {
  const Shape s = {33, 16, 4, 64, 32, 32};
  Inputs values(Fill::random);
  const Layer layer(s, WeightType::bf16, values);
  Layer::Part part;
  layer.slice(part, 0, 1, 8, false);
  Guarded x(s.rows, s.hidden, testing::nan_poison);
  x.fill(values);
  const Routes routes = make_routes(s, 5);
  Guarded y(s.rows, s.hidden, testing::nan_poison);
  run(s, x.view(), routes, part.view, y.view());
  for (int r = 0; r < s.rows; ++r) {
    const auto from = static_cast<std::ptrdiff_t>(r * s.per_token);
    const Routes one = {
        {routes.ids.begin() + from, routes.ids.begin() + from + s.per_token},
        {routes.weights.begin() + from, routes.weights.begin() + from + s.per_token}};
    Guarded alone(1, s.hidden, testing::nan_poison);
    run(s, {x.view().row(r), 1, s.hidden, s.hidden}, one, part.view, alone.view());
    for (int n = 0; n < s.hidden; ++n) ASSERT_EQ(alone.view().row(0)[n], y.view().row(r)[n]);
  }
}

TEST_P(MoeExperts, RanksAddUpToOneRank) {
  const Shape s = {5, 16, 4, 48, 32, 32};
  Inputs values(Fill::random);
  const Layer layer(s, WeightType::bf16, values);
  Guarded x(s.rows, s.hidden, testing::nan_poison);
  x.fill(values);
  const Routes routes = make_routes(s, 7);
  for (const bool whole : {false, true}) {
    Layer::Part all;
    layer.slice(all, 0, 1, 8, whole);
    Guarded y(s.rows, s.hidden, testing::nan_poison);
    run(s, x.view(), routes, all.view, y.view());
    for (const int ranks : {2, 4, 8}) {
      std::vector<Guarded> parts;
      for (int rank = 0; rank < ranks; ++rank) {
        Layer::Part part;
        layer.slice(part, rank, ranks, 8, whole);
        parts.emplace_back(s.rows, s.hidden, testing::nan_poison);
        run(s, x.view(), routes, part.view, parts.back().view());
      }
      for (int r = 0; r < s.rows; ++r) {
        for (int n = 0; n < s.hidden; ++n) {
          float sums[8];
          for (int rank = 0; rank < ranks; ++rank) {
            sums[rank] = parts[static_cast<std::size_t>(rank)].view().row(r)[n];
          }
          ASSERT_EQ(tree_sum_leaves(sums, ranks), y.view().row(r)[n]) << ranks << whole;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, MoeExperts, ::testing::ValuesIn(testing::backends()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace copse::kernels
