#pragma once
// Every path that is served, with its method and who may use it. What is not listed does not exist:
// an unknown path is 404, a known one with another method 405.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/limits.h"

namespace copse {

enum class Resource : std::uint8_t { root, health, metrics, models, completions, chat_completions };

// Who may use a route. Every route names one: there is no default to forget.
enum class Access : std::uint8_t {
  open,  // orchestrators and monitors, without a key
  user,  // whoever may generate: holders of a key, once keys are configured
};

struct Route {
  std::string_view method;  // GET also serves HEAD
  std::string_view path;
  Access access;
  std::size_t body_bytes;  // limit; more is 413
  Resource resource;
};

std::span<const Route> routes();

struct RouteMatch {
  const Route* route = nullptr;
  int status = 0;     // 200, 204 for OPTIONS, 404 or 405
  std::string allow;  // the Allow field with 204 and 405
};

// `target` is a request target with or without query.
RouteMatch match_route(std::string_view method, std::string_view target);
std::string_view path_of(std::string_view target);

}  // namespace copse
