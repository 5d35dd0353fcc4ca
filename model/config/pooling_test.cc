#include "model/config/pooling.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error_testing.h"
#include "model/config/config.h"
#include "model/gguf/gguf_testing.h"

namespace larder::model::inline config {
namespace {

using testing::GoodModel;
using testing::Raw;
using testing::RawGguf;
using testing::TempFile;

std::shared_ptr<const GgufFile> Open(const RawGguf& raw) {
  return GgufFile::Open(TempFile(raw.Bytes()).path());
}

TEST(PoolingTest, IsOfTheFilesArchitecture) {
  EXPECT_EQ(ReadPooling(*Open(GoodModel())), Pooling::kNone);
  RawGguf raw = GoodModel("qwen3");
  raw.SetU32("llama.pooling_type", 1);  // of another one
  EXPECT_EQ(ReadPooling(*Open(raw)), Pooling::kNone);
  raw.SetU32("qwen3.pooling_type", 3);
  EXPECT_EQ(ReadPooling(*Open(raw)), Pooling::kLast);
  raw.SetU32("qwen3.pooling_type", 5);
  const auto file = Open(raw);
  EXPECT_NE(
      ErrorOf([&] { ReadPooling(*file); }).find("'qwen3.pooling_type' is 5, expected 0 (none)"),
      std::string::npos);
}

TEST(PoolingTest, NamesAndBack) {
  for (const Pooling pooling :
       {Pooling::kNone, Pooling::kMean, Pooling::kCls, Pooling::kLast, Pooling::kRank})
    EXPECT_EQ(PoolingByName(PoolingName(pooling)), pooling);
  EXPECT_EQ(PoolingByName("max"), std::nullopt);
}

TEST(PoolingTest, ARankHeadIsPartOfAModel) {
  RawGguf raw = GoodModel();
  EXPECT_EQ(ReadRankHead(*Open(raw), 4), nullptr);
  std::string weights;
  for (const float w : {1.0f, 2.0f, -1.0f, 0.5f, 0.0f, 0.0f, 1.0f, 0.0f}) weights += Raw(w);
  raw.AddTensor("cls.output.weight", {4, 2}, 0, weights);
  raw.AddF32("cls.output.bias", {2}, 0.25f);
  const auto file = Open(raw);
  ReadModelConfig(*file);  // does not refuse it
  const auto head = ReadRankHead(*file, 4);
  ASSERT_NE(head, nullptr);
  EXPECT_EQ(head->outputs, 2u);
  const std::vector<float> hidden = {1, 1, 2, 2};  // logits 2.25 and 2.25
  EXPECT_FLOAT_EQ(head->Score(hidden), 0.5f);
  EXPECT_FLOAT_EQ(head->Score(std::vector<float>{3, 0, 0, 0}), 1 / (1 + std::exp(-3.0f)));
  EXPECT_NE(ErrorOf([&] { ReadRankHead(*file, 8); }).find("expected 1 to 1024 rows of 8"),
            std::string::npos);
}

TEST(PoolingTest, OneOutputIsTheScore) {
  RawGguf raw = GoodModel();
  raw.AddF32("cls.output.weight", {4, 1}, 0.5f);
  EXPECT_FLOAT_EQ(ReadRankHead(*Open(raw), 4)->Score(std::vector<float>{1, 2, 3, -10}), -2.0f);
}

}  // namespace
}  // namespace larder::model::config
