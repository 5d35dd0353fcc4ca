#include "model/synth/synth_types.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <set>
#include <string>

#include "base/error.h"
#include "model/gguf/gguf_testing.h"
#include "model/synth/synth.h"

namespace larder::model::inline synth {
namespace {

using testing::TempFile;

// The formats' definition of Q4_K_M, as llama-quantize lays it out: 16 layers have 2 at each end
// and then every third.
TEST(SynthTypes, Q4KMIsAMixture) {
  SynthOptions options;
  options.shape.layers = 16;
  options.shape.ffn = 512;
  options.type = kQ4_K_M;
  const std::set<size_t> finer = {0, 1, 4, 7, 10, 13, 14, 15};
  for (const bool tied : {false, true}) {
    options.shape.tied = tied;
    const TempFile temp;
    WriteSynth(options, temp.path());
    const auto file = GgufFile::Open(temp.path());
    EXPECT_EQ(ReadModelConfig(*file).layers, 16u);
    EXPECT_EQ(file->GetUnsigned("general.file_type"), 15u);
    EXPECT_EQ(file->Tensor("token_embd.weight").type, tied ? TensorType::kQ6_K : TensorType::kQ4_K);
    EXPECT_EQ(file->FindTensor("output.weight") == nullptr, tied);
    if (!tied) {
      EXPECT_EQ(file->Tensor("output.weight").type, TensorType::kQ6_K);
    }
    for (size_t layer = 0; layer < 16; ++layer) {
      for (const char* suffix :
           {"attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"}) {
        const bool may = suffix == std::string("attn_v") || suffix == std::string("ffn_down");
        const std::string name = fmt::format("blk.{}.{}.weight", layer, suffix);
        EXPECT_EQ(file->Tensor(name).type,
                  may && finer.contains(layer) ? TensorType::kQ6_K : TensorType::kQ4_K)
            << name;
      }
      EXPECT_EQ(file->Tensor(fmt::format("blk.{}.attn_norm.weight", layer)).type, TensorType::kF32);
    }
  }
}

// Two layers have no eighths; the last one is past 7/8 of them.
TEST(SynthTypes, Q4KMOfFewLayers) {
  const auto finer = [](size_t layers) {
    std::string which;
    for (size_t i = 0; i < layers; ++i)
      which += kQ4_K_M.OfLayer(TensorRole::kDown, i, layers) == TensorType::kQ6_K ? '6' : '4';
    return which;
  };
  EXPECT_EQ(finer(1), "6");
  EXPECT_EQ(finer(2), "46");
  EXPECT_EQ(finer(4), "4466");
  EXPECT_EQ(finer(8), "64464466");
  EXPECT_EQ(finer(22), "6644644644644644644666");
}

TEST(SynthTypes, RowsThatAreNotWholeBlocksHaveAnotherType) {
  struct Case {
    TensorType type, of32, of172;
  };
  using enum TensorType;
  const Case cases[] = {
      {kF32, kF32, kF32},     {kF16, kF16, kF16},       {kBF16, kBF16, kBF16},
      {kQ8_0, kQ8_0, kF16},   {kQ4_0, kQ4_0, kF16},     {kQ4_1, kQ4_1, kF16},
      {kQ5_0, kQ5_0, kF16},   {kQ5_1, kQ5_1, kF16},     {kQ2_K, kIQ4_NL, kF16},
      {kQ3_K, kIQ4_NL, kF16}, {kQ4_K, kQ5_0, kF16},     {kQ5_K, kQ5_1, kF16},
      {kQ6_K, kQ8_0, kF16},   {kIQ4_NL, kIQ4_NL, kF16}, {kIQ4_XS, kIQ4_NL, kF16},
      {kMXFP4, kMXFP4, kF16},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(FallbackType(c.type, 512), c.type);
    EXPECT_EQ(FallbackType(c.type, 32), c.of32);
    EXPECT_EQ(FallbackType(c.type, 288), c.of32);
    EXPECT_EQ(FallbackType(c.type, 172), c.of172);
  }
  SynthOptions options;
  options.shape.dim = 288;
  options.shape.ffn = 172;
  options.shape.heads = 8;
  options.shape.head_size = 32;
  options.type = kQ4_K_M;
  const TempFile temp;
  WriteSynth(options, temp.path());
  const auto file = GgufFile::Open(temp.path());
  EXPECT_EQ(file->Tensor("blk.0.attn_q.weight").type, kQ5_0);
  EXPECT_EQ(file->Tensor("blk.0.attn_output.weight").type, kQ4_K);  // 256 columns
  EXPECT_EQ(file->Tensor("blk.1.attn_v.weight").type, kQ8_0);
  EXPECT_EQ(file->Tensor("output.weight").type, kQ8_0);
  EXPECT_EQ(file->Tensor("blk.0.ffn_down.weight").type, kF16);
}

TEST(SynthTypes, TypesHaveNames) {
  std::set<std::string_view> names;
  std::set<uint32_t> numbers;
  for (const NamedMatrixTypes& named : AllMatrixTypes()) {
    EXPECT_EQ(MatrixTypesByName(named.name), named.types);
    EXPECT_EQ(FileTypeOf(named.types), named.file_type);
    EXPECT_TRUE(names.insert(named.name).second) << named.name;
    EXPECT_TRUE(numbers.insert(named.file_type).second) << named.name;
    if (named.types.most != named.types.finer) continue;
    std::string upper(GgufTypeName(static_cast<uint32_t>(named.types.most)));
    std::ranges::transform(upper, upper.begin(), [](unsigned char c) { return std::tolower(c); });
    EXPECT_EQ(upper, named.name);
  }
  for (uint32_t number = 0; number < 64; ++number) {
    if (!IsReadableType(number)) continue;
    EXPECT_EQ(std::ranges::count(AllMatrixTypes(), MatrixTypes(static_cast<TensorType>(number)),
                                 &NamedMatrixTypes::types),
              1)
        << number;
  }
  try {
    MatrixTypesByName("q4_k_x");
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_NE(std::string_view(e.what()).find("'q4_k_x', expected one of: f32, f16"),
              std::string_view::npos);
    EXPECT_NE(std::string_view(e.what()).find("q4_k_m"), std::string_view::npos);
  }
}

}  // namespace
}  // namespace larder::model::synth
