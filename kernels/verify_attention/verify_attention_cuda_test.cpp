#include "kernels/verify_attention/verify_attention_cuda.h"

#include "kernels/verify_attention/verify_world.h"

namespace copse::kernels::cuda {
namespace {

using testing::count_of;
using testing::VerifyWorld;
using Sequence = testing::VerifyPlanOfTest;

struct Kind {
  std::string name;
  VerifyVersion version;
  bool bf16;
};
std::ostream& operator<<(std::ostream& out, const Kind& kind) {
  return out << kind.name;
}

class VerifyAttentionCuda : public testing::CudaTest, public ::testing::WithParamInterface<Kind> {
 protected:
  bool hopper() const { return GetParam().version == VerifyVersion::hopper; }

  VerifyShape shape(int heads, int latent, int rope, int sequences, int rows) const {
    return {heads, latent, rope, std::max(rows, 70), sequences, rows, GetParam().version};
  }

  // Runs twice over poisoned memory: near the expectation, and the same bits.
  template <class T>
  void check(VerifyWorld<T>& world, const std::string& what) {
    ASSERT_TRUE(world.launch(stream()).ok()) << what;
    synchronize();
    const std::vector<float> actual = world.out();
    compare(world, actual, what);
    world.poison();
    ASSERT_TRUE(world.launch(stream()).ok()) << what;
    synchronize();
    const std::vector<float> again = world.out();
    for (std::size_t i = 0; i < actual.size(); ++i) {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(actual[i]), std::bit_cast<std::uint32_t>(again[i]))
          << what << ": not the same twice at " << i << ": " << actual[i] << ' ' << again[i];
    }
  }

  template <class T>
  void compare(VerifyWorld<T>& world, const std::vector<float>& actual, const std::string& what) {
    const std::vector<float> expected = world.expected();
    const auto width = count_of(world.shape().heads, world.shape().latent);
    const bool exact = GetParam().version == VerifyVersion::naive && sizeof(T) == 4;
    for (std::size_t row = 0; row * width < expected.size(); ++row) {
      const std::span<const float> a(actual.data() + row * width, width);
      const std::span<const float> e(expected.data() + row * width, width);
      const auto s = row / count_of(world.shape().rows_per_sequence_max);
      const auto at = what + ", sequence " + std::to_string(s) + " row " +
                      std::to_string(row % count_of(world.shape().rows_per_sequence_max));
      if (std::isnan(e[0])) {  // no row's output
        for (std::size_t i = 0; i < width; ++i) ASSERT_TRUE(std::isnan(a[i])) << at << ' ' << i;
        continue;
      }
      const double error = testing::relative_error(a, e);
      if (error < testing::tolerance<T>() && (!exact || error == 0)) continue;
      std::size_t i = 0;
      while (std::abs(a[i] - e[i]) <= (exact ? 0 : testing::tolerance<T>() * 3)) ++i;
      FAIL() << at << ": error " << error << ", first at head "
             << i / count_of(world.shape().latent) << " column "
             << i % count_of(world.shape().latent) << ": " << a[i] << ", expected " << e[i];
    }
  }

  template <class T>
  void check_one(int heads, int latent, int rope, Sequence sequence, int rows_max = 0) {
    const std::string what = std::to_string(heads) + " heads, latent " + std::to_string(latent) +
                             ", prefix " + std::to_string(sequence.prefix) + ", rows " +
                             std::to_string(sequence.rows()) +
                             (sequence.masked ? ", tree" : ", chain");
    VerifyWorld<T> world(shape(heads, latent, rope, 1, std::max(rows_max, sequence.rows())),
                         {sequence}, 0.17f);
    check(world, what);
  }
  template <class Body>
  void with_type(const Body& body) {
    GetParam().bf16 ? body(Bf16()) : body(float());
  }
  // Dimensions that the version can do.
  int latent() const { return hopper() ? 512 : 64; }
  int rope() const { return hopper() ? 64 : 32; }
};

TEST_P(VerifyAttentionCuda, PrefixLengths) {
  with_type([&](auto t) {
    for (const int prefix : {0, 1, 15, 31, 32, 63, 64, 65, 127, 128, 129, 200, 1000}) {
      check_one<decltype(t)>(8, latent(), rope(), Sequence::tree(prefix, 9, 3));
      check_one<decltype(t)>(8, latent(), rope(), Sequence::chain(prefix, 5));
      if (HasFatalFailure()) return;
    }
  });
}

TEST_P(VerifyAttentionCuda, Nodes) {
  with_type([&](auto t) {
    for (const int rows : {1, 2, 3, 7, 8, 9, 10, 11, 17, 33, 63, 64, 65, 100, 128, 200, 513}) {
      check_one<decltype(t)>(8, latent(), rope(), Sequence::tree(130, rows, 5));
      check_one<decltype(t)>(8, latent(), rope(), Sequence::chain(70, rows));
      if (HasFatalFailure()) return;
    }
  });
}

TEST_P(VerifyAttentionCuda, Heads) {
  with_type([&](auto t) {
    for (const int heads : {1, 2, 3, 8, 16, 64, 128}) {
      check_one<decltype(t)>(heads, latent(), rope(), Sequence::tree(100, 9, 7));
      check_one<decltype(t)>(heads, latent(), rope(), Sequence::chain(300, 1), 4);
      if (HasFatalFailure()) return;
    }
  });
}

TEST_P(VerifyAttentionCuda, Dimensions) {
  if (hopper()) return;  // has one pair
  with_type([&](auto t) {
    for (const int latent : {8, 32, 40, 64, 96, 256, 512}) {
      for (const int rope : {8, 32, 64}) {
        check_one<decltype(t)>(8, latent, rope, Sequence::tree(90, 9, 11));
        if (HasFatalFailure()) return;
      }
    }
  });
}

TEST_P(VerifyAttentionCuda, LongPrefixesAreSplit) {
  with_type([&](auto t) {
    using T = decltype(t);
    for (const int prefix : {5000, 20011}) {
      check_one<T>(8, 512, 64, Sequence::tree(prefix, 9, 13));
      check_one<T>(8, 512, 64, Sequence::chain(prefix, 1));
      check_one<T>(16, 512, 64, Sequence::tree(prefix, 21, 15));
      if (HasFatalFailure()) return;
    }
    check_one<T>(64, 512, 64, Sequence::tree(3000, 33, 17));
  });
}

TEST_P(VerifyAttentionCuda, RaggedBatches) {
  with_type([&](auto t) {
    using T = decltype(t);
    std::vector<Sequence> sequences;
    for (int s = 0; s < 32; ++s) {
      if (s % 7 == 3) {
        sequences.push_back(Sequence::chain(s * 10, 0));
      } else if (s % 3 == 0) {
        sequences.push_back(Sequence::chain(s * s, 1 + s % 17));
      } else {
        sequences.push_back(Sequence::tree(s * 37 % 900, 1 + s * 5 % 17, 100 + count_of(s)));
      }
    }
    VerifyWorld<T> all(shape(8, latent(), rope(), 32, 17), sequences, 0.17f);
    check(all, "32 sequences");
    VerifyWorld<T> uneven(shape(16, latent(), rope(), 4, 65),
                          {Sequence::tree(9000, 9, 1), Sequence::chain(0, 65),
                           Sequence::tree(64, 1, 2), Sequence::chain(300, 0)},
                          0.17f);
    check(uneven, "uneven");
    VerifyWorld<T> nothing(shape(8, latent(), rope(), 2, 5),
                           {Sequence::chain(10, 0), Sequence::chain(0, 0)}, 0.17f);
    check(nothing, "no rows at all");
  });
}

// Scores far apart: the largest is found late, early, and over many orders of magnitude.
TEST_P(VerifyAttentionCuda, SharpScores) {
  with_type([&](auto t) {
    using T = decltype(t);
    for (const float scale : {1.5f, 6.0f, 1e-6f}) {
      VerifyWorld<T> world(shape(8, latent(), rope(), 2, 21),
                           {Sequence::tree(1500, 21, 4), Sequence::tree(100, 12, 5)}, scale, 9);
      check(world, "scale " + std::to_string(scale));
    }
  });
}

// One captured graph of a plan and two layers serves whatever lengths the device holds.
TEST_P(VerifyAttentionCuda, OneGraphServesAllLengths) {
  with_type([&](auto t) {
    using T = decltype(t);
    VerifyWorld<T> world(shape(8, latent(), rope(), 2, 33),
                         {Sequence::tree(3000, 33, 4), Sequence::tree(700, 33, 5)}, 0.17f);
    ASSERT_TRUE(world.launch(stream()).ok());
    synchronize();
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    ASSERT_EQ(cudaStreamBeginCapture(stream(), cudaStreamCaptureModeThreadLocal), cudaSuccess);
    ASSERT_TRUE(world.launch(stream()).ok());
    ASSERT_TRUE(verify_attention(world.call(), stream()).ok());
    ASSERT_EQ(cudaStreamEndCapture(stream(), &graph), cudaSuccess);
    ASSERT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
    for (const int prefix : {3000, 2048, 65, 0}) {
      world.replan({Sequence::tree(prefix, 33 - prefix % 31, 6), Sequence::tree(prefix / 5, 2, 7)});
      world.poison();
      ASSERT_EQ(cudaGraphLaunch(exec, stream()), cudaSuccess);
      synchronize();
      compare(world, world.out(), "replayed, prefix " + std::to_string(prefix));
      if (HasFatalFailure()) break;
    }
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
  });
}

const Kind kinds[] = {{"naive_f32", VerifyVersion::naive, false},
                      {"naive_bf16", VerifyVersion::naive, true},
                      {"portable_f32", VerifyVersion::portable, false},
                      {"portable_bf16", VerifyVersion::portable, true},
                      {"prefix_tail_f32", VerifyVersion::prefix_tail, false},
                      {"prefix_tail_bf16", VerifyVersion::prefix_tail, true},
                      {"hopper_bf16", VerifyVersion::hopper, true}};

INSTANTIATE_TEST_SUITE_P(Versions, VerifyAttentionCuda, ::testing::ValuesIn(kinds),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace copse::kernels::cuda
