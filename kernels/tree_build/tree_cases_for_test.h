#pragma once
// Trees and walks of the published reference code: COPSE_ORACLE_DIR names their folder.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "base/json.h"

namespace copse::kernels::testing {

inline Json load_tree_cases() {
  const char* folder = std::getenv("COPSE_ORACLE_DIR");
  const std::string path =
      std::string(folder != nullptr ? folder : "tests/oracle/data") + "/tree_cases.json";
  JsonBounds bounds;
  bounds.bytes = 64u << 20;
  bounds.nodes = 8u << 20;
  Result<Json> cases = read_json_file(path, bounds);
  EXPECT_TRUE(cases.ok()) << path << ": " << (cases.ok() ? "" : describe(cases.error()));
  return cases.ok() ? *cases : Json::array();
}

template <class T>
std::vector<T> flat(const Json& rows) {
  std::vector<T> result;
  for (const Json& row : rows) {
    for (const Json& value : row) result.push_back(value.get<T>());
  }
  return result;
}

}  // namespace copse::kernels::testing
