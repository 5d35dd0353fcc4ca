// The layers that the table of families and tensors describes.
#include "model/families/family.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace larder::model::inline families {
namespace {

constexpr LayerSizes kSizes{.dim = 96, .ffn = 160, .heads = 4, .kv_heads = 2, .head_size = 40};

std::vector<std::string> Suffixes(const LayerSpec& spec) {
  std::vector<std::string> suffixes;
  for (const TensorSpec& tensor : spec.tensors) suffixes.emplace_back(tensor.suffix);
  return suffixes;
}

TEST(LayerSpec, OfEachFamily) {
  const LayerSpec llama = MakeLayerSpec(FamilyOf("llama"), {.sizes = kSizes}, 1e-5f, {});
  EXPECT_EQ(Suffixes(llama),
            (std::vector<std::string>{"attn_norm.weight", "attn_q.weight", "attn_k.weight",
                                      "attn_v.weight", "attn_output.weight", "ffn_norm.weight",
                                      "ffn_gate.weight", "ffn_up.weight", "ffn_down.weight"}));
  EXPECT_EQ(llama.rotary.pairing, RopePairing::kInterleaved);
  const LayerSpec with_biases =
      MakeLayerSpec(FamilyOf("llama"), {.sizes = kSizes}, 1e-5f, {.qkv_bias = true});
  EXPECT_TRUE(with_biases.Has(TensorRole::kQBias) && with_biases.Has(TensorRole::kVBias));

  const LayerSpec qwen2 = MakeLayerSpec(FamilyOf("qwen2"), {.sizes = kSizes}, 1e-5f, {});
  EXPECT_TRUE(qwen2.Has(TensorRole::kKBias)) << "whatever the file has";
  EXPECT_FALSE(qwen2.Has(TensorRole::kQNorm));
  EXPECT_EQ(qwen2.rotary.pairing, RopePairing::kHalves);

  const LayerSpec qwen3 = MakeLayerSpec(FamilyOf("qwen3"), {.sizes = kSizes}, 1e-5f, {});
  EXPECT_FALSE(qwen3.Has(TensorRole::kQBias));
  EXPECT_TRUE(qwen3.Has(TensorRole::kQNorm) && qwen3.Has(TensorRole::kKNorm));
}

TEST(LayerSpec, ShapesAndTheirMeaning) {
  const LayerSpec spec = MakeLayerSpec(FamilyOf("qwen2"), {.sizes = kSizes}, 1e-5f, {});
  const TensorSpec& o = spec.tensor(TensorRole::kO);
  EXPECT_EQ(o.rows, 96u);
  EXPECT_EQ(o.cols, 160u);
  EXPECT_EQ(o.meaning, "embedding_length x head_count * head size");
  const TensorSpec& bias = spec.tensor(TensorRole::kKBias);
  EXPECT_EQ(bias.rows, 1u);
  EXPECT_EQ(bias.cols, 80u);
  EXPECT_EQ(bias.meaning, "head_count_kv * head size");
  uint64_t parameters = 0;
  for (const TensorSpec& tensor : spec.tensors) parameters += tensor.rows * tensor.cols;
  EXPECT_EQ(spec.parameters(), parameters);
  EXPECT_EQ(spec.attention_divisor, std::sqrt(40.0));
}

// What a Program needs: every norm and matrix exists, and attention divides the operations in two.
TEST(LayerSpec, OperationsFindTheirTensors) {
  std::set<std::string_view> names;
  std::set<int> numbers;
  for (const Family* family : Families()) {
    EXPECT_TRUE(names.insert(family->name).second);
    EXPECT_TRUE(numbers.insert(family->number).second);
    EXPECT_EQ(&FamilyOf(family->name), family);
    EXPECT_EQ(MissingIn(family->name), "");
    const LayerSpec spec = MakeLayerSpec(*family, {.sizes = kSizes}, 1e-5f, {});
    size_t norms = 0;
    for (const LayerOp& op : spec.ops) {
      if (op.post_norm) {
        ++norms;
        EXPECT_EQ(spec.tensor(*op.post_norm).cols, kSizes.dim);
        EXPECT_TRUE(op.kind == OpKind::kO || op.kind == OpKind::kDown);
      }
      if (op.kind != OpKind::kNorm) continue;
      ++norms;
      EXPECT_EQ(spec.tensor(op.norm).kind, TensorKind::kNorm);
      EXPECT_EQ(spec.tensor(op.norm).cols, kSizes.dim);
    }
    EXPECT_EQ(spec.norms(), norms);
    EXPECT_EQ(spec.BeforeAttention().size() + 1 + spec.AfterAttention().size(), spec.ops.size());
    EXPECT_EQ(spec.ops[spec.BeforeAttention().size()].kind, OpKind::kAttention);
  }
  EXPECT_TRUE(LayerSpec().AfterAttention().empty());
}

// A family is one entry: another order of operations and other tensors need no other code.
TEST(LayerSpec, AFamilyIsAnEntry) {
  constexpr LayerOp kOps[] = {{OpKind::kQkv}, {OpKind::kAttention}, {OpKind::kO}};
  const Family family{"new",         1000, RopePairing::kHalves, Family::QkvBias::kAlways,
                      QkNorm::kHead, kOps};
  RotarySpec rotary;
  rotary.dim = 20;
  const LayerSpec spec = MakeLayerSpec(family, {.sizes = kSizes, .rotary = rotary}, 1e-5f, {});
  EXPECT_EQ(spec.tensors.size(), 9u);  // no norms of the residual, no FFN
  EXPECT_EQ(spec.rotary.dim, 20u);
  EXPECT_EQ(spec.rotary.pairing, RopePairing::kHalves);
  EXPECT_EQ(spec.norms(), 0u);
  EXPECT_EQ(spec.AfterAttention().front().kind, OpKind::kO);
}

}  // namespace
}  // namespace larder::model::families
