#pragma once
// Scoring (model/score/scorer.h) on a GPU: logits of a given text and of a tree behind a prefix of
// it. Every rank of the group makes the same calls.
#include <string>

#include "base/result.h"
#include "kernels/verify_attention/verify_attention_cuda.h"
#include "model/score/scorer.h"
#include "model/weights/load_progress.h"
#include "transport/collective/device_collective.h"

namespace copse {

struct CudaScoreOptions {
  std::string model;  // checkpoint folder
  int device = 0;
  bool float32 = false;
  kernels::cuda::VerifyVersion verify = kernels::cuda::VerifyVersion::automatic;
};

class CudaScorer {
 public:
  virtual ~CudaScorer() = default;
  // Errors name the file, tensor or key; or a device that is not there.
  static Result<std::unique_ptr<CudaScorer>> load(const CudaScoreOptions& options,
                                                  DeviceCollective& group,
                                                  const OnWeightsRead& progress = {});
  virtual Result<ScoreOutput> score(const ScoreInput& input) = 0;
  virtual const ModelConfig& config() const = 0;
};

}  // namespace copse
