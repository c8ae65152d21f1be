#pragma once
// Captured rounds, one graph a key, and the events and pinned memory around them.
#include <functional>
#include <map>

#include "base/result.h"
#include "worker/cuda/round_cuda.h"

struct CUgraphExec_st;
struct CUevent_st;

namespace copse {

class GraphCache {
 public:
  using Stream = kernels::cuda::Stream;
  using Launches = std::function<Status(Stream)>;

  GraphCache() = default;
  GraphCache(const GraphCache&) = delete;
  GraphCache& operator=(const GraphCache&) = delete;
  ~GraphCache();

  // Captures what `launches` puts on a stream; nothing runs. Each of its kernels has run before, so
  // that no lazy loading falls into the capture.
  Status capture(const RoundKey& key, const Launches& launches, Stream stream);
  bool has(const RoundKey& key) const { return graphs_.contains(key); }
  Status launch(const RoundKey& key, Stream stream);
  std::size_t count() const { return graphs_.size(); }
  // A communicator's graphs must go with it.
  void clear();

 private:
  std::map<RoundKey, CUgraphExec_st*> graphs_;
};

}  // namespace copse
