// Random blocks: what the reader of files makes of them.
#include "model/synth/synth_quants.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "model/gguf/gguf_testing.h"
#include "model/synth/synth.h"
#include "model/synth/synth_testing.h"

namespace larder::model::inline synth {
namespace {

using testing::TempFile;

// The types that QuantBlocks makes.
std::vector<TensorType> QuantTypes() {
  std::vector<TensorType> types;
  for (const NamedMatrixTypes& named : AllMatrixTypes()) {
    const TensorType type = named.types.most;
    const bool blocks = LayoutOfGgufType(static_cast<uint32_t>(type)).elements > 1;
    if (blocks && type != TensorType::kQ8_0 && type == named.types.finer) types.push_back(type);
  }
  return types;
}

// The tensors' own standard errors: super-blocks are drawn independently of each other.
struct Estimate {
  double value = 0, error = 0;  // of the mean of independent samples
};
Estimate EstimateOf(const std::vector<double>& samples) {
  double sum = 0, squares = 0;
  for (const double v : samples) sum += v, squares += v * v;
  const auto n = static_cast<double>(samples.size());
  const double mean = sum / n;
  return {mean, std::sqrt((squares / n - mean * mean) / n)};
}

TEST(SynthQuants, WeightsHaveMeanZeroAndTheRightDeviation) {
  constexpr size_t kSuperBlock = 256;
  for (const NamedMatrixTypes& named : AllMatrixTypes()) {
    SynthOptions options;
    options.shape.layers = 1;
    options.shape.vocab = 4096;
    options.type = named.types;
    for (const float asked : {0.0f, 0.5f}) {
      options.standard_deviation = asked;
      const TempFile temp;
      WriteSynth(options, temp.path());
      const auto file = GgufFile::Open(temp.path());
      const TensorInfo& tensor = file->Tensor("output.weight");
      ASSERT_EQ(tensor.type, named.types.finer);
      std::vector<float> values(tensor.rows * tensor.cols);
      file->ReadRowsF32(tensor, 0, tensor.rows, values.data());
      const double deviation =
          asked > 0.0f ? asked : 1.0 / std::sqrt(static_cast<double>(tensor.cols));
      std::vector<double> means, squares;
      for (size_t at = 0; at < values.size(); at += kSuperBlock) {
        double sum = 0, sum_of_squares = 0;
        for (size_t i = at; i < at + kSuperBlock; ++i) {
          const double v = static_cast<double>(values[i]) / deviation;
          sum += v;
          sum_of_squares += v * v;
        }
        means.push_back(sum / kSuperBlock);
        squares.push_back(sum_of_squares / kSuperBlock);
      }
      // Four standard errors: one value in 16000 is further away by chance, and the seed is fixed.
      const Estimate mean = EstimateOf(means), square = EstimateOf(squares);
      EXPECT_NEAR(mean.value, 0.0, 4 * mean.error) << named.name;
      EXPECT_NEAR(square.value, 1.0, 4 * square.error) << named.name;
      // 4096 super-blocks. The mean's error would be 0.001 for a million independent weights; a
      // minimum is common to its sub-block. The square's is at least 0.0045, because a scale's
      // square varies by 29 % (2 * 0.25 / sqrt(3)).
      EXPECT_LT(mean.error, 0.003) << named.name;
      EXPECT_LT(square.error, 0.006) << named.name;
    }
  }
}

// Bits of a block that are an f16 or an exponent, which stay within a power of two or two.
bool IsOfScale(TensorType type, size_t byte) {
  const auto in = [&](size_t first, size_t n) { return byte >= first && byte < first + n; };
  switch (type) {
    case TensorType::kQ4_1:
    case TensorType::kQ5_1:
    case TensorType::kQ4_K:
    case TensorType::kQ5_K:
      return in(0, 4);
    case TensorType::kQ2_K:
      return in(80, 4);
    case TensorType::kQ3_K:
      return in(108, 2);
    case TensorType::kQ6_K:
      return in(208, 2);
    case TensorType::kMXFP4:
      return in(0, 1);
    default:
      return in(0, 2);
  }
}

TEST(SynthQuants, EveryBitOfBlocksChanges) {
  for (const TensorType type : QuantTypes()) {
    const std::string_view name = GgufTypeName(static_cast<uint32_t>(type));
    const size_t bytes = LayoutOfGgufType(static_cast<uint32_t>(type)).bytes;
    constexpr size_t kBlocks = 256;
    std::vector<uint8_t> blocks(kBlocks * bytes);
    QuantBlocks(type).Fill(1, 0, kBlocks, 0.02f, reinterpret_cast<char*>(blocks.data()));
    std::vector<uint8_t> ones(bytes, 0), zeros(bytes, 0);  // bits that are ever set, ever clear
    std::set<unsigned> scales;
    for (size_t at = 0; at < blocks.size(); ++at) {
      ones[at % bytes] |= blocks[at];
      zeros[at % bytes] |= static_cast<uint8_t>(~blocks[at]);
      if (IsOfScale(type, at % bytes)) scales.insert(blocks[at]);
    }
    for (size_t byte = 0; byte < bytes; ++byte) {
      if (IsOfScale(type, byte)) continue;
      EXPECT_EQ(ones[byte] & zeros[byte], 0xff) << name << ", byte " << byte;
    }
    EXPECT_GE(scales.size(), type == TensorType::kMXFP4 ? 2u : 100u) << name;
  }
}

// The writer asks for a tensor's rows in pieces, whose size must not show.
TEST(SynthQuants, BlocksDoNotDependOnWhatIsMadeWithThem) {
  for (const TensorType type : QuantTypes()) {
    const QuantBlocks quants(type);
    const size_t bytes = LayoutOfGgufType(static_cast<uint32_t>(type)).bytes;
    std::string at_once(8 * bytes, '\0'), single(8 * bytes, '\0'), other_key(8 * bytes, '\0');
    quants.Fill(7, 100, 8, 0.02f, at_once.data());
    for (size_t b = 0; b < 8; ++b)
      QuantBlocks(type).Fill(7, 100 + b, 1, 0.02f, single.data() + b * bytes);
    EXPECT_EQ(at_once, single) << GgufTypeName(static_cast<uint32_t>(type));
    quants.Fill(8, 100, 8, 0.02f, other_key.data());
    for (size_t b = 0; b < 8; ++b) {
      EXPECT_NE(at_once.substr(b * bytes, bytes), other_key.substr(b * bytes, bytes));
      for (size_t a = 0; a < b; ++a)
        EXPECT_NE(at_once.substr(b * bytes, bytes), at_once.substr(a * bytes, bytes));
    }
  }
}

TEST(SynthQuants, TheSameOptionsGiveTheSameFile) {
  for (const NamedMatrixTypes& named : AllMatrixTypes()) {
    SynthOptions options;
    options.shape.layers = 1;
    options.type = named.types;
    const std::string first = Bytes(options);
    EXPECT_EQ(Bytes(options), first) << named.name;
    options.seed = 2;
    const std::string second = Bytes(options);
    ASSERT_EQ(second.size(), first.size()) << named.name;
    EXPECT_NE(second, first) << named.name;
  }
}

}  // namespace
}  // namespace larder::model::synth
