#include "tools/cli/progress_bar.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>

namespace copse::cli {
namespace {

constexpr int kBarCells = 20;

int percent(std::uint64_t done, std::uint64_t total) {
  return total == 0 ? 0 : static_cast<int>(100 * done / total);
}

struct Sum {
  std::uint64_t done = 0;
  std::uint64_t total = 0;
};

Sum add_up(const EngineStatus& status) {
  Sum sum;
  for (const RankStatus& rank : status.ranks) {
    sum.done += rank.load_done;
    sum.total += rank.load_total;
  }
  return sum;
}

}  // namespace

std::string render_progress(const EngineStatus& status) {
  const Sum sum = add_up(status);
  const int all = percent(sum.done, sum.total);
  const int cells = all * kBarCells / 100;
  std::string line = fmt::format("loading {:3d}% [{}{}]", all, std::string(cells, '#'),
                                 std::string(kBarCells - cells, '-'));
  for (std::size_t rank = 0; rank < status.ranks.size(); ++rank) {
    const RankStatus& r = status.ranks[rank];
    line += r.ready ? fmt::format("  {}:ready", rank)
                    : fmt::format("  {}:{}%", rank, percent(r.load_done, r.load_total));
  }
  return line;
}

ProgressBar::ProgressBar(bool enabled) : enabled_(enabled), terminal_(isatty(2) != 0) {}

void ProgressBar::show(const EngineStatus& status) {
  if (!enabled_) return;
  const Sum sum = add_up(status);
  const int tenth = percent(sum.done, sum.total) / 10;
  if (!terminal_ && tenth == last_tenth_) return;
  last_tenth_ = tenth;
  drawn_ = true;
  std::fprintf(stderr, terminal_ ? "\r\033[K%s" : "%s\n", render_progress(status).c_str());
  std::fflush(stderr);
}

void ProgressBar::finish() {
  if (enabled_ && terminal_ && drawn_) std::fprintf(stderr, "\r\033[K");
}

}  // namespace copse::cli
