#include "base/plugin.h"

#include <gtest/gtest.h>

namespace copse {
namespace {

TEST(PluginSymbol, WhatIsNotThereIsNamed) {
  const auto missing = plugin_symbol("libcopse_nothing.so", "anything");
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, ErrorCode::not_found);
  EXPECT_EQ(missing.error().field, "libcopse_nothing.so");
}

TEST(PluginSymbol, WhatIsNoLibraryIsAnErrorAndNotTheEnd) {
  const auto program = plugin_symbol("base_test", "anything");
  ASSERT_FALSE(program.ok());
  EXPECT_EQ(program.error().code, ErrorCode::unsupported);
  EXPECT_FALSE(program.error().message.empty());
}

}  // namespace
}  // namespace copse
