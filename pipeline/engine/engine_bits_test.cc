// The guarantee: a sequence's logits have the same bits in every mode. Each mode is compared with
// one baseline.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "base/fnv.h"
#include "base/test_data_testing.h"
#include "kernels/formats/numerics.h"
#include "model/config/config.h"
#include "model/families/family.h"
#include "model/gguf/gguf_testing.h"
#include "model/reference/divergence.h"
#include "model/reference/reference.h"
#include "pipeline/engine/attention_server_testing.h"
#include "pipeline/engine/chain_testing.h"
#include "pipeline/engine/engine_testing.h"
#include "weight_node/mixed_model_testing.h"

namespace larder::pipeline::inline engine {
namespace {

using kernels::Isa;

TEST(FirstDifferenceTest, FindsPlantedDifferences) {
  const std::vector<float> a = {1.0f, -2.0f, 0.0f};
  EXPECT_EQ(FirstDifference(a, a), "");
  EXPECT_NE(FirstDifference(a, {1.0f, std::nextafter(-2.0f, -3.0f), 0.0f}), "");
  EXPECT_NE(FirstDifference(a, {std::nextafter(1.0f, 2.0f), -2.0f, 0.0f}), "");
  EXPECT_NE(FirstDifference(a, {1.0f, -2.0f, -0.0f}), "");
  EXPECT_NE(FirstDifference(a, {1.0f, -2.0f, NAN}), "");
  EXPECT_NE(FirstDifference(a, {1.0f, -2.0f}), "");
}

class EngineBitsTest : public testing::Test {
 protected:
  EngineBitsTest() : model_(AwkwardModel()), tokens_(TestTokens(300, 301)) {
    auto engine = MakeEngine(model_.file(), {});
    baseline_ = RunChunks(*engine, tokens_, 100);
  }
  TestModel model_;
  std::vector<int32_t> tokens_;  // more than one chunk of 256 positions
  std::vector<float> baseline_;
};

TEST_F(EngineBitsTest, ThreadsDoNotMatter) {
  for (const size_t threads : {2, 3, 5}) {
    auto engine = MakeEngine(model_.file(), {.threads = threads});
    EXPECT_EQ(FirstDifference(RunChunks(*engine, tokens_, 100), baseline_), "")
        << threads << " threads, chunks of 100";
    EXPECT_EQ(FirstDifference(RunChunks(*engine, tokens_, 9), baseline_), "")
        << threads << " threads, chunks of 9";
  }
}

TEST_F(EngineBitsTest, PrefillChunksDoNotMatter) {
  auto engine = MakeEngine(model_.file(), {.threads = 2});
  for (const size_t chunk : {1, 7, 64, 128}) {
    ASSERT_LE(chunk, engine->max_logits());
    EXPECT_EQ(FirstDifference(RunChunks(*engine, tokens_, chunk), baseline_), "")
        << "chunks of " << chunk;
  }
  // All at once, logits of the last row only.
  engine->Reset(SlotId(0));
  std::vector<TokenRow> rows;
  for (size_t i = 0; i < tokens_.size(); ++i)
    rows.push_back({tokens_[i], SlotId(0), static_cast<uint32_t>(i), i + 1 == tokens_.size()});
  engine->Run(rows);
  const auto last = engine->logits(0);
  EXPECT_EQ(FirstDifference(
                {last.begin(), last.end()},
                {baseline_.end() - static_cast<std::ptrdiff_t>(last.size()), baseline_.end()}),
            "");
}

// Behind the last attention only the rows go on whose logits are wanted: none, some, the first, the
// last.
TEST_F(EngineBitsTest, WhichRowsWantLogitsDoesNotMatter) {
  const size_t vocab = baseline_.size() / tokens_.size();
  for (const TestEngineOptions& options :
       {TestEngineOptions{.threads = 1}, TestEngineOptions{.threads = 3},
        TestEngineOptions{.threads = 2, .attention = {{.threads = 1, .slots = 1}}}}) {
    auto engine = MakeEngine(model_.file(), options);
    size_t done = 0;
    for (const std::vector<size_t>& wanted :
         // of 20 rows, then of 50
         std::vector<std::vector<size_t>>{{}, {0}, {19}, {0, 7, 8, 19}, {3, 4, 18}, {1}}) {
      const size_t n = std::min<size_t>(done < 80 ? 20 : 50, tokens_.size() - done);
      std::vector<TokenRow> rows;
      for (size_t i = 0; i < n; ++i) {
        const bool logits = std::find(wanted.begin(), wanted.end(), i) != wanted.end();
        rows.push_back({tokens_[done + i], SlotId(0), static_cast<uint32_t>(done + i), logits});
      }
      engine->Run(rows);
      for (size_t i = 0; i < wanted.size(); ++i) {
        const auto logits = engine->logits(i);
        const auto at = baseline_.begin() + static_cast<std::ptrdiff_t>((done + wanted[i]) * vocab);
        EXPECT_EQ(FirstDifference({logits.begin(), logits.end()},
                                  {at, at + static_cast<std::ptrdiff_t>(vocab)}),
                  "")
            << options.threads << " threads, row " << wanted[i] << " of " << n << " from " << done;
        EXPECT_EQ(engine->fault(i), "");
      }
      done += n;
    }
    ASSERT_GE(done, 150u);
  }
}

// Submit submits and Collect collects, for one stage as for a chain: what was collected last stays
// readable until the next Collect, and the caller's rows are not needed after Submit.
TEST_F(EngineBitsTest, LogitsStayUntilTheNextCollect) {
  auto engine = MakeEngine(model_.file(), {.threads = 2});
  const auto logits = [&] {
    return std::vector<float>(engine->logits(0).begin(), engine->logits(0).end());
  };
  const auto of_baseline = [&](size_t row) {
    const auto begin = baseline_.begin() + static_cast<std::ptrdiff_t>(row * logits().size());
    return std::vector<float>(begin, begin + static_cast<std::ptrdiff_t>(logits().size()));
  };
  std::vector<TokenRow> row = {{tokens_[0], SlotId(0), 0, true}};
  engine->Run(row);
  row[0] = {tokens_[1], SlotId(0), 1, true};
  engine->Submit(row);
  row[0] = {};
  EXPECT_EQ(FirstDifference(logits(), of_baseline(0)), "");
  engine->Collect();
  EXPECT_EQ(FirstDifference(logits(), of_baseline(1)), "");
}

TEST_F(EngineBitsTest, FrameSizesDoNotMatter) {
  for (const size_t rows : {1, 5, 48}) {
    auto engine =
        MakeEngine(model_.file(),
                   {.threads = 2, .max_batch_tokens = rows, .few_rows = std::min<size_t>(rows, 4)});
    EXPECT_EQ(FirstDifference(RunChunks(*engine, tokens_, engine->max_logits()), baseline_), "")
        << "frames of " << rows;
  }
}

TEST_F(EngineBitsTest, InstructionSetsDoNotMatter) {
  for (const Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAvxVnni, Isa::kAvx512Vnni}) {
    if (!kernels::HostHas(isa)) {
      std::printf("skipped: this CPU has no %s\n", std::string(IsaName(isa)).c_str());
      continue;
    }
    auto engine = MakeEngine(model_.file(), {.threads = 2, .isa = isa});
    EXPECT_EQ(FirstDifference(RunChunks(*engine, tokens_, 100), baseline_), "") << IsaName(isa);
  }
}

TEST_F(EngineBitsTest, TilesDoNotMatter) {
  for (const Isa isa : {Isa::kAvx2, Isa::kAvxVnni, Isa::kAvx512Vnni}) {
    if (!kernels::HostHas(isa)) continue;
    kernels::KernelTuning tuning = kernels::DefaultTuning(isa);
    for (kernels::Schedule& of : tuning.products.of) {
      of.tile = {.rows = of.tile.rows - (of.tile.rows > 1)};
      of.slice = {.blocks = 2, .panels = 1, .rows = 32};
    }
    tuning.attention = {
        .scores = tuning.products, .value_sums = 3, .value_queries = 3, .tile_queries = 9};
    auto engine = MakeEngine(model_.file(), {.threads = 2, .isa = isa, .tuning = tuning});
    EXPECT_EQ(FirstDifference(RunChunks(*engine, tokens_, 100), baseline_), "") << IsaName(isa);
  }
}

TEST_F(EngineBitsTest, NeighboursInABatchDoNotMatter) {
  auto engine = MakeEngine(model_.file(), {.threads = 2, .slots = 8});
  // Slot 3 has the tested sequence; the others have different ones, at other positions.
  std::vector<std::vector<int32_t>> others;
  for (uint32_t slot = 0; slot < 8; ++slot) {
    others.push_back(slot == 3 ? tokens_ : TestTokens(400, 301, 100 + slot));
    if (slot != 3)
      RunChunks(*engine, {others[slot].begin(), others[slot].begin() + 10 * slot}, 32,
                SlotId(static_cast<int32_t>(slot)));
  }
  const size_t vocab = 301;
  for (size_t i = 0; i < tokens_.size(); ++i) {
    std::vector<TokenRow> rows;
    for (uint32_t slot = 0; slot < 8; ++slot) {
      const size_t position = slot == 3 ? i : 10 * slot + i;
      rows.push_back({others[slot][position], SlotId(static_cast<int32_t>(slot)),
                      static_cast<uint32_t>(position), true});
    }
    engine->Run(rows);
    const auto logits = engine->logits(3);
    const auto at = baseline_.begin() + static_cast<std::ptrdiff_t>(i * vocab);
    ASSERT_EQ(FirstDifference({logits.begin(), logits.end()},
                              {at, at + static_cast<std::ptrdiff_t>(vocab)}),
              "")
        << "position " << i;
  }
}

TEST_F(EngineBitsTest, ARewrittenEndDoesNotMatter) {
  auto engine = MakeEngine(model_.file(), {.threads = 2});
  RunChunks(*engine, TestTokens(290, 301, 77), 64);  // leaves stale keys and values behind
  EXPECT_EQ(FirstDifference(RunChunks(*engine, tokens_, 100), baseline_), "");
}

// Every family, every instruction set, alone and chunked, on a whole-block shape.
TEST(EngineArchitectureBitsTest, AllAgree) {
  for (const model::Family* family : model::Families()) {
    const std::string_view architecture = family->name;
    model::SynthOptions options;
    options.shape = {.architecture = architecture,
                     .layers = 2,
                     .dim = 128,
                     .ffn = 320,
                     .heads = 8,
                     .kv_heads = 2,
                     .head_size = 64,
                     .vocab = 320};
    if (architecture == "llama") options.shape.head_size = 16;
    const TestModel model(options);
    const auto tokens = TestTokens(80, 320);
    std::vector<float> baseline;
    for (const Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAvx512Vnni}) {
      if (!kernels::HostHas(isa)) continue;
      for (const size_t threads : {1, 5}) {
        auto engine = MakeEngine(model.file(), {.threads = threads, .isa = isa});
        const auto logits = RunChunks(*engine, tokens, threads == 1 ? 80 : 3);
        if (baseline.empty()) baseline = logits;
        EXPECT_EQ(FirstDifference(logits, baseline), "")
            << architecture << ", " << IsaName(isa) << ", " << threads << " threads";
      }
    }
  }
}

// Tensors in one, as some converters write them, are packed as apart.
TEST(EngineFormsBitsTest, TensorsInOneAreTheSame) {
  struct Form {
    const char* family;
    std::function<void(model::testing::RawGguf&, const std::string& layer)> merge;
  };
  const std::vector<Form> forms = {
      {"qwen3moe",
       [](auto& file, const std::string& layer) {
         file.MergeRows(layer + "ffn_gate_up_exps.weight",
                        {{layer + "ffn_gate_exps.weight", 0, 6 * 320},
                         {layer + "ffn_up_exps.weight", 0, 6 * 320}},
                        6);
       }},
      {"qwen3moe",
       [](auto& file, const std::string& layer) {
         file.CutRows(layer + "ffn_gate_exps.weight", layer + "ffn_gate.*.weight", 320);
         file.CutRows(layer + "ffn_up_exps.weight", layer + "ffn_up.*.weight", 320);
         file.CutRows(layer + "ffn_down_exps.weight", layer + "ffn_down.*.weight", 128);
       }},
      {"qwen3next",
       [](auto& file, const std::string& layer) {
         const std::string qkv = layer + "attn_qkv.weight";
         file.MergeRows(
             layer + "ssm_in.weight",
             {{qkv, 0, 64}, {qkv, 64, 64}, {qkv, 128, 256}, {layer + "attn_gate.weight", 0, 256}},
             2);
       }},
  };
  for (const Form& form : forms) {
    model::SynthOptions options;
    options.shape = {.architecture = form.family,
                     .layers = 2,
                     .dim = 128,
                     .ffn = 320,
                     .heads = 8,
                     .kv_heads = 2,
                     .head_size = 64,
                     .vocab = 320};
    const TestModel model(options);
    model::testing::RawGguf raw = model::testing::RawOf(*model.file());
    for (const char* layer : {"blk.0.", "blk.1."}) form.merge(raw, layer);
    const model::testing::TempFile merged(raw.Bytes());
    const auto tokens = TestTokens(20, 320);
    const auto run = [&](const std::shared_ptr<const model::GgufFile>& file) {
      return RunChunks(*MakeEngine(file, {.threads = 5}), tokens, 7);
    };
    EXPECT_EQ(FirstDifference(run(model::GgufFile::Open(merged.path())), run(model.file())), "")
        << form.family;
  }
}

// Layers of several quantised types: every instruction set, threads, chunks, attention apart, and a
// chain.
TEST(EngineTypesBitsTest, AllAgree) {
  const weight_node::MixedModel model(weight_node::MixedShape(), weight_node::MixedType);
  const auto tokens = TestTokens(80, 300);
  std::vector<float> baseline;
  for (const Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAvxVnni, Isa::kAvx512Vnni}) {
    if (!kernels::HostHas(isa)) continue;
    for (const size_t threads : {1, 2, 5}) {
      auto engine = MakeEngine(model.file(), {.threads = threads, .isa = isa});
      const auto logits = RunChunks(*engine, tokens, threads == 1 ? 80 : 3);
      if (baseline.empty()) baseline = logits;
      EXPECT_EQ(FirstDifference(logits, baseline), "")
          << IsaName(isa) << ", " << threads << " threads";
    }
  }
  auto separated =
      MakeEngine(model.file(), {.threads = 2, .attention = {{.threads = 1, .slots = 1}}});
  EXPECT_EQ(FirstDifference(RunChunks(*separated, tokens, 7), baseline), "") << "attention apart";
  const TestChain chain =
      MakeTestChain(*model.file(), {{1, 2}, {1, 1, {{.threads = 1, .slots = 1}}}}, 1, 2);
  auto stages = MakeChainEngine(model.file(), chain);
  EXPECT_EQ(FirstDifference(RunChunks(*stages, tokens, 7), baseline), "") << "two stages";
}

// The files of another engine's quantiser.
TEST(EngineTypesBitsTest, FilesOfEachTypeAgree) {
  LARDER_NEEDS_TEST_DATA(TestData("quants"));
  for (const auto& entry : std::filesystem::directory_iterator(TestData("quants"))) {
    if (entry.path().extension() != ".gguf") continue;
    const auto file = model::GgufFile::Open(entry.path());
    const auto tokens = TestTokens(40, static_cast<int32_t>(model::ReadModelConfig(*file).vocab));
    std::vector<float> baseline;
    for (const Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAvxVnni, Isa::kAvx512Vnni}) {
      if (!kernels::HostHas(isa)) continue;
      auto engine = MakeEngine(file, {.threads = isa == Isa::kAvx2 ? 3u : 2u, .isa = isa});
      const auto logits = RunChunks(*engine, tokens, isa == Isa::kAvx2 ? 1 : 40);
      if (baseline.empty()) baseline = logits;
      EXPECT_EQ(FirstDifference(logits, baseline), "") << entry.path() << ", " << IsaName(isa);
    }
    auto separated = MakeEngine(file, {.threads = 2, .attention = {{.threads = 1, .slots = 1}}});
    EXPECT_EQ(FirstDifference(RunChunks(*separated, tokens, 7), baseline), "")
        << entry.path() << ", attention apart";
  }
}

// A model whose layers are of two kinds, which differ in their FFN, their query heads and their KV
// heads: near the float32 reference, and with the same bits in every mode.
model::SynthOptions TwoKinds(std::string_view architecture) {
  model::SynthOptions options;
  options.shape = {.architecture = architecture,
                   .layers = 4,
                   .dim = 192,
                   .ffn = 352,
                   .heads = 6,
                   .kv_heads = 2,
                   .head_size = 32,
                   .vocab = 301,
                   .context = 1024,
                   .odd_ffn = 608,
                   .odd_heads = 4,
                   .odd_kv_heads = 4};
  return options;
}

class EngineKindsTest : public testing::TestWithParam<std::string_view> {
 protected:
  EngineKindsTest() : model_(TwoKinds(GetParam())), tokens_(TestTokens(290, 301)) {
    auto engine = MakeEngine(model_.file(), {});
    baseline_ = RunChunks(*engine, tokens_, 100);
  }
  TestModel model_;
  std::vector<int32_t> tokens_;  // more than one chunk of 256 positions
  std::vector<float> baseline_;
};

TEST_P(EngineKindsTest, TheFileSaysIt) {
  const model::ModelConfig config = model::ReadModelConfig(*model_.file());
  // The last layer of smollm3 and of cohere2 does not rotate, only that of qwen35 has attention,
  // and the second of nemotron_h has no FFN.
  if (GetParam() == "smollm3" || GetParam() == "cohere2" || GetParam() == "qwen35" ||
      GetParam().starts_with("nemotron_h")) {
    EXPECT_EQ(config.kind_of, (std::vector<uint8_t>{0, 1, 0, 2}));
  } else if (GetParam() == "qwen35moe" || GetParam() == "qwen3next") {  // experts are alike
    EXPECT_EQ(config.kind_of, (std::vector<uint8_t>{0, 0, 0, 1}));
    return;
  } else if (config.layer(0).experts.count != config.layer(3).experts.count) {
    EXPECT_EQ(config.kind_of, (std::vector<uint8_t>{0, 1, 2, 1})) << "the first has no experts";
  } else {
    EXPECT_EQ(config.kind_of, (std::vector<uint8_t>{0, 1, 0, 1}));
  }
  EXPECT_EQ(config.layer(3).sizes.heads, 4u);
  EXPECT_EQ(config.layer(3).sizes.kv_heads, config.layer(3).latent.any() ? 1u : 4u);
  EXPECT_EQ(model::LayersOf(config, 1, 1).OwnKinds(), std::vector<size_t>{1});
  if (config.layer(3).experts.count != 0) return;  // alike in their experts
  EXPECT_EQ(config.layer(3).sizes.ffn, 608u);
  if (config.recurrent()) return;
  EXPECT_EQ(model::LayersText(config),
            "4 layers, dim 192; 2 of ffn 352, 6 heads / 2 KV heads of 32; 2 of ffn 608, 4 heads / "
            "4 KV heads of 32");
}

TEST_P(EngineKindsTest, IsNearTheReference) {
  const std::vector<float> truth =
      model::ReferenceModel::Make(model_.file()).TeacherForced(tokens_);
  const model::Divergence divergence = model::CompareLogits(truth, baseline_, 301);
  const model::ModelConfig config = model::ReadModelConfig(*model_.file());
  const bool experts = config.layer(3).experts.count != 0;
  // A state keeps what experts that were chosen otherwise have changed.
  EXPECT_LE(divergence.median_kl, experts && config.recurrent() ? 0.015 : 0.005);
  EXPECT_GT(divergence.median_kl, 1e-7);
  if (!experts) {  // whose routers may choose otherwise
    EXPECT_LE(divergence.mean_kl, 0.005);
  }
}

TEST_P(EngineKindsTest, ThreadsAndCutsDoNotMatter) {
  const bool experts = model::ReadModelConfig(*model_.file()).layer(3).experts.count != 0;
  for (const size_t threads : {2, 3, 5}) {
    for (const bool shares : {false, true}) {
      if (shares && !experts) continue;
      auto engine = MakeEngine(model_.file(), {.threads = threads, .expert_shares = shares});
      EXPECT_EQ(FirstDifference(RunChunks(*engine, tokens_, 100), baseline_), "")
          << threads << shares;
      EXPECT_EQ(FirstDifference(RunChunks(*engine, tokens_, 9), baseline_), "")
          << threads << shares;
    }
  }
}

TEST_P(EngineKindsTest, SocketsDoNotMatter) {
  for (const size_t attention_threads : {1, 3}) {
    auto engine =
        MakeEngine(model_.file(), {.threads = 2, .attention = {{attention_threads, 1}, {1, 1}}});
    EXPECT_EQ(FirstDifference(RunChunks(*engine, tokens_, 100), baseline_), "");
    EXPECT_EQ(FirstDifference(RunChunks(*engine, tokens_, 7), baseline_), "");
  }
}

TEST_P(EngineKindsTest, ServersDoNotMatter) {
  const AttentionServers servers(
      *model_.file(), MakeTestPlan(*model_.file(), {.threads = 2, .attention = {{2, 1}, {1, 1}}}));
  auto engine = servers.Connect(model_.file());
  EXPECT_EQ(FirstDifference(RunChunks(*engine, tokens_, 100), baseline_), "");
  EXPECT_EQ(FirstDifference(RunChunks(*engine, tokens_, 7, SlotId(1)), baseline_), "");
}

// Stages that have both kinds, and one kind alone.
TEST_P(EngineKindsTest, StagesDoNotMatter) {
  for (const std::vector<TestStage>& stages :
       std::vector<std::vector<TestStage>>{{{2, 2}, {2, 1}}, {{1, 1}, {1, 2, {{2, 1}}}, {2, 1}}}) {
    const TestChain test = MakeTestChain(*model_.file(), stages, 1, stages.size() + 1);
    auto engine = MakeChainEngine(model_.file(), test);
    EXPECT_EQ(FirstDifference(RunChunks(*engine, tokens_, engine->max_logits()), baseline_), "")
        << stages.size() << " stages";
  }
}

std::vector<std::string_view> FamilyNames() {
  std::vector<std::string_view> names;
  for (const model::Family* family : model::Families()) names.push_back(family->name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Families, EngineKindsTest, testing::ValuesIn(FamilyNames()),
                         [](const auto& of) {
                           std::string name(of.param);
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

// The bits themselves, of every family, and with matrices of every type: golden_bits.txt has a hash
// of the logits of 200 positions. All other tests compare modes with each other, and would not see
// that all of them have moved. A hash changes only with kArithmeticVersion; LARDER_WRITE_GOLDEN=1
// in the environment writes the file again.
constexpr size_t kPositions = 200;
constexpr const char* kFile = LARDER_SOURCE_DIR "/pipeline/engine/golden_bits.txt";

std::map<std::string, model::ModelShape> Shapes() {
  const model::ModelShape shape{.layers = 2,
                                .dim = 256,
                                .ffn = 512,
                                .heads = 4,
                                .kv_heads = 2,
                                .head_size = 64,
                                .vocab = 301};
  const auto of = [&](std::string_view architecture, auto&& change) {
    model::ModelShape changed = shape;
    changed.architecture = architecture;
    change(changed);
    return changed;
  };
  return {{"llama", shape},
          {"llama-tied", of("llama",
                            [](model::ModelShape& s) {
                              s.tied = true;
                              s.llama3_rope_factor = 8.0;
                            })},
          // Heads whose rows are no whole panels, three query heads for a KV head.
          {"llama-awkward", of("llama",
                               [](model::ModelShape& s) {
                                 s.heads = 6;
                                 s.head_size = 40;
                                 s.ffn = 768;
                                 s.qkv_bias = true;
                               })},
          {"llama-biases",
           of("llama",
              [](model::ModelShape& s) { s.qkv_bias = s.output_biases = s.gate_biases = true; })},
          {"llama-two-kinds", of("llama",
                                 [](model::ModelShape& s) {
                                   s.odd_ffn = 768;
                                   s.odd_heads = 2;
                                   s.odd_kv_heads = 1;
                                 })},
          {"qwen2", of("qwen2", [](model::ModelShape&) {})},
          {"qwen3", of("qwen3", [](model::ModelShape&) {})},
          {"falcon-h1", of("falcon-h1", [](model::ModelShape&) {})},
          {"granitehybrid", of("granitehybrid", [](model::ModelShape& s) { s.layers = 3; })},
          {"lfm2", of("lfm2", [](model::ModelShape& s) { s.layers = 3; })},
          {"qwen35", of("qwen35",
                        [](model::ModelShape& s) {
                          s.layers = 4;
                          s.value_heads = 2 * s.heads;
                        })},
          // The families that came later, each with what its layers have.
          {"ernie4_5", of("ernie4_5", [](model::ModelShape&) {})},
          {"exaone4", of("exaone4", [](model::ModelShape&) {})},
          {"glm4", of("glm4", [](model::ModelShape&) {})},
          {"granite", of("granite", [](model::ModelShape& s) { s.output_biases = true; })},
          {"hunyuan-dense", of("hunyuan-dense", [](model::ModelShape&) {})},
          {"mistral3", of("mistral3", [](model::ModelShape&) {})},
          {"olmo2", of("olmo2", [](model::ModelShape&) {})},
          {"phi3", of("phi3", [](model::ModelShape&) {})},
          {"seed_oss", of("seed_oss", [](model::ModelShape&) {})},
          {"smollm3", of("smollm3", [](model::ModelShape& s) { s.layers = 4; })},
          {"exaone4-windows", of("exaone4",
                                 [](model::ModelShape& s) {
                                   s.layers = 4;
                                   s.window = 50;
                                 })},
          {"olmo2-windows", of("olmo2",
                               [](model::ModelShape& s) {
                                 s.layers = 4;
                                 s.window = 50;
                               })},
          {"phi3-windows", of("phi3", [](model::ModelShape& s) { s.window = 50; })},
          {"gemma2", of("gemma2",
                        [](model::ModelShape& s) {
                          s.tied = true;
                          s.window = 50;
                        })},
          {"gemma3", of("gemma3",
                        [](model::ModelShape& s) {
                          s.tied = true;
                          s.layers = 6;
                          s.window = 50;
                        })},
          {"gemma4", of("gemma4",
                        [](model::ModelShape& s) {
                          s.tied = true;
                          s.layers = 6;
                          s.window = 50;
                          s.llama3_rope_factor = 8.0;
                        })},
          {"gemma4-e2b", of("gemma4",
                            [](model::ModelShape& s) {
                              s.tied = true;
                              s.layers = 8;
                              s.window = 50;
                              s.input_size = 64;
                              s.shared_kv = 1;
                            })},
          {"gemma4-experts", of("gemma4",
                                [](model::ModelShape& s) {
                                  s.tied = true;
                                  s.layers = 6;
                                  s.window = 50;
                                  s.experts = 5;
                                  s.experts_used = 3;
                                  s.expert_ffn = 96;
                                })},
          {"cohere2", of("cohere2",
                         [](model::ModelShape& s) {
                           s.tied = true;
                           s.layers = 4;
                           s.window = 50;
                         })},
          {"gemma", of("gemma", [](model::ModelShape& s) { s.tied = true; })},
          {"command-r", of("command-r", [](model::ModelShape& s) { s.tied = true; })},
          {"command-r-norms", of("command-r", [](model::ModelShape& s) { s.qk_norm = true; })},
          {"llama-experts", of("llama",
                               [](model::ModelShape& s) {
                                 s.experts = 5;
                                 s.experts_used = 3;
                                 s.expert_ffn = 288;
                               })},
          {"gpt-oss", of("gpt-oss", [](model::ModelShape& s) { s.window = 50; })},
          {"deepseek2", of("deepseek2", [](model::ModelShape&) {})},
          {"dots1", of("dots1", [](model::ModelShape&) {})},
          {"ernie4_5-moe", of("ernie4_5-moe", [](model::ModelShape&) {})},
          {"granitemoe", of("granitemoe", [](model::ModelShape&) {})},
          {"minimax-m2", of("minimax-m2", [](model::ModelShape&) {})},
          {"olmoe", of("olmoe", [](model::ModelShape&) {})},
          {"qwen2moe", of("qwen2moe", [](model::ModelShape&) {})},
          {"qwen3moe", of("qwen3moe", [](model::ModelShape&) {})},
          {"arcee", of("arcee", [](model::ModelShape& s) { s.ffn = 544; })},
          {"bailingmoe2", of("bailingmoe2", [](model::ModelShape&) {})},
          {"glm4moe", of("glm4moe", [](model::ModelShape&) {})},
          {"granitehybrid-experts", of("granitehybrid",
                                       [](model::ModelShape& s) {
                                         s.layers = 3;
                                         s.experts = 5;
                                         s.experts_used = 3;
                                         s.shared_ffn = 96;
                                       })},
          {"lfm2moe", of("lfm2moe", [](model::ModelShape& s) { s.layers = 3; })},
          {"nemotron_h", of("nemotron_h", [](model::ModelShape& s) { s.layers = 3; })},
          {"nemotron_h_moe", of("nemotron_h_moe", [](model::ModelShape& s) { s.layers = 3; })},
          {"qwen35moe", of("qwen35moe",
                           [](model::ModelShape& s) {
                             s.layers = 4;
                             s.value_heads = 2 * s.heads;
                           })},
          {"qwen3next", of("qwen3next", [](model::ModelShape& s) {
             s.layers = 4;
             s.value_heads = 2 * s.heads;
           })}};
}

std::string HashOf(const model::ModelShape& shape, const model::MatrixTypes& types) {
  const TestModel model({.shape = shape, .type = types});
  auto engine = MakeEngine(model.file(), {.threads = 2});
  const std::vector<float> logits =
      RunChunks(*engine, TestTokens(kPositions, shape.vocab), engine->max_logits());
  return fmt::format("{:016x}", Fnv1a({reinterpret_cast<const char*>(logits.data()),
                                       logits.size() * sizeof(float)}));
}

TEST(GoldenBitsTest, AreThoseOfThisVersion) {
  std::map<std::string, std::string> is;
  for (const auto& [family, shape] : Shapes()) {
    // Types meet families in nothing but the products: two of them for those that came later.
    const bool all_types = family.starts_with("llama") || family.starts_with("qwen");
    for (const model::NamedMatrixTypes& types : model::AllMatrixTypes()) {
      if (!all_types && types.name != std::string_view("q8_0") &&
          types.name != std::string_view("q4_k_m"))
        continue;
      is[fmt::format("{} {}", family, types.name)] = HashOf(shape, types.types);
    }
  }
  const std::string version = fmt::format("arithmetic {}", kernels::kArithmeticVersion);
  if (std::getenv("LARDER_WRITE_GOLDEN") != nullptr) {
    std::ofstream out(kFile);
    out << version << '\n';
    for (const auto& [name, hash] : is) out << name << ' ' << hash << '\n';
    GTEST_SKIP() << "wrote " << kFile;
  }
  std::ifstream in(kFile);
  std::string line;
  ASSERT_TRUE(std::getline(in, line)) << kFile;
  EXPECT_EQ(line, version) << kFile;
  std::map<std::string, std::string> golden;
  while (std::getline(in, line))
    golden[line.substr(0, line.rfind(' '))] = line.substr(line.rfind(' ') + 1);
  EXPECT_EQ(is, golden);
}

}  // namespace
}  // namespace larder::pipeline::engine
