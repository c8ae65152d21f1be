#pragma once
// One call's inputs, on the host for the CPU version and on the device for the GPU's, as tests and
// benchmarks need them. What no row may read is NaN, on both sides.
#include <algorithm>
#include <cmath>
#include <limits>
#include <thread>
#include <vector>

#include "base/random.h"
#include "kernels/common/cuda/testing.h"
#include "kernels/verify_attention/verify_attention.h"
#include "kernels/verify_attention/verify_attention_cuda.h"

namespace copse::kernels::cuda::testing {

// A sequence: its prefix and the parents of its rows (-1: none).
struct VerifyPlanOfTest {
  int prefix = 0;
  std::vector<int> parents;
  bool masked = true;  // false: pass no masks; only for a chain

  static VerifyPlanOfTest chain(int prefix, int rows) {
    VerifyPlanOfTest plan = {prefix, {}, false};
    for (int i = 0; i < rows; ++i) plan.parents.push_back(i - 1);
    return plan;
  }
  static VerifyPlanOfTest tree(int prefix, int rows, std::uint64_t seed) {
    VerifyPlanOfTest plan = {prefix, {}, true};
    SeededRandom random(seed);
    for (int i = 0; i < rows; ++i) {
      const int near = std::max(0, i - 6);
      plan.parents.push_back(
          i == 0 ? -1
                 : near + static_cast<int>(random.below(static_cast<std::uint64_t>(i - near))));
    }
    return plan;
  }
  int rows() const { return static_cast<int>(parents.size()); }
};

inline std::size_t count_of(int a, int b = 1, int c = 1) {
  return static_cast<std::size_t>(a) * static_cast<std::size_t>(b) * static_cast<std::size_t>(c);
}

template <class T>
class VerifyWorld {
 public:
  VerifyWorld(const VerifyShape& shape, std::vector<VerifyPlanOfTest> plans, float scale,
              std::uint64_t seed = 1)
      : shape_(shape), plans_(std::move(plans)), random_(seed), scale_(scale) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const int width = shape.latent + shape.rope;
    slots_ = static_cast<int>(plans_.size()) + 1;
    pages_count_ = 2;
    for (const auto& plan : plans_) pages_count_ += (plan.prefix + 63) / 64;
    rows_ = shape.sequences_max * shape.rows_per_sequence_max;
    q_.assign(count_of(rows_, shape.heads, width), nan);
    pages_.assign(count_of(pages_count_, 64, width), nan);
    scratch_.assign(count_of(slots_, shape.scratch_rows, width), nan);
    PageId next = pages_count_ - 1;
    for (std::size_t s = 0; s < plans_.size(); ++s) add(static_cast<int>(s), next);
    upload_all();
  }

  // Fresh lengths and trees for the same memory: at most as many rows and pages as before.
  void replan(std::vector<VerifyPlanOfTest> plans) {
    for (std::size_t s = 0; s < plans.size(); ++s) {
      plans_[s] = std::move(plans[s]);
      sequences_[s].rows = plans_[s].rows();
      sequences_[s].prefix_length = plans_[s].prefix;
      masks_[s] = masks_of(plans_[s]);
    }
    upload_sequences();
  }

  // The CPU version's outputs, NaN where no row writes. [rows][heads][latent]
  std::vector<float> expected() {
    std::vector<float> out(out_size(), std::numeric_limits<float>::quiet_NaN());
    VerifyAttention call;
    call.heads = shape_.heads;
    call.latent = shape_.latent;
    call.rope = shape_.rope;
    call.scale = scale_;
    call.scratch_rows = shape_.scratch_rows;
    call.q = q_.data();
    call.pages = pages_.data();
    call.scratch = scratch_.data();
    call.out = out.data();
    std::vector<VerifySequence> sequences;
    for (const VerifySequence& sequence : host_sequences()) {
      if (sequence.rows > 0) sequences.push_back(sequence);
    }
    call.sequences = sequences;
    ThreadPool pool(static_cast<int>(std::max(1u, std::thread::hardware_concurrency())));
    kernels::verify_attention(call, pool);
    return out;
  }

  VerifyAttentionCall<T> call() const {
    VerifyAttentionCall<T> call;
    call.shape = shape_;
    call.scale = scale_;
    call.rows = rows_;
    call.pages_count = pages_count_;
    call.slots = slots_;
    call.q = device_q_.data();
    call.pages = device_pages_.data();
    call.scratch = device_scratch_.data();
    call.out = device_out_.data();
    call.sequences = device_sequences_.data();
    call.workspace = device_workspace_.data();
    return call;
  }
  Status launch(Stream stream) const {
    const VerifyAttentionCall<T> it = call();
    COPSE_RETURN_IF_ERROR(verify_plan<T>(it.shape, it.sequences, it.workspace, stream));
    return verify_attention(it, stream);
  }
  // Fills outputs and workspace with 0xff: NaN as float and as Bf16.
  void poison() {
    EXPECT_EQ(cudaMemset(device_out_.data(), 0xff, out_size() * sizeof(T)), cudaSuccess);
    EXPECT_EQ(cudaMemset(device_workspace_.data(), 0xff, device_workspace_.size()), cudaSuccess);
  }
  std::vector<float> out() const { return widened(download(device_out_)); }

  const VerifyShape& shape() const { return shape_; }
  const std::vector<VerifyPlanOfTest>& plans() const { return plans_; }

 private:
  std::size_t out_size() const { return count_of(rows_, shape_.heads, shape_.latent); }

  void fill(float* to, int count) {
    for (int i = 0; i < count; ++i) {
      const auto value = static_cast<std::int64_t>(random_.below(1 << 16)) - (1 << 15);
      to[i] = to_host_float(from_host_float<T>(static_cast<float>(value) / (1 << 15)));
    }
  }

  static std::vector<std::uint64_t> masks_of(const VerifyPlanOfTest& plan) {
    const int words = (plan.rows() + 63) / 64;
    std::vector<std::uint64_t> masks(count_of(plan.rows(), words));
    for (int row = 0; row < plan.rows(); ++row) {
      for (int node = row; node >= 0; node = plan.parents[count_of(node)]) {
        masks[count_of(row, words) + count_of(node / 64)] |= 1ull << (node % 64);
      }
    }
    return masks;
  }

  void add(int s, PageId& next) {
    const VerifyPlanOfTest& plan = plans_[count_of(s)];
    const int width = shape_.latent + shape_.rope;
    const int first_row = s * shape_.rows_per_sequence_max;
    std::vector<PageId>& table = tables_.emplace_back();
    for (int p = 0; p < plan.prefix; ++p) {
      if (p % 64 == 0) table.push_back(next--);
      fill(pages_.data() + count_of(table.back() * 64 + p % 64, width), width);
    }
    const int slot = slots_ - 1 - s;
    for (int row = 0; row < plan.rows(); ++row) {
      fill(scratch_.data() + count_of(slot * shape_.scratch_rows + row, width), width);
    }
    fill(q_.data() + count_of(first_row * shape_.heads, width), plan.rows() * shape_.heads * width);
    masks_.push_back(masks_of(plan));
    VerifySequence sequence;
    sequence.first_row = first_row;
    sequence.rows = plan.rows();
    sequence.prefix_length = plan.prefix;
    sequence.slot = slot;
    sequences_.push_back(sequence);
  }

  std::vector<VerifySequence> host_sequences() const {
    std::vector<VerifySequence> result = sequences_;
    for (std::size_t s = 0; s < result.size(); ++s) {
      result[s].pages = tables_[s].data();
      result[s].ancestors = plans_[s].masked ? masks_[s].data() : nullptr;
      result[s].mask_words = (plans_[s].rows() + 63) / 64;
    }
    return result;
  }

  void upload_all() {
    device_q_ = upload(stored<T>(q_));
    device_pages_ = upload(stored<T>(pages_));
    device_scratch_ = upload(stored<T>(scratch_));
    device_out_ = upload(std::vector<T>(out_size()));
    device_workspace_ = upload(std::vector<std::byte>(verify_workspace_bytes<T>(shape_)));
    for (const auto& table : tables_) device_tables_.push_back(upload(table));
    upload_sequences();
    poison();
  }
  void upload_sequences() {
    device_masks_.clear();
    std::vector<VerifySequence> sequences = host_sequences();
    for (std::size_t s = 0; s < sequences.size(); ++s) {
      device_masks_.push_back(upload(masks_[s]));
      sequences[s].pages = device_tables_[s].data();
      if (plans_[s].masked) sequences[s].ancestors = device_masks_[s].data();
    }
    sequences.resize(count_of(shape_.sequences_max));
    if (device_sequences_.size() == 0) {
      device_sequences_ = upload(sequences);
    } else {  // captured graphs hold its address
      EXPECT_TRUE(copy_to_device(device_sequences_.data(), sequences.data(),
                                 sequences.size() * sizeof(VerifySequence))
                      .ok());
    }
  }

  VerifyShape shape_;
  std::vector<VerifyPlanOfTest> plans_;
  SeededRandom random_;
  float scale_;
  int rows_ = 0;
  int slots_ = 0;
  int pages_count_ = 0;
  std::vector<float> q_, pages_, scratch_;
  std::vector<std::vector<PageId>> tables_;
  std::vector<std::vector<std::uint64_t>> masks_;
  std::vector<VerifySequence> sequences_;
  DeviceBuffer<T> device_q_, device_pages_, device_scratch_, device_out_;
  DeviceBuffer<std::byte> device_workspace_;
  std::vector<DeviceBuffer<PageId>> device_tables_;
  std::vector<DeviceBuffer<std::uint64_t>> device_masks_;
  DeviceBuffer<VerifySequence> device_sequences_;
};

}  // namespace copse::kernels::cuda::testing
