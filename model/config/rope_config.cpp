#include "model/config/rope_config.h"

#include "base/limits.h"
#include "kernels/rope/rope.h"

namespace copse {

using kernels::yarn_mscale;

RopeConfig read_rope(ConfigReader& reader, int positions_max) {
  RopeConfig rope;
  ConfigReader part =
      reader.object(reader.has("rope_parameters") ? "rope_parameters" : "rope_scaling");
  const double top_theta = reader.number("rope_theta", 1.0, 1e12, 10000.0);
  rope.theta = part.number("rope_theta", 1.0, 1e12, top_theta);
  rope.interleaved = reader.boolean("rope_interleave", true);
  const std::string type = part.text(part.has("rope_type") ? "rope_type" : "type", "default");
  if (type == "yarn") {
    rope.original_positions =
        part.integer("original_max_position_embeddings", 1, limits::sequence_tokens, positions_max);
    rope.factor = part.number("factor", 1.0, 1e6,
                              static_cast<double>(positions_max) / rope.original_positions);
    rope.beta_fast = part.number("beta_fast", 1e-3, 1e6, 32.0);
    rope.beta_slow = part.number("beta_slow", 1e-3, 1e6, 1.0);
    rope.mscale = part.number("mscale", 0.0, 100.0, 0.0);
    rope.mscale_all_dim = part.number("mscale_all_dim", 0.0, 100.0, 0.0);
    const bool ratio = rope.mscale > 0.0 && rope.mscale_all_dim > 0.0;
    const double inferred = ratio ? yarn_mscale(rope.factor, rope.mscale) /
                                        yarn_mscale(rope.factor, rope.mscale_all_dim)
                                  : yarn_mscale(rope.factor, 1.0);
    rope.attention_factor = part.number("attention_factor", 1e-3, 1e3, inferred);
    if (!part.boolean("truncate", true)) {
      part.fail(ErrorCode::unsupported, "truncate", "only true is known");
    }
  } else if (type != "default") {
    part.fail(ErrorCode::unsupported, "rope_type", "only default and yarn are known");
  }
  reader.absorb(part);
  return rope;
}

}  // namespace copse
