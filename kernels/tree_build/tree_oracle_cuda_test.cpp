// Trees of the published reference code, exactly, by the GPU's builder. Budgets above
// limits::tree_nodes are cut: best-first order makes the smaller tree a prefix of the larger.
#include <algorithm>

#include "base/limits.h"
#include "kernels/common/cuda/testing.h"
#include "kernels/tree_build/tree_build_cuda.h"
#include "kernels/tree_build/tree_cases_for_test.h"

namespace copse::kernels::cuda {
namespace {

using kernels::testing::flat;
using testing::download;
using testing::upload;

class TreeCasesCuda : public testing::CudaTest {
 protected:
  void expect_nodes(const Json& tree_case) {
    const int budget = std::min(tree_case["budget"].get<int>(), limits::tree_nodes);
    const auto rows = static_cast<std::size_t>(1 + budget);
    TreeBuildCall call;
    call.sequences = 1;
    call.positions = call.candidate_rows = tree_case["positions"].get<int>();
    call.k = tree_case["top_k"].get<int>();
    call.rows_per_sequence = 1 + budget;
    const auto log_probs = upload(flat<float>(tree_case["log_probs"]));
    const auto token_ids = upload(flat<TokenId>(tree_case["token_ids"]));
    const auto budgets = upload(std::vector<std::int32_t>{budget});
    const auto chain = upload(std::vector<std::int32_t>{0});
    const auto root_token = upload(std::vector<TokenId>{7});
    const auto root_position = upload(std::vector<std::int32_t>{1000});
    const auto tokens = upload(std::vector<TokenId>(rows));
    const auto parents = upload(std::vector<std::int32_t>(rows));
    const auto positions = upload(std::vector<std::int32_t>(rows));
    const auto ancestors =
        upload(std::vector<std::uint64_t>(rows * static_cast<std::size_t>(call.mask_words())));
    const auto built = upload(std::vector<std::int32_t>(1));
    call.log_probs = log_probs.data();
    call.token_ids = token_ids.data();
    call.budget = budgets.data();
    call.chain = chain.data();
    call.root_token = root_token.data();
    call.root_position = root_position.data();
    call.row_tokens = tokens.data();
    call.row_parents = parents.data();
    call.row_positions = positions.data();
    call.ancestors = ancestors.data();
    call.rows = built.data();
    ASSERT_TRUE(tree_build(call, stream()).ok());
    synchronize();

    const Json& nodes = tree_case["nodes"];
    const std::size_t count = std::min<std::size_t>(nodes["token_ids"].size(), limits::tree_nodes);
    ASSERT_EQ(download(built)[0], 1 + static_cast<int>(count));
    const auto actual_tokens = download(tokens);
    const auto actual_parents = download(parents);
    const auto actual_positions = download(positions);
    for (std::size_t i = 0; i < count; ++i) {
      ASSERT_EQ(actual_tokens[i + 1], nodes["token_ids"][i].get<TokenId>()) << "node " << i;
      ASSERT_EQ(actual_parents[i + 1], nodes["parents"][i].get<int>()) << "node " << i;
      ASSERT_EQ(actual_positions[i + 1] - 1000, nodes["depths"][i].get<int>()) << "node " << i;
    }
  }
};

TEST_F(TreeCasesCuda, NodesEqualThePublishedReference) {
  const Json cases = kernels::testing::load_tree_cases();
  ASSERT_FALSE(cases.empty());
  int number = 0;
  for (const Json& tree_case : cases) {
    SCOPED_TRACE("case " + std::to_string(number++));
    expect_nodes(tree_case);
  }
}

}  // namespace
}  // namespace copse::kernels::cuda
