#include "kernels/moe_experts/packed_linear.h"

#include <limits>
#include <string>

#include "kernels/common/cuda/testing.h"
#include "kernels/moe_experts/moe_testing.h"

namespace copse::kernels::cuda {
namespace {

using testing::index;

class PackedLinearCuda : public testing::CudaTest {
 protected:
  template <class T, class Y>
  std::vector<float> run(bool fast, const PackedLinear& shape,
                         const DeviceBuffer<std::uint8_t>& packed, const DeviceBuffer<T>& x,
                         int rows) {
    const std::vector<float> poison(index(rows) * index(shape.outputs),
                                    std::numeric_limits<float>::quiet_NaN());
    auto y = testing::upload(testing::stored<Y>(poison));
    const QuantizedLinear<T, Y> call = {
        x.data(), rows, shape, reinterpret_cast<const std::byte*>(packed.data()), y.data()};
    EXPECT_TRUE(
        (fast ? quantized_linear(call, stream()) : portable::quantized_linear(call, stream()))
            .ok());
    synchronize();
    return testing::widened(testing::download(y));
  }
  template <class T, class Y>
  void check(ExpertCodec codec, int rows, int outputs, int inputs, unsigned seed) {
    testing::Generator random(seed);
    const testing::TestMatrix m = testing::make_matrix(codec, outputs, inputs, random);
    std::normal_distribution<float> normal;
    std::vector<float> values(index(rows) * index(inputs));
    for (float& value : values) value = normal(random);
    const std::vector<T> x = testing::stored<T>(values);
    const PackedLinear shape = {outputs, inputs, codec};
    const auto packed = testing::upload(std::vector<std::uint8_t>(shape.bytes(), 0xff));
    const auto stored_values = testing::upload(m.values);
    const auto scales = testing::upload(m.scales);
    const StoredMatrix stored = {stored_values.data(), m.scales.empty() ? nullptr : scales.data()};
    ASSERT_TRUE(
        pack_linear(shape, stored, reinterpret_cast<std::byte*>(packed.data()), stream()).ok());
    std::vector<float> wanted;
    const std::vector<float> wide = testing::widened(x);
    for (int r = 0; r < rows; ++r) {
      const auto row = testing::product(m, wide.data() + index(r) * index(inputs));
      wanted.insert(wanted.end(), row.begin(), row.end());
    }
    const auto device_x = testing::upload(x);
    for (const bool fast : {false, true}) {
      const auto y = run<T, Y>(fast, shape, packed, device_x, rows);
      EXPECT_LE(testing::relative_error(y, wanted), testing::tolerance<Y>() + 1e-5)
          << "codec " << static_cast<int>(codec) << ", rows " << rows << ", outputs " << outputs
          << ", inputs " << inputs << ", fast " << fast;
    }
  }
};

TEST_F(PackedLinearCuda, AgreesWithPlainLoops) {
  for (const ExpertCodec codec : {ExpertCodec::bf16, ExpertCodec::f32, ExpertCodec::fp8_block,
                                  ExpertCodec::int4_group, ExpertCodec::int4_group_f32}) {
    for (const int rows : {1, 7, 16, 33, 130}) {
      check<float, float>(codec, rows, 96, 256, 1);
      check<Bf16, float>(codec, rows, 576, 512, 2);
      check<Bf16, Bf16>(codec, rows, 40, 328, 3);
    }
  }
  check<Bf16, Bf16>(ExpertCodec::fp8_block, 9, 576, 7168, 4);
}

}  // namespace
}  // namespace copse::kernels::cuda
