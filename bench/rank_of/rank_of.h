#pragma once
// One rank of a tensor-parallel group, alone on one GPU with random weights: how long its share of
// a verify step takes at a given context and tree size, where the time goes, and how far that is
// from the bytes that the step had to move. Collectives are left out. Random weights route unlike
// trained ones, so every row is given experts of its own, each as likely as any other.
#include <array>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/cuda/pass_observer.h"

namespace copse {

struct RankOfOptions {
  std::string model;  // folder with a config.json
  int tp = 8;
  int layers = 0;  // 0: all of the config
  std::vector<int> contexts = {4096, 65536};
  std::vector<int> nodes = {1, 9, 17, 33, 65};
  int replays = 20;
};

struct RankOfRow {
  int context = 0;
  int nodes = 0;
  double step_us = 0;                         // median of the replays of one graph
  std::array<double, pass_parts> split_us{};  // of a graph with events between its parts
  double experts_touched = 0;                 // a layer of experts, mean
  double bytes = 0;                           // that had to move
  double floor_us = 0;                        // at the measured reading rate
};

struct RankOfTable {
  std::string device;
  double weight_bytes = 0;
  std::vector<RankOfRow> rows;
};

Result<RankOfTable> rank_of(const RankOfOptions& options);

}  // namespace copse
