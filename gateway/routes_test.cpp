#include "gateway/routes.h"

#include <gtest/gtest.h>

#include <set>

namespace copse {
namespace {

TEST(Routes, EveryRouteIsListedHereWithWhoMayUseIt) {
  std::set<std::string> open;
  std::set<std::string> user;
  for (const Route& route : routes()) {
    (route.access == Access::open ? open : user)
        .insert(std::string(route.method) + " " + std::string(route.path));
  }
  EXPECT_EQ(open, (std::set<std::string>{"GET /", "GET /health"}));
  EXPECT_EQ(user, (std::set<std::string>{"GET /metrics", "GET /v1/models", "POST /v1/completions",
                                         "POST /v1/chat/completions"}));
}

TEST(Routes, WhatIsNotListedDoesNotExist) {
  for (const char* path :
       {"/v1", "/v1/", "/v1/completions/", "//health", "/health/", "/V1/models", "/invocations",
        "/v1/embeddings", "", "*", "/v1/models/../completions"}) {
    EXPECT_EQ(match_route("GET", path).status, 404) << path;
    EXPECT_EQ(match_route("OPTIONS", path).status, 404) << path;
  }
}

TEST(Routes, AWrongMethodIsToldTheRightOnes) {
  EXPECT_EQ(match_route("DELETE", "/health").status, 405);
  EXPECT_EQ(match_route("GET", "/v1/completions").allow, "POST, OPTIONS");
  EXPECT_EQ(match_route("OPTIONS", "/health").status, 204);
  EXPECT_EQ(match_route("OPTIONS", "/health").allow, "GET, HEAD, OPTIONS");
}

TEST(Routes, HeadIsServedAsGetAndTheQueryIsNoPartOfThePath) {
  EXPECT_EQ(match_route("HEAD", "/health").route->resource, Resource::health);
  EXPECT_EQ(match_route("GET", "/health?deep=1").route->resource, Resource::health);
}

}  // namespace
}  // namespace copse
