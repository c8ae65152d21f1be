#include "tools/cli/yaml_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tools/cli/engine_options.h"

namespace copse::cli {
namespace {

class YamlConfig : public ::testing::Test {
 protected:
  YamlConfig() { add_engine_options(app_, options_); }

  Status apply(const std::string& text) {
    const std::string path = ::testing::TempDir() + "/config.yaml";
    std::ofstream(path) << text;
    return apply_yaml_config(path, app_);
  }

  CLI::App app_;
  EngineOptions options_;
};

TEST_F(YamlConfig, GivesKeysToTheirFlagsAndTheCommandLineWins) {
  app_.parse("--tp 4");
  ASSERT_TRUE(apply("model: models/x  # a comment\ntp: 8\ndraft: tree\n").ok());
  EXPECT_EQ(options_.model, "models/x");
  EXPECT_EQ(options_.draft, "tree");
  EXPECT_EQ(options_.tp, 4);
}

TEST_F(YamlConfig, NamesTheKeyThatIsWrong) {
  EXPECT_EQ(apply("modle: x\n").error().field, "modle");
  EXPECT_EQ(apply("tp: 3\n").error().field, "tp");
  EXPECT_EQ(apply("tp: [1, 2]\n").error().field, "tp");
  EXPECT_EQ(apply("max-num-seqs: many\n").error().field, "max-num-seqs");
}

TEST_F(YamlConfig, RefusesWhatIsNoMap) {
  EXPECT_EQ(apply("- a\n- b\n").error().field, "--config");
  EXPECT_THAT(apply("a: [1, 2\n").error().message, ::testing::HasSubstr("line"));
  EXPECT_EQ(apply_yaml_config("/nonexistent.yaml", app_).error().code, ErrorCode::not_found);
}

TEST_F(YamlConfig, TheFilesInConfigsHaveOnlyKnownKeys) {
  CLI::App serve;
  EngineOptions options;
  add_engine_options(serve, options);
  std::string host, port;
  serve.add_option("--host", host);
  serve.add_option("--port", port);
  for (const char* file : {"configs/sapling.yaml", "configs/sapling-tp8.yaml"}) {
    const Status status = apply_yaml_config(file, serve);
    EXPECT_TRUE(status.ok()) << file << ": " << describe(status.error());
  }
}

}  // namespace
}  // namespace copse::cli
