// The bits themselves, of every family with matrices of every type: golden_bits.txt has a hash of
// the logits of 200 positions. All other tests compare modes with each other, and would not see
// that all of them have moved. A hash changes only with kArithmeticVersion; LARDER_WRITE_GOLDEN=1
// in the environment writes the file again.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <string_view>

#include "base/fnv.h"
#include "kernels/formats/numerics.h"
#include "pipeline/engine/engine_testing.h"

namespace larder::pipeline::inline engine {
namespace {

constexpr size_t kPositions = 200;
constexpr const char* kFile = LARDER_SOURCE_DIR "/pipeline/engine/golden_bits.txt";

std::map<std::string, model::ModelShape> Shapes() {
  using model::Architecture;
  const model::ModelShape shape{.layers = 2,
                                .dim = 256,
                                .ffn = 512,
                                .heads = 4,
                                .kv_heads = 2,
                                .head_size = 64,
                                .vocab = 301};
  const auto of = [&](Architecture architecture, auto&& change) {
    model::ModelShape changed = shape;
    changed.architecture = architecture;
    change(changed);
    return changed;
  };
  return {{"llama", shape},
          {"llama-tied", of(Architecture::kLlama,
                            [](model::ModelShape& s) {
                              s.tied = true;
                              s.llama3_rope_factor = 8.0;
                            })},
          // Heads whose rows are no whole panels, three query heads for a KV head.
          {"llama-awkward", of(Architecture::kLlama,
                               [](model::ModelShape& s) {
                                 s.heads = 6;
                                 s.head_size = 40;
                                 s.ffn = 768;
                                 s.qkv_bias = true;
                               })},
          {"llama-two-kinds", of(Architecture::kLlama,
                                 [](model::ModelShape& s) {
                                   s.odd_ffn = 768;
                                   s.odd_heads = 2;
                                   s.odd_kv_heads = 1;
                                 })},
          {"qwen2", of(Architecture::kQwen2, [](model::ModelShape&) {})},
          {"qwen3", of(Architecture::kQwen3, [](model::ModelShape&) {})}};
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
    for (const model::NamedMatrixTypes& types : model::AllMatrixTypes())
      is[fmt::format("{} {}", family, types.name)] = HashOf(shape, types.types);
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
