#include "gateway/routes.h"

namespace copse {
namespace {

constexpr Route kRoutes[] = {
    {"GET", "/", Access::open, limits::other_body_bytes, Resource::root},
    {"GET", "/health", Access::open, limits::other_body_bytes, Resource::health},
    {"GET", "/metrics", Access::user, limits::other_body_bytes, Resource::metrics},
    {"GET", "/v1/models", Access::user, limits::other_body_bytes, Resource::models},
    {"POST", "/v1/completions", Access::user, limits::chat_body_bytes, Resource::completions},
    {"POST", "/v1/chat/completions", Access::user, limits::chat_body_bytes,
     Resource::chat_completions},
};

}  // namespace

std::span<const Route> routes() {
  return kRoutes;
}

std::string_view path_of(std::string_view target) {
  return target.substr(0, target.find('?'));
}

RouteMatch match_route(std::string_view method, std::string_view target) {
  const std::string_view path = path_of(target);
  std::string allow;
  for (const Route& route : kRoutes) {
    if (route.path != path) continue;
    if (method == route.method || (method == "HEAD" && route.method == "GET")) {
      return {&route, 200, ""};
    }
    if (!allow.empty()) allow += ", ";
    allow += route.method == "GET" ? "GET, HEAD" : route.method;
  }
  if (allow.empty()) return {nullptr, 404, ""};
  allow += ", OPTIONS";
  return {nullptr, method == "OPTIONS" ? 204 : 405, allow};
}

}  // namespace copse
