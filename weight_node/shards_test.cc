// The contents of packed panels, row by row, against the file: which row of which tensor lies
// where.
#include "weight_node/shards.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/temporary_folder_testing.h"
#include "kernels/formats/panel_format.h"
#include "model/config/key_bias.h"
#include "model/synth/synth.h"
#include "weight_node/mixed_model_testing.h"

namespace larder::weight_node {
namespace {

// A row of a tensor; nullopt: zeros.
using Row = std::optional<std::pair<std::string, size_t>>;

class ShardsOf : public testing::TestWithParam<std::string_view> {
 protected:
  void SetUp() override {
    model::SynthOptions options;
    options.shape.architecture = GetParam();
    options.shape.dim = 96;
    options.shape.ffn = 160;
    options.shape.heads = 4;
    options.shape.kv_heads = 2;
    options.shape.head_size = 40;  // a group of 160 rows; o has rows of 160 inputs
    options.shape.vocab = 270;     // the last panel is not full
    options.standard_deviation = 0.5f;
    model::WriteSynth(options, folder_ / "model.gguf");
    file_ = model::GgufFile::Open(folder_ / "model.gguf");
    config_ = model::ReadModelConfig(*file_);
  }

  // A head's rows in packed order: the two of a rotary pair lie half a rotary dimension apart. In
  // files of the llama architecture they are adjacent.
  std::vector<size_t> HeadOrder(bool rotates) const {
    std::vector<size_t> order;
    const bool side_by_side = GetParam() == "llama";
    if (rotates && side_by_side) {
      for (size_t r = 0; r < config_.kinds[0].sizes.head_size; r += 2) order.push_back(r);
      for (size_t r = 1; r < config_.kinds[0].sizes.head_size; r += 2) order.push_back(r);
    } else {
      for (size_t r = 0; r < config_.kinds[0].sizes.head_size; ++r) order.push_back(r);
    }
    return order;
  }

  std::vector<Row> QkvRows(size_t layer) const {
    std::vector<Row> rows;
    const auto add = [&](const char* suffix, size_t head, bool rotates) {
      for (const size_t r : HeadOrder(rotates))
        rows.push_back(
            {{model::LayerTensor(layer, suffix), head * config_.kinds[0].sizes.head_size + r}});
    };
    for (size_t kv = 0; kv < config_.kinds[0].sizes.kv_heads; ++kv) {
      for (size_t q = 0; q < config_.kinds[0].sizes.group(); ++q)
        add("attn_q.weight", kv * config_.kinds[0].sizes.group() + q, true);
      add("attn_k.weight", kv, true);
      add("attn_v.weight", kv, false);
      while (rows.size() % kernels::kPanelRows != 0) rows.push_back({});
    }
    return rows;
  }

  static std::vector<Row> Plain(const std::string& tensor, size_t count) {
    std::vector<Row> rows;
    for (size_t r = 0; r < count; ++r) rows.push_back({{tensor, r}});
    while (rows.size() % kernels::kPanelRows != 0) rows.push_back({});
    return rows;
  }

  std::vector<Row> FfnRows(size_t layer) const {
    std::vector<Row> rows;
    for (size_t unit = 0; unit < config_.kinds[0].sizes.ffn / kernels::kBlock; ++unit) {
      for (const char* suffix : {"ffn_gate.weight", "ffn_up.weight"}) {
        for (size_t r = 0; r < kernels::kBlock; ++r)
          rows.push_back({{model::LayerTensor(layer, suffix), unit * kernels::kBlock + r}});
      }
    }
    return rows;
  }

  void Expect(const std::vector<Row>& rows, size_t first_panel, size_t panels,
              const kernels::PanelShape& panel, const uint8_t* packed) const {
    std::vector<float> here(panel.blocks * kernels::kBlock), there(panel.blocks * kernels::kBlock);
    for (size_t i = 0; i < panels * kernels::kPanelRows; ++i) {
      kernels::UnpackRow(panel, packed + i / kernels::kPanelRows * panel.bytes(),
                         i % kernels::kPanelRows, here.data());
      std::fill(there.begin(), there.end(), 0.0f);
      const Row& row = rows.at(first_panel * kernels::kPanelRows + i);
      if (row) file_->ReadRowsF32(file_->Tensor(row->first), row->second, 1, there.data());
      ASSERT_EQ(here, there) << "packed row " << first_panel * kernels::kPanelRows + i << " is not "
                             << (row ? row->first + " row " + std::to_string(row->second) : "zero");
    }
  }

  TemporaryFolder folder_;
  std::shared_ptr<const model::GgufFile> file_;
  model::ModelConfig config_;
  void ExpectAllRows() const;
};
INSTANTIATE_TEST_SUITE_P(Architectures, ShardsOf, testing::Values("llama", "qwen2", "qwen3"));

void ShardsOf::ExpectAllRows() const {
  for (const size_t threads : {1, 3}) {
    const ShardPlan plan = MakeShardPlan(config_, threads);
    for (size_t t = 0; t < threads; ++t) {
      Shards shards(config_, plan, t, NumaNodeId(0));
      PackedByteCounter progress;
      shards.Pack(*file_, progress);
      EXPECT_EQ(progress.packed_bytes, shards.weight_bytes());
      const ThreadShard& shard = plan.threads[t];
      for (size_t layer = 0; layer < config_.layers; ++layer) {
        const LayerShard& packed = shards.layers()[layer];
        const LayerPanels panels(config_, layer);
        for (uint32_t p = shard.of(0, PanelMatrix::kQkv).begin;
             p < shard.of(0, PanelMatrix::kQkv).end; ++p) {
          Expect(QkvRows(layer), p, 1, panels.of(PanelMatrix::kQkv, p),
                 packed.panels[IndexOf(PanelMatrix::kQkv)] +
                     panels.bytes(PanelMatrix::kQkv, {shard.of(0, PanelMatrix::kQkv).begin, p}));
          EXPECT_EQ(shards.Panel(PanelMatrix::kQkv, layer, p),
                    packed.panels[IndexOf(PanelMatrix::kQkv)] +
                        panels.bytes(PanelMatrix::kQkv, {shard.of(0, PanelMatrix::kQkv).begin, p}));
        }
        Expect(Plain(model::LayerTensor(layer, "attn_output.weight"), config_.dim),
               shard.of(0, PanelMatrix::kO).begin, shard.of(0, PanelMatrix::kO).count(),
               panels.of(PanelMatrix::kO, 0), packed.panels[IndexOf(PanelMatrix::kO)]);
        Expect(FfnRows(layer), 4 * shard.of(0, PanelMatrix::kFfn).begin,
               4 * shard.of(0, PanelMatrix::kFfn).count(), panels.of(PanelMatrix::kFfn, 0),
               packed.panels[IndexOf(PanelMatrix::kFfn)]);
        Expect(Plain(model::LayerTensor(layer, "ffn_down.weight"), config_.dim),
               shard.of(0, PanelMatrix::kDown).begin, shard.of(0, PanelMatrix::kDown).count(),
               panels.of(PanelMatrix::kDown, 0), packed.panels[IndexOf(PanelMatrix::kDown)]);
      }
      Expect(Plain("output.weight", config_.vocab), shard.lm_head().begin, shard.lm_head().count(),
             HeadPanel(config_), shards.head());
    }
  }
}

TEST_P(ShardsOf, EachPackedRowIsTheRightOne) { ExpectAllRows(); }

model::TensorType TypeWithGateAsUp(const std::string& name) {
  return name == "blk.1.ffn_up.weight" ? model::TensorType::kQ4_K : MixedType(name);
}

// 4-bit panels keep the file's values exactly, in layers of several types.
class ShardsOfMixedTypes : public ShardsOf {};
INSTANTIATE_TEST_SUITE_P(Architectures, ShardsOfMixedTypes, testing::Values("llama"));

TEST_P(ShardsOfMixedTypes, EachPackedRowIsTheRightOne) {
  // Gate and up of one type each: two types become Q8_0, rounded.
  const MixedModel mixed(MixedShape(), TypeWithGateAsUp);
  file_ = mixed.file();
  config_ = model::ReadModelConfig(*file_);
  EXPECT_EQ(config_.TypeOf(0, model::TensorRole::kV), model::TensorType::kQ6_K);
  EXPECT_EQ(config_.TypeOf(1, model::TensorRole::kV), model::TensorType::kQ4_0);
  ExpectAllRows();
}

// Parts hold the chunks of their rows, in the panels' formats, as a whole panel has them.
TEST(ShardsOfCutPanels, HaveTheirChunks) {
  model::SynthOptions options = MixedShape();
  options.shape.ffn = 3840;  // 4 chunks, the last one of 24 blocks
  options.shape.dim = 1280;  // 2 chunks
  const MixedModel mixed(options, TypeWithGateAsUp);
  const auto config = model::ReadModelConfig(*mixed.file());
  const auto tensor = [&](size_t layer, PanelMatrix matrix, bool up) -> const model::TensorInfo& {
    using model::TensorRole;
    const TensorRole role = matrix == PanelMatrix::kO      ? TensorRole::kO
                            : matrix == PanelMatrix::kDown ? TensorRole::kDown
                            : up                           ? TensorRole::kUp
                                                           : TensorRole::kGate;
    return mixed.file()->Tensor(config.TensorName(layer, role));
  };
  const ShardPlan plan = MakeShardPlan(config, 7, 1);
  size_t parts_of[kPanelMatrices] = {};
  for (size_t t = 0; t < 7; ++t) {
    Shards shards(config, plan, t, NumaNodeId(0));
    PackedByteCounter progress;
    shards.Pack(*mixed.file(), progress);
    EXPECT_EQ(progress.packed_bytes, shards.weight_bytes());
    for (size_t layer = 0; layer < config.layers; ++layer) {
      const LayerPanels panels(config, layer);
      ASSERT_EQ(shards.layers()[layer].parts.size(), plan.threads[t].parts[0].size());
      for (size_t i = 0; i < plan.threads[t].parts[0].size(); ++i) {
        const PanelPart& part = plan.threads[t].parts[0][i];
        ++parts_of[static_cast<size_t>(part.matrix)];
        const kernels::PanelShape here = panels.of(part);
        std::vector<float> got(here.blocks * kernels::kBlock), row;
        for (size_t p = 0; p < part.panels; ++p) {
          // a unit: two panels of gate, two of up
          const model::TensorInfo& of = tensor(layer, part.matrix, p >= 2);
          const size_t panel = part.panels == 1 ? part.panel : 2 * part.panel + p % 2;
          row.resize(of.cols);
          for (size_t r = 0; r < kernels::kPanelRows; ++r) {
            kernels::UnpackRow(here, shards.layers()[layer].parts[i] + p * here.bytes(), r,
                               got.data());
            mixed.file()->ReadRowsF32(of, panel * kernels::kPanelRows + r, 1, row.data());
            const auto begin =
                row.begin() + part.chunks.begin * kernels::kSumBlocks * kernels::kBlock;
            ASSERT_TRUE(std::equal(got.begin(), got.end(), begin))
                << "thread " << t << ", layer " << layer << ", part " << i << ", panel " << p
                << ", row " << r;
          }
        }
      }
    }
  }
  EXPECT_GT(parts_of[static_cast<size_t>(PanelMatrix::kFfn)], 0u);
  EXPECT_GT(parts_of[static_cast<size_t>(PanelMatrix::kDown)], 0u);
}

class ShardsWithBiases : public ShardsOf {};
INSTANTIATE_TEST_SUITE_P(Architectures, ShardsWithBiases, testing::Values("qwen2"));

TEST_P(ShardsWithBiases, FollowTheirRows) {
  ASSERT_TRUE(config_.kinds[0].Has(model::TensorRole::kQBias));
  const ShardPlan plan = MakeShardPlan(config_, 2);
  for (size_t t = 0; t < 2; ++t) {
    Shards shards(config_, plan, t, NumaNodeId(0));
    PackedByteCounter progress;
    shards.Pack(*file_, progress);
    const PanelRange range = plan.threads[t].of(0, PanelMatrix::kQkv);
    const std::vector<Row> rows = QkvRows(1);
    for (size_t i = 0; i < range.count() * kernels::kPanelRows; ++i) {
      const Row& row = rows.at(range.begin * kernels::kPanelRows + i);
      float expected = 0;
      if (row) {
        const std::string name =
            row->first.substr(0, row->first.size() - std::string("weight").size());
        const model::TensorInfo& bias = file_->Tensor(name + "bias");
        std::vector<float> all(bias.cols);
        file_->ReadRowsF32(bias, 0, 1, all.data());
        if (name.find("attn_k") != std::string::npos)
          all = model::ReadKeyBias(*file_, config_, 1).in_keys;
        expected = all.at(row->second);
      }
      ASSERT_EQ(shards.layers()[1].qkv_bias[i], expected) << "packed row " << i;
    }
  }
}

// Of experts: units of gate and up expert by expert within each unit's place, panels of down expert
// after expert; the shared expert's as ever; rows of the router in float32.
TEST(ShardsOfExperts, EachRowIsThere) {
  TemporaryFolder folder;
  model::SynthOptions options;
  options.shape = {.architecture = "qwen2moe",
                   .layers = 2,
                   .dim = 96,
                   .ffn = 160,
                   .heads = 4,
                   .kv_heads = 2,
                   .head_size = 32,
                   .vocab = 270,
                   .experts = 5,
                   .experts_used = 2,
                   .expert_ffn = 72,
                   .shared_ffn = 100};
  options.type = model::TensorType::kF32;
  options.standard_deviation = 0.5f;
  model::WriteSynth(options, folder / "model.gguf");
  const auto file = model::GgufFile::Open(folder / "model.gguf");
  const model::ModelConfig config = model::ReadModelConfig(*file);
  const LayerPanels panels(config, 1);
  const auto expect = [&](const kernels::PanelShape& panel, const uint8_t* packed, size_t in_panel,
                          const char* suffix, std::optional<size_t> row) {
    std::vector<float> here(panel.blocks * kernels::kBlock), there(here.size());
    kernels::UnpackRow(panel, packed, in_panel, here.data());
    std::vector<model::Q8Block> blocks(panel.blocks);
    if (row) {
      file->ReadRowsQ8_0(file->Tensor(model::LayerTensor(1, suffix)), *row, 1, blocks.data());
      model::DequantizeQ8_0(blocks.data(), there);
    }
    EXPECT_EQ(here, there) << suffix << (row ? *row : 0);
  };
  for (const size_t threads : {1, 3}) {
    const ShardPlan plan = MakeShardPlan(config, threads);
    size_t units = 0, columns = 0, routed = 0;
    for (size_t t = 0; t < threads; ++t) {
      Shards shards(config, plan, t, NumaNodeId(0));
      PackedByteCounter progress;
      shards.Pack(*file, progress);
      EXPECT_EQ(progress.packed_bytes, plan.ThreadBytes(config, t));
      const size_t kind = config.KindOf(1);
      const PanelRange own_units = plan.threads[t].of(kind, PanelMatrix::kFfn);
      for (uint32_t id = own_units.begin; id < own_units.end; ++id, ++units) {
        const size_t expert = id % 5, unit = id / 5;
        const kernels::PanelShape& panel = panels.of(PanelMatrix::kFfn, id);
        const uint8_t* const at = shards.Panel(PanelMatrix::kFfn, 1, id);
        for (size_t r = 0; r < 64; ++r) {
          const size_t row = unit * 32 + r % 32;
          expect(panel, at + r / 16 * panel.bytes(), r % 16,
                 r < 32 ? "ffn_gate_exps.weight" : "ffn_up_exps.weight",
                 row < 72 ? std::optional(expert * 72 + row) : std::nullopt);
        }
      }
      const PanelRange own_panels = plan.threads[t].of(kind, PanelMatrix::kDown);
      for (uint32_t p = own_panels.begin; p < own_panels.end; ++p, ++columns) {
        const kernels::PanelShape& panel = panels.of(PanelMatrix::kDown, p);
        for (size_t e = 0; e < 5; ++e) {
          const uint8_t* const at = shards.ExpertDown(1, p) + e * shards.ExpertDownStride(1);
          for (size_t r = 0; r < 16; ++r)
            expect(panel, at, r, "ffn_down_exps.weight", e * 96 + p * 16 + r);
        }
        const kernels::PanelShape& shared = panels.of(PanelMatrix::kSharedDown, p);
        for (size_t r = 0; r < 16; ++r) {
          expect(shared, shards.Panel(PanelMatrix::kSharedDown, 1, p), r, "ffn_down_shexp.weight",
                 p * 16 + r);
        }
      }
      const auto [begin, end] = RouterShare(config.layer(1), t, threads);
      for (uint32_t row = begin; row < end; ++row, ++routed) {
        std::vector<float> there(96);
        const bool is_shared = row == 5;
        file->ReadRowsF32(file->Tensor(model::LayerTensor(
                              1, is_shared ? "ffn_gate_inp_shexp.weight" : "ffn_gate_inp.weight")),
                          is_shared ? 0 : row, 1, there.data());
        const float* const here = shards.layers()[1].router + (row - begin) * 96;
        EXPECT_EQ(std::vector<float>(here, here + 96), there);
      }
    }
    EXPECT_EQ(units, 15u);
    EXPECT_EQ(columns, 6u);
    EXPECT_EQ(routed, 6u);
  }
}

}  // namespace
}  // namespace larder::weight_node
