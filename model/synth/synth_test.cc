#include "model/synth/synth.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <set>

#include "base/error.h"
#include "model/gguf/gguf_testing.h"
#include "model/synth/synth_testing.h"

namespace larder::model::inline synth {
namespace {

using testing::TempFile;

struct Moments {
  double mean = 0, deviation = 0, fourth = 0;  // the last: E[x^4] / deviation^4, 3 for a normal
                                               // distribution
};
Moments MomentsOf(const GgufFile& file, const TensorInfo& tensor) {
  std::vector<float> values(tensor.rows * tensor.cols);
  file.ReadRowsF32(tensor, 0, tensor.rows, values.data());
  double sum = 0, squares = 0, fourths = 0;
  for (const double v : values) {
    sum += v;
    squares += v * v;
    fourths += v * v * v * v;
  }
  const auto n = static_cast<double>(values.size());
  return {sum / n, std::sqrt(squares / n), fourths / n / std::pow(squares / n, 2)};
}

TEST(Synth, EveryArchitectureAndTypeIsAWholeModel) {
  for (const std::string_view arch : {"llama", "qwen2", "qwen3"}) {
    for (const NamedMatrixTypes& named : AllMatrixTypes()) {
      for (const bool tied : {false, true}) {
        SynthOptions options;
        options.shape.architecture = arch;
        options.shape.dim = 64;
        options.shape.ffn = 172;  // not whole blocks
        options.shape.heads = 6;
        options.shape.kv_heads = 2;
        options.shape.head_size = 16;
        options.shape.vocab = 300;
        options.shape.tied = tied;
        options.shape.rope_base = 5e5;
        options.shape.llama3_rope_factor = arch == "llama" ? 32.0 : 0.0;
        options.type = named.types;
        const TempFile temp;
        WriteSynth(options, temp.path());
        const auto file = GgufFile::Open(temp.path());
        const ModelConfig config = ReadModelConfig(*file);
        EXPECT_EQ(config.architecture_name, arch);
        EXPECT_EQ(config.layers, 2u);
        EXPECT_EQ(config.kinds[0].sizes.q_rows(), 96u);
        EXPECT_EQ(config.kinds[0].sizes.kv_rows(), 32u);
        EXPECT_EQ(config.vocab, 300u);
        EXPECT_EQ(config.tied_embeddings, tied);
        EXPECT_EQ(config.kinds[0].Has(TensorRole::kQBias), arch == "qwen2");
        EXPECT_EQ(config.kinds[0].Has(TensorRole::kQNorm), arch == "qwen3");
        EXPECT_EQ(config.kinds[0].rotary.freq_factors.size(), arch == "llama" ? 8u : 0u);
        EXPECT_EQ(file->GetUnsigned("general.file_type"), named.file_type);
        EXPECT_EQ(file->Tensor("blk.1.attn_q.weight").type, FallbackType(named.types.most, 64));
        EXPECT_EQ(file->Tensor("blk.1.ffn_down.weight").type, FallbackType(named.types.finer, 172));
        for (const TensorInfo& tensor : file->tensors()) {
          std::vector<Q8Block> blocks(tensor.rows * CeilDiv(tensor.cols, kBlock));
          file->ReadRowsQ8_0(tensor, 0, tensor.rows, blocks.data());
        }
      }
    }
  }
}

TEST(Synth, TheSameSeedGivesTheSameFile) {
  SynthOptions options;
  options.shape.layers = 1;
  const std::string first = Bytes(options);
  EXPECT_EQ(Bytes(options), first);
  options.seed = 2;
  const std::string second = Bytes(options);
  ASSERT_EQ(second.size(), first.size());
  size_t same = 0;
  for (size_t i = 0; i < first.size(); ++i) same += first[i] == second[i] ? 1 : 0;
  EXPECT_LT(same, first.size() / 10);  // the header, and one byte in about eighty by chance
}

TEST(Synth, WeightsAreNormalWithTheRightDeviation) {
  for (const TensorType type :
       {TensorType::kF32, TensorType::kF16, TensorType::kBF16, TensorType::kQ8_0}) {
    SynthOptions options;
    options.type = type;
    const TempFile temp;
    WriteSynth(options, temp.path());
    const auto file = GgufFile::Open(temp.path());
    for (const char* name : {"token_embd.weight", "blk.0.attn_q.weight", "blk.1.ffn_down.weight"}) {
      const TensorInfo& tensor = file->Tensor(name);
      const Moments moments = MomentsOf(*file, tensor);
      const double deviation = 1.0 / std::sqrt(static_cast<double>(tensor.cols));
      // 65536 values and more: the mean's own deviation is 0.004, the deviation's 0.003, that of
      // the fourth moment 0.02.
      EXPECT_NEAR(moments.mean / deviation, 0.0, 0.025) << name;
      EXPECT_NEAR(moments.deviation / deviation, 1.0, 0.02) << name;
      EXPECT_NEAR(moments.fourth, type == TensorType::kQ8_0 ? 3.1 : 2.95, 0.2) << name;
    }
    const Moments norm = MomentsOf(*file, file->Tensor("blk.0.attn_norm.weight"));
    EXPECT_NEAR(norm.mean, 1.0, 0.02);
  }
  SynthOptions wide;
  wide.standard_deviation = 0.5f;
  const TempFile temp;
  WriteSynth(wide, temp.path());
  const auto file = GgufFile::Open(temp.path());
  EXPECT_NEAR(MomentsOf(*file, file->Tensor("output.weight")).deviation, 0.5, 0.01);
}

TEST(Synth, TensorsDiffer) {
  SynthOptions options;
  const TempFile temp;
  WriteSynth(options, temp.path());
  const auto file = GgufFile::Open(temp.path());
  std::vector<Q8Block> a(8), b(8);
  file->ReadRowsQ8_0(file->Tensor("blk.0.ffn_gate.weight"), 0, 1, a.data());
  for (const char* other : {"blk.0.ffn_up.weight", "blk.1.ffn_gate.weight"}) {
    file->ReadRowsQ8_0(file->Tensor(other), 0, 1, b.data());
    EXPECT_NE(std::memcmp(a.data(), b.data(), sizeof(Q8Block) * 8), 0) << other;
  }
  file->ReadRowsQ8_0(file->Tensor("blk.0.ffn_gate.weight"), 1, 1, b.data());
  EXPECT_NE(std::memcmp(a.data(), b.data(), sizeof(Q8Block) * 8), 0);
}

TEST(Synth, VocabularyIsWholeAndUnique) {
  for (const size_t vocab :
       {size_t{259}, size_t{300}, size_t{512}, size_t{32000}, size_t{128256}}) {
    SynthOptions options;
    options.shape.layers = 1;
    options.shape.dim = 32;
    options.shape.heads = options.shape.kv_heads = 1;
    options.shape.ffn = 32;
    options.shape.vocab = vocab;
    const TempFile temp;
    WriteSynth(options, temp.path());
    const auto file = GgufFile::Open(temp.path());
    const auto tokens = file->FindStrings("tokenizer.ggml.tokens");
    ASSERT_EQ(tokens->size(), vocab);
    EXPECT_EQ(file->FindFloats("tokenizer.ggml.scores")->size(), vocab);
    EXPECT_EQ(file->FindInts("tokenizer.ggml.token_type")->size(), vocab);
    EXPECT_EQ(std::set(tokens->begin(), tokens->end()).size(), vocab);
    EXPECT_EQ((*tokens)[3], "<0x00>");
    EXPECT_EQ((*tokens)[258], "<0xFF>");
    EXPECT_EQ((*tokens)[file->GetUnsigned("tokenizer.ggml.bos_token_id")], "<s>");
    EXPECT_EQ((*tokens)[file->GetUnsigned("tokenizer.ggml.eos_token_id")], "</s>");
  }
}

// The parameter counts that the models' publishers give; of deepseek2 with a bias of
// each expert, which deepseek-v2-lite has not.
TEST(Synth, NamedShapesHaveThePublishedNumberOfParameters) {
  const std::map<std::string_view, uint64_t> published = {
      {"qwen3-30b-a3b", 30532122624},    {"mixtral-8x7b", 46702792704},
      {"bench-24m", 23598080},           {"gpt-oss-20b", 20914757184},
      {"gpt-oss-120b", 116829156672},    {"tinyllama-1.1b", 1100048384},
      {"llama-2-7b", 6738415616},        {"llama-2-13b", 13015864320},
      {"llama-3.2-1b", 1235814400},      {"llama-3.2-3b", 3212749824},
      {"llama-3.1-8b", 8030261248},      {"llama-3.1-70b", 70553706496},
      {"mistral-7b", 7248023552},        {"qwen2.5-0.5b", 494032768},
      {"qwen2.5-1.5b", 1543714304},      {"qwen2.5-3b", 3085938688},
      {"qwen2.5-7b", 7615616512},        {"qwen3-0.6b", 596049920},
      {"qwen3-1.7b", 1720574976},        {"qwen3-4b", 4022468096},
      {"qwen3-8b", 8190735360},          {"qwen3-14b", 14768307200},
      {"qwen3-32b", 32762123264},        {"llama-2-70b", 68976648192},
      {"gemma-2-2b", 2614341888},        {"gemma-2-9b", 9241705984},
      {"gemma-2-27b", 27227128320},      {"gemma-3-270m", 268098176},
      {"gemma-3-1b", 999885952},         {"qwen3.5-4b", 4205751296},
      {"qwen3.5-9b", 8953803264},        {"qwen3-next-80b-a3b", 79674391296},
      {"gemma-3-4b", 3880263168},        {"gemma-4-12b", 11907350272 + 48},  // each layer's scale
      {"deepseek-v2-lite", 15706485888}, {"deepseek-v3", 671026419200},
      {"gemma-4-e2b", 4628569379},       {"gemma-4-e4b", 7463013418},
      {"gemma-4-26b-a4b", 25233141790},
  };
  for (const auto& [name, parameters] : published) {
    const ModelConfig config = ConfigOfShape(ShapeByName(name), std::string(name));
    EXPECT_EQ(config.parameters(), parameters) << name;
  }
  // bench-1b, bench-delta-1b, bench-gpt-oss-28m, bench-latent-440m, bench-moe-20m and
  // bench-moe-440m are ours
  EXPECT_EQ(published.size() + 6, NamedShapes().size());
  EXPECT_EQ(ConfigOfShape(ShapeByName("bench-moe-20m"), "").parameters(), 21393280u);
  EXPECT_EQ(ConfigOfShape(ShapeByName("bench-moe-440m"), "").parameters(), 425216000u);
}

TEST(Synth, ErrorsNameTheField) {
  const auto error = [](auto&& change) -> std::string {
    SynthOptions options;
    change(options.shape);
    try {
      WriteSynth(options, TempFile().path());
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  };
  EXPECT_EQ(error([](ModelShape& s) { s.vocab = 100; }),
            "synth: vocab is 100, expected 259 to 4194304");
  EXPECT_EQ(error([](ModelShape& s) { s.layers = 0; }), "synth: layers is 0, expected 1 to 1024");
  EXPECT_EQ(error([](ModelShape& s) { s.kv_heads = 3; }),
            "synth: kv_heads is 3, expected a divisor of heads");
  EXPECT_EQ(error([](ModelShape& s) { s.head_size = 7; }),
            "synth: head_size is 7, expected an even number from 2 to 1024");
  EXPECT_EQ(error([](ModelShape& s) {
              s = ShapeByName("deepseek-v2-lite");
              s.head_size = 16;
            }),
            "synth: head_size is 16, expected more than the 64 that rotate");
  EXPECT_THROW(ShapeByName("gpt-5"), Error);
}

}  // namespace
}  // namespace larder::model::synth
