#pragma once
// Step 3: what a decode step costs, as a function of its rows (sequences and draft nodes together),
// with and without a drafter pass. Starts from the table that the workers measured while warming up
// and follows the measured steps.
#include <array>
#include <cstdint>
#include <span>

namespace copse {

class StepCosts {
 public:
  struct Row {
    int nodes = 0;  // draft nodes of one sequence; 0 is a plain step
    double step_us = 0;
  };

  // `table` ascending in nodes, of one sequence. Empty or unusable rows: a flat guess that the
  // first measured steps replace.
  explicit StepCosts(std::span<const Row> table = {});

  // Expected microseconds of a step of `rows` rows; `drafting` if any sequence drafts.
  double step_us(int rows, bool drafting) const;
  // One measured step without prefill.
  void observe(int rows, bool drafting, double total_us);

 private:
  static constexpr std::array<int, 21> kKnots = {1,  2,  3,   4,   6,   8,   12,  16,  24,  32,  48,
                                                 64, 96, 128, 192, 256, 384, 512, 640, 768, 1024};
  struct Curve {
    std::array<double, kKnots.size()> us{};
    std::array<std::uint32_t, kKnots.size()> seen{};
  };
  struct Place {  // rows lie at `knot` + `fraction` of the way to the next
    std::size_t knot = 0;
    double fraction = 0;
  };
  static Place place(int rows);
  static double read(const Curve& curve, Place at);
  static void keep_monotone(Curve& curve, std::size_t around);

  std::array<Curve, 2> curves_;  // [drafting]
};

}  // namespace copse
