#include "tools/cli/bench_context.h"

namespace copse::cli {

Result<std::vector<BenchSide>> bench_sides(const BenchContextOptions& options) {
  std::vector<BenchSide> sides;
  if (options.ab.empty()) {
    sides.emplace_back().engine = options.engine;
    COPSE_RETURN_IF_ERROR(complete(sides[0].engine));
    return sides;
  }
  COPSE_TRY(const Switch ab, parse_switch(options.ab));
  for (const std::string& value : {ab.a, ab.b}) {
    COPSE_TRY(EngineOptions engine, with_switch(options.engine, ab.key, value));
    COPSE_RETURN_IF_ERROR(complete(engine));
    BenchSide& side = sides.emplace_back();
    side.name = ab.key + "=" + value;
    side.engine = std::move(engine);
  }
  COPSE_RETURN_IF_ERROR(check_one_difference(configuration(sides[0].engine),
                                             configuration(sides[1].engine), first_name(ab.key)));
  return sides;
}

}  // namespace copse::cli
