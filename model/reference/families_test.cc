// Every family: its synthetic files are read as they were meant, each of its keys changes what is
// computed, bad ones are refused in one line, and files of published models' classes give the
// logits that the publishers' code computed in float64 (LARDER_TEST_DATA/families).
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <set>

#include "base/error.h"
#include "base/test_data_testing.h"
#include "model/config/description.h"
#include "model/config/split.h"
#include "model/families/family.h"
#include "model/gguf/gguf_testing.h"
#include "model/reference/divergence.h"
#include "model/reference/reference.h"
#include "model/synth/synth.h"

namespace larder::model::inline reference {
namespace {

using testing::Raw;
using testing::RawArray;
using testing::RawGguf;
using testing::TempFile;
using Type = GgufValueType;

// "gemma4-e2b" has layer inputs, and its last two layers have no keys and values of their own.
// "gemma4-experts" has experts beside its FFNs.
ModelShape SmallShape(std::string_view family) {
  if (family == "gemma4-experts") {
    ModelShape shape = SmallShape("gemma4");
    shape.experts = 6;
    shape.experts_used = 2;
    shape.expert_ffn = 48;
    return shape;
  }
  if (family == "gemma4-e2b") {
    ModelShape shape = SmallShape("gemma4");
    shape.input_size = 24;
    shape.shared_kv = 2;
    return shape;
  }
  return {.architecture = family,
          .layers = 4,
          .dim = 64,
          .ffn = 96,
          .heads = 4,
          .kv_heads = 2,
          .head_size = 16,
          .vocab = 300,
          .context = 256,
          // layers of both kinds
          .full_every = family == "gemma3" || family == "gemma4" ? size_t{2} : size_t{0}};
}

RawGguf SmallFile(const ModelShape& shape, TensorType type = TensorType::kF32) {
  const TempFile temp;
  WriteSynth({.shape = shape, .type = type}, temp.path());
  return testing::RawOf(*GgufFile::Open(temp.path()));
}
RawGguf SmallFile(std::string_view family, TensorType type = TensorType::kF32) {
  return SmallFile(SmallShape(family), type);
}

// All families', and variants that a family may have.
std::vector<ModelShape> SmallShapes() {
  std::vector<ModelShape> shapes;
  for (const Family* family : Families()) shapes.push_back(SmallShape(family->name));
  shapes.push_back(SmallShape("gemma4-e2b"));
  shapes.push_back(SmallShape("gemma4-experts"));
  ModelShape& as_published = shapes.emplace_back(SmallShape("gemma4-e2b"));
  as_published.window = 32;
  as_published.full_every = 2;
  as_published.shared_kv_ffn = 192;
  as_published.own_values = true;
  return shapes;
}

std::shared_ptr<const GgufFile> Open(const RawGguf& raw, const TempFile& temp) {
  const std::string bytes = raw.Bytes();
  std::ofstream(temp.path(), std::ios::binary)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return GgufFile::Open(temp.path());
}

TEST(Families, SyntheticFilesAreWhatTheirShapesSay) {
  for (const ModelShape& shape : SmallShapes()) {
    const std::string_view family = shape.architecture;
    const TempFile temp;
    WriteSynth({.shape = shape, .type = TensorType::kQ4_0}, temp.path());
    const ModelConfig read = ReadModelConfig(*GgufFile::Open(temp.path()));
    const ModelConfig meant = ConfigOfShape(shape, read.name, TensorType::kQ4_0);
    EXPECT_EQ(read.kind_of, meant.kind_of) << family;
    EXPECT_EQ(read.scales, meant.scales) << family;
    EXPECT_EQ(read.input_size, meant.input_size) << family;
    EXPECT_EQ(read.types.input_embedding, meant.types.input_embedding) << family;
    EXPECT_EQ(read.types.input_matrix, meant.types.input_matrix) << family;
    ASSERT_EQ(read.kinds.size(), meant.kinds.size()) << family;
    for (size_t kind = 0; kind < read.kinds.size(); ++kind) {
      EXPECT_EQ(read.kinds[kind].tensors, meant.kinds[kind].tensors) << family;
      EXPECT_EQ(read.kinds[kind].ops, meant.kinds[kind].ops) << family;
      EXPECT_EQ(read.kinds[kind].rotary.dim, meant.kinds[kind].rotary.dim) << family;
      EXPECT_EQ(read.kinds[kind].kv_of, meant.kinds[kind].kv_of) << family;
    }
  }
}

// Each part of a split model has the description of the whole, and its tensors' dimensions.
TEST(Families, ASplitModelIsTheSame) {
  for (const ModelShape& shape : SmallShapes()) {
    const TempFile whole, first, second, serving;
    const auto file = Open(SmallFile(shape, TensorType::kF16), whole);
    WriteSplit(*file, {{first.path(), 0, 3}, {second.path(), 3, 1}}, serving.path());
    const std::string expected = DescriptionOf(ReadModelConfig(*file));
    for (const TempFile* path : {&first, &second, &serving}) {
      const auto part = GgufFile::Open(path->path());
      EXPECT_EQ(DescriptionOf(ReadModelConfig(*part)), expected) << shape.architecture;
      for (const TensorInfo& tensor : part->tensors())
        EXPECT_EQ(tensor.matrices, file->Tensor(tensor.name).matrices) << tensor.name;
    }
  }
}

struct Change {
  std::string_view what, family;
  std::function<void(RawGguf&)> change;
};

void Scale(RawGguf& file, std::string_view tensor, float factor) {
  RawGguf::Tensor& found = file.Find(tensor);
  for (uint64_t i = 0; i < found.dims[0]; ++i) {
    float value;
    std::memcpy(&value, file.data.data() + found.offset + i * sizeof(value), sizeof(value));
    // Not all alike: a norm may follow.
    file.Patch(tensor, i * sizeof(value), Raw(i % 2 == 0 ? value * factor : value));
  }
}

// Of command-r: in all layers, or in none.
void AddNormsOfHeads(RawGguf& file, const std::vector<uint64_t>& of_q,
                     const std::vector<uint64_t>& of_k) {
  for (int i = 0; i < 4; ++i) {
    file.AddF32(fmt::format("blk.{}.attn_q_norm.weight", i), of_q);
    file.AddF32(fmt::format("blk.{}.attn_k_norm.weight", i), of_k);
  }
}

const std::vector<Change>& Changes() {
  static const std::vector<Change> changes = {
      {"embedding scale", "granite", [](RawGguf& f) { f.SetF32("granite.embedding_scale", 5.0f); }},
      {"residual scale", "granite", [](RawGguf& f) { f.SetF32("granite.residual_scale", 0.5f); }},
      {"attention scale", "granite",
       [](RawGguf& f) { f.SetF32("granite.attention.scale", 0.125f); }},
      {"logit scale", "granite", [](RawGguf& f) { f.SetF32("granite.logit_scale", 2.0f); }},
      {"no rotation", "granite",
       [](RawGguf& f) { f.Set("granite.rope.scaling.finetuned", Type::kBool, Raw(uint8_t{0})); }},
      {"temperature", "mistral3",
       [](RawGguf& f) { f.SetF32("mistral3.attention.temperature_scale", 0.5f); }},
      {"temperature's length", "mistral3",
       [](RawGguf& f) { f.SetU32("mistral3.rope.scaling.original_context_length", 32); }},
      {"YaRN's multiplier", "mistral3",
       [](RawGguf& f) { f.SetF32("mistral3.rope.scaling.yarn_log_multiplier", 0.5f); }},
      {"LongRoPE's magnitude", "phi3",
       [](RawGguf& f) { f.SetF32("phi3.rope.scaling.attn_factor", 1.5f); }},
      {"LongRoPE's context", "phi3",
       [](RawGguf& f) { f.SetU32("phi3.rope.scaling.original_context_length", 256); }},
      {"a window of all layers", "llama",
       [](RawGguf& f) { f.SetU32("llama.attention.sliding_window", 32); }},
      {"a window of phi3", "phi3",
       [](RawGguf& f) { f.SetU32("phi3.attention.sliding_window", 32); }},
      {"windows of some layers", "olmo2",
       [](RawGguf& f) { f.SetU32("olmo2.attention.sliding_window", 32); }},
      {"layers that do not rotate beside windows", "exaone4",  // a window that hides nothing
       [](RawGguf& f) { f.SetU32("exaone4.attention.sliding_window", 256); }},
      {"which layers have windows", "exaone4",
       [](RawGguf& f) {
         f.SetU32("exaone4.attention.sliding_window", 32);
         f.Set("exaone4.attention.sliding_window_pattern", Type::kArray,
               RawArray(Type::kBool, 4, std::string("\x01\x00\x00\x01", 4)));
       }},
      {"the base of windows", "olmo2",
       [](RawGguf& f) {
         f.SetU32("olmo2.attention.sliding_window", 255);  // which hides nothing of the 70 tokens
         f.SetF32("olmo2.rope.freq_base_swa", 500.0f);
       }},
      {"rotated elements", "glm4", [](RawGguf& f) { f.SetU32("glm4.rope.dimension_count", 12); }},
      {"the norm after attention", "olmo2",
       [](RawGguf& f) { Scale(f, "blk.1.post_attention_norm.weight", 2); }},
      {"the norm after the FFN", "glm4",
       [](RawGguf& f) { Scale(f, "blk.1.post_ffw_norm.weight", 2); }},
      {"the norm of q", "olmo2", [](RawGguf& f) { Scale(f, "blk.1.attn_q_norm.weight", 2); }},
      {"the norm of k", "hunyuan-dense",
       [](RawGguf& f) { Scale(f, "blk.1.attn_k_norm.weight", 2); }},
      {"the norm before the FFN", "seed_oss",
       [](RawGguf& f) { Scale(f, "blk.1.post_attention_norm.weight", 2); }},
      {"the cap of scores", "gemma2",
       [](RawGguf& f) { f.SetF32("gemma2.attn_logit_softcapping", 1.0f); }},
      {"the cap of scores of a file without the key", "gemma2",
       [](RawGguf& f) { f.EraseKey("gemma2.attn_logit_softcapping"); }},
      {"the cap of logits", "gemma2",
       [](RawGguf& f) { f.SetF32("gemma2.final_logit_softcapping", 5.0f); }},
      {"no cap of logits", "gemma2",
       [](RawGguf& f) { f.SetF32("gemma2.final_logit_softcapping", 0.0f); }},
      {"a cap of logits", "gemma3",
       [](RawGguf& f) { f.SetF32("gemma3.final_logit_softcapping", 1.0f); }},
      {"windows of even layers", "gemma2",
       [](RawGguf& f) { f.SetU32("gemma2.attention.sliding_window", 32); }},
      {"windows and their rotation", "gemma3",
       [](RawGguf& f) { f.SetU32("gemma3.attention.sliding_window", 32); }},
      {"the base of layers without windows", "gemma3",
       [](RawGguf& f) { f.SetF32("gemma3.rope.freq_base", 1e6f); }},
      {"the scale behind a norm", "gemma4",
       [](RawGguf& f) { f.Patch("blk.1.layer_output_scale.weight", 0, Raw(3.0f)); }},
      {"the cap of gemma4's logits", "gemma4",
       [](RawGguf& f) { f.SetF32("gemma4.final_logit_softcapping", 0.0f); }},
      {"factors of layers without windows", "gemma4",
       [](RawGguf& f) { f.AddF32("rope_freqs.weight", {8}, 3.0f); }},
      {"keys and values of another layer", "gemma4",
       [](RawGguf& f) { f.SetU32("gemma4.attention.shared_kv_layers", 1); }},
      {"the norm of layer inputs", "gemma4-e2b",
       [](RawGguf& f) { Scale(f, "per_layer_proj_norm.weight", 2); }},
      {"the norm behind a layer input", "gemma4-e2b",
       [](RawGguf& f) { Scale(f, "blk.3.post_norm.weight", 2); }},
      {"a weight of layer inputs", "gemma4-e2b",
       [](RawGguf& f) { Scale(f, "per_layer_model_proj.weight", 4); }},
      {"a weight of a token's layer inputs", "gemma4-e2b",
       [](RawGguf& f) { Scale(f, "per_layer_token_embd.weight", 4); }},
      {"a weight of a layer input's gate", "gemma4-e2b",
       [](RawGguf& f) { Scale(f, "blk.2.inp_gate.weight", 4); }},
      {"a weight behind it", "gemma4-e2b", [](RawGguf& f) { Scale(f, "blk.2.proj.weight", 4); }},
      {"how many experts are used beside an FFN", "gemma4-experts",
       [](RawGguf& f) { f.SetU32("gemma4.expert_used_count", 3); }},
      {"the norm of experts beside an FFN", "gemma4-experts",
       [](RawGguf& f) { Scale(f, "blk.1.pre_ffw_norm_2.weight", 2); }},
      {"the norm behind them", "gemma4-experts",
       [](RawGguf& f) { Scale(f, "blk.1.post_ffw_norm_2.weight", 2); }},
      {"the norm behind the FFN beside them", "gemma4-experts",
       [](RawGguf& f) { Scale(f, "blk.1.post_ffw_norm_1.weight", 2); }},
      {"the norm behind both", "gemma4-experts",
       [](RawGguf& f) { Scale(f, "blk.1.post_ffw_norm.weight", 2); }},
      {"a weight of the router's scale", "gemma4-experts",
       [](RawGguf& f) { Scale(f, "blk.1.ffn_gate_inp.scale", 4); }},
      {"a weight of an expert's scale", "gemma4-experts",
       [](RawGguf& f) { Scale(f, "blk.1.ffn_down_exps.scale", 4); }},
      {"windows, which rotate", "cohere2",
       [](RawGguf& f) { f.SetU32("cohere2.attention.sliding_window", 32); }},
      {"the scale of logits", "command-r",
       [](RawGguf& f) { f.SetF32("command-r.logit_scale", 0.5f); }},
      {"LayerNorm's epsilon", "command-r",
       [](RawGguf& f) { f.SetF32("command-r.attention.layer_norm_epsilon", 0.05f); }},
      {"the norm before attention and FFN", "command-r",
       [](RawGguf& f) { Scale(f, "blk.1.attn_norm.weight", 2); }},
      {"norms of q and k of each head", "command-r",
       [](RawGguf& f) {
         AddNormsOfHeads(f, {16, 4}, {16, 2});
       }},
      {"KV heads of a layer", "lfm2",
       [](RawGguf& f) {
         f.Set("lfm2.attention.head_count_kv", Type::kArray,
               RawArray(Type::kI32, 4, Raw(0) + Raw(1) + Raw(0) + Raw(2)));
         for (const char* name : {"blk.1.attn_k.weight", "blk.1.attn_v.weight"})
           f.Find(name).dims = {64, 16};
       }},
      {"no rotation beside Mamba-2", "granitehybrid",
       [](RawGguf& f) {
         f.Set("granitehybrid.rope.scaling.finetuned", Type::kBool, Raw(uint8_t{0}));
       }},
      {"the convolution's bias", "granitehybrid",
       [](RawGguf& f) { f.Patch("blk.2.ssm_conv1d.bias", 0, Raw(3.0f)); }},
      {"a state's step", "granitehybrid",
       [](RawGguf& f) { f.Patch("blk.2.ssm_dt.bias", 0, Raw(3.0f)); }},
      {"a state's skip", "granitehybrid", [](RawGguf& f) { f.Patch("blk.2.ssm_d", 4, Raw(3.0f)); }},
      {"no norm of groups", "falcon-h1",
       [](RawGguf& f) {
         for (int i = 0; i < 4; ++i) f.EraseTensor(fmt::format("blk.{}.ssm_norm.weight", i));
       }},
      {"a state's decay", "falcon-h1", [](RawGguf& f) { f.Patch("blk.2.ssm_a", 0, Raw(-3.0f)); }},
      {"the norm before the FFN, called ffn_norm", "falcon-h1",
       [](RawGguf& f) { Scale(f, "blk.1.ffn_norm.weight", 2); }},
      {"the norm of a group", "granitehybrid",
       [](RawGguf& f) { f.Patch("blk.2.ssm_norm.weight", 4, Raw(5.0f)); }},
      {"the convolution of channels", "lfm2",
       [](RawGguf& f) { f.Patch("blk.2.shortconv.conv.weight", 0, Raw(3.0f)); }},
      {"how many experts are used", "qwen3moe",
       [](RawGguf& f) { f.SetU32("qwen3moe.expert_used_count", 3); }},
      {"that experts' weights are normalised", "qwen3moe",
       [](RawGguf& f) { f.Set("qwen3moe.expert_weights_norm", Type::kBool, Raw(uint8_t{0})); }},
      {"that experts' weights are not normalised", "olmoe",
       [](RawGguf& f) { f.SetU32("olmoe.expert_gating_func", 3); }},
      {"what a router makes of its products", "qwen2moe",
       [](RawGguf& f) { f.SetU32("qwen2moe.expert_gating_func", 2); }},
      {"the scale of experts", "dots1",
       [](RawGguf& f) { f.SetF32("dots1.expert_weights_scale", 1.5f); }},
      {"the sigmoid of the shared expert", "qwen2moe",
       [](RawGguf& f) {
         for (int i = 0; i < 4; ++i)
           f.EraseTensor(fmt::format("blk.{}.ffn_gate_inp_shexp.weight", i));
       }},
      {"the norm that only a router's bias changes", "minimax-m2",
       [](RawGguf& f) { f.Patch("blk.1.exp_probs_b.bias", 4, Raw(5.0f)); }},
      {"the norm before experts, by a row of the router", "ernie4_5-moe",
       [](RawGguf& f) { Scale(f, "blk.2.ffn_gate_inp.weight", 3); }},
      {"a weight of a router's bias behind a convolution", "lfm2moe",
       [](RawGguf& f) { f.Patch("blk.2.exp_probs_b.bias", 4, Raw(5.0f)); }},
      {"a weight of betas and alphas in one tensor", "qwen3next",
       [](RawGguf& f) { Scale(f, "blk.1.ssm_ba.weight", 3); }},
      {"the sigmoid of the shared expert behind a state", "qwen35moe",
       [](RawGguf& f) {
         for (int i = 0; i < 4; ++i)
           f.EraseTensor(fmt::format("blk.{}.ffn_gate_inp_shexp.weight", i));
       }},
      {"no norms of q and k", "glm4moe",
       [](RawGguf& f) {
         for (int i = 0; i < 4; ++i) {
           f.EraseTensor(fmt::format("blk.{}.attn_q_norm.weight", i));
           f.EraseTensor(fmt::format("blk.{}.attn_k_norm.weight", i));
         }
       }},
      {"groups of experts", "bailingmoe2",
       [](RawGguf& f) { f.SetU32("bailingmoe2.expert_group_count", 0); }},
      {"how many groups are used", "bailingmoe2",
       [](RawGguf& f) { f.SetU32("bailingmoe2.expert_group_used_count", 1); }},
      {"the norm of a softmax, by a sink", "gpt-oss",
       [](RawGguf& f) { f.Patch("blk.1.attn_sinks.weight", 4, Raw(6.0f)); }},
      {"windows of gpt-oss", "gpt-oss",
       [](RawGguf& f) { f.SetU32("gpt-oss.attention.sliding_window", 32); }},
      {"YaRN's ramp between pairs", "gpt-oss",
       [](RawGguf& f) { f.SetF32("gpt-oss.rope.scaling.yarn_beta_fast", 24.0f); }},
      {"the norm that a bias of the router changes", "gpt-oss",
       [](RawGguf& f) { f.Patch("blk.1.ffn_gate_inp.bias", 4, Raw(5.0f)); }},
      {"the norm before experts with a bias of gate", "gpt-oss",
       [](RawGguf& f) { f.Patch("blk.1.ffn_gate_exps.bias", 96 * 4, Raw(5.0f)); }},
      {"the norm before experts with a bias of up", "gpt-oss",
       [](RawGguf& f) { f.Patch("blk.1.ffn_up_exps.bias", 96 * 4, Raw(5.0f)); }},
      {"the norm behind experts with a bias of down", "gpt-oss",
       [](RawGguf& f) { f.Patch("blk.2.ffn_down_exps.bias", 64 * 4, Raw(5.0f)); }},
      {"a bias of up, whose square it is in", "arcee",
       [](RawGguf& f) {
         for (int i = 0; i < 4; ++i) f.AddF32(fmt::format("blk.{}.ffn_up.bias", i), {96});
       }},
      {"the norm before an FFN that is a block of its own", "nemotron_h",
       [](RawGguf& f) { Scale(f, "blk.1.attn_norm.weight", 2); }},
      {"a weight of a router's bias in a block of its own", "nemotron_h_moe",
       [](RawGguf& f) { f.Patch("blk.1.exp_probs_b.bias", 4, Raw(5.0f)); }},
      {"the multiplier of YaRN in scores", "deepseek2",
       [](RawGguf& f) { f.SetF32("deepseek2.rope.scaling.yarn_log_multiplier", 0.2f); }},
      {"the norm of a latent", "deepseek2",
       [](RawGguf& f) { Scale(f, "blk.1.attn_kv_a_norm.weight", 2); }},
      {"the norm of what queries are made of", "deepseek2",
       [](RawGguf& f) { Scale(f, "blk.1.attn_q_a_norm.weight", 2); }},
      {"the norm before keys of latents", "deepseek2",
       [](RawGguf& f) { Scale(f, "blk.1.attn_k_b.weight", 3); }},
      {"the norm before values of latents", "deepseek2",
       [](RawGguf& f) { Scale(f, "blk.1.attn_v_b.weight", 3); }},
      {"a bias of O", "llama", [](RawGguf& f) { f.AddF32("blk.0.attn_output.bias", {64}); }},
      {"a bias of down", "llama", [](RawGguf& f) { f.AddF32("blk.0.ffn_down.bias", {64}); }},
      {"a bias of gate", "llama",
       [](RawGguf& f) {
         f.AddF32("blk.0.ffn_up.bias", {96}, 0.0f);
         f.AddF32("blk.0.ffn_gate.bias", {96});
       }},
      {"a bias of up", "glm4",  // gate's and up's are one, as they are
       [](RawGguf& f) { f.AddF32("blk.0.ffn_up.bias", {192}); }},
  };
  return changes;
}

TEST(Families, EachKeyAndTensorChangesTheLogits) {
  const std::vector<TokenId> tokens(70, 7);
  std::vector<TokenId> varied = tokens;
  for (size_t i = 0; i < varied.size(); ++i) varied[i] = static_cast<TokenId>(i * i % 300);
  for (const Change& change : Changes()) {
    RawGguf file = SmallFile(change.family);
    // In all layers, or in none.
    for (int layer = 1; change.what.starts_with("a bias") && layer < 4; ++layer) {
      const auto add = [&](const char* name, uint64_t n) {
        file.AddF32(fmt::format("blk.{}.{}.bias", layer, name), {n}, 0.0f);
      };
      if (change.what == "a bias of O") add("attn_output", 64);
      if (change.what == "a bias of down") add("ffn_down", 64);
      if (change.what == "a bias of gate") add("ffn_gate", 96), add("ffn_up", 96);
      if (change.what == "a bias of up") add("ffn_up", 192);
    }
    const TempFile before, after;
    RawGguf changed = file;
    change.change(changed);
    if (change.what.starts_with("a bias")) file = SmallFile(change.family);
    const auto a = ReferenceModel::Make(Open(file, before)).TeacherForced(varied);
    const auto b = ReferenceModel::Make(Open(changed, after)).TeacherForced(varied);
    EXPECT_GT(CompareLogits(a, b, 300).mean_kl, 1e-6) << change.what;
  }
}

// What is not in a file's description is not in the identity of what is computed.
TEST(Families, EachKeyChangesTheDescription) {
  for (const Change& change : Changes()) {
    const RawGguf file = SmallFile(change.family);
    if (change.what.find("norm") != change.what.npos || change.what.starts_with("a bias") ||
        change.what.starts_with("the convolution") || change.what.starts_with("a state's") ||
        change.what.starts_with("a weight"))
      continue;  // tensors
    RawGguf changed = file;
    change.change(changed);
    const TempFile before, after;
    EXPECT_NE(DescriptionOf(ReadModelConfig(*Open(file, before))),
              DescriptionOf(ReadModelConfig(*Open(changed, after))))
        << change.what;
  }
}

// Tensors in one, as some converters write them, are the same model.
TEST(Families, TensorsInOneAreTheSame) {
  const auto name = [](int layer, const char* suffix) {
    return fmt::format("blk.{}.{}", layer, suffix);
  };
  const auto experts = [&](RawGguf& f, int layer) {
    f.MergeRows(name(layer, "ffn_gate_up_exps.weight"),
                {{name(layer, "ffn_gate_exps.weight"), 0, 576},
                 {name(layer, "ffn_up_exps.weight"), 0, 576}},
                6);
  };
  const std::vector<Change> forms = {
      {"keys of a layer that attends to another one's", "gemma4-e2b",
       [](RawGguf& f) {
         f.AddF32("blk.3.attn_k.weight", {64, 32});
         f.AddF32("blk.3.attn_v.weight", {64, 32});
         f.AddF32("blk.3.attn_k_norm.weight", {16});
       }},
      {"gate and up of experts", "qwen3moe",
       [&](RawGguf& f) {
         for (int i = 0; i < 4; ++i) experts(f, i);
       }},
      {"those of layers with experts", "dots1",
       [&](RawGguf& f) {
         for (int i = 1; i < 4; ++i) experts(f, i);
       }},
      {"experts apart", "qwen3moe",
       [&](RawGguf& f) {
         for (int i = 0; i < 4; ++i) {
           for (const auto& [kind, rows] : {std::pair{"gate", 96}, {"up", 96}, {"down", 64}})
             f.CutRows(name(i, fmt::format("ffn_{}_exps.weight", kind).c_str()),
                       name(i, fmt::format("ffn_{}.*.weight", kind).c_str()),
                       static_cast<uint64_t>(rows));
         }
       }},
      {"all that key heads have", "qwen3next",
       [&](RawGguf& f) {
         for (int i = 0; i < 3; ++i) {
           const std::string qkv = name(i, "attn_qkv.weight");
           f.MergeRows(name(i, "ssm_in.weight"),
                       {{qkv, 0, 64},
                        {qkv, 64, 64},
                        {qkv, 128, 128},
                        {name(i, "attn_gate.weight"), 0, 128}},
                       2);
         }
       }},
  };
  const std::vector<TokenId> tokens = {3, 5, 7, 11, 13, 17, 19, 23};
  for (const Change& form : forms) {
    const RawGguf file = SmallFile(form.family);
    RawGguf changed = file;
    form.change(changed);
    const TempFile before, after, first, second, serving;
    EXPECT_EQ(ReferenceModel::Make(Open(file, before)).TeacherForced(tokens),
              ReferenceModel::Make(Open(changed, after)).TeacherForced(tokens))
        << form.what;
    const auto whole = GgufFile::Open(after.path());
    WriteSplit(*whole, {{first.path(), 0, 3}, {second.path(), 3, 1}}, serving.path());
    EXPECT_EQ(DescriptionOf(ReadModelConfig(*GgufFile::Open(second.path()))),
              DescriptionOf(ReadModelConfig(*whole)))
        << form.what;
  }
}

struct Bad {
  std::string_view family, message;
  std::function<void(RawGguf&)> change;
};

TEST(Families, BadFilesAreRefusedInOneLine) {
  const auto float_of = [](const char* key, float value) {
    return [=](RawGguf& f) { f.SetF32(key, value); };
  };
  const float nan = std::nanf(""), inf = std::numeric_limits<float>::infinity();
  const std::vector<Bad> bad = {
      {"granite", "key 'granite.embedding_scale' is 0, expected 0.000001 to 1000000",
       float_of("granite.embedding_scale", 0)},
      {"granite", "key 'granite.embedding_scale' is nan", float_of("granite.embedding_scale", nan)},
      {"granite", "key 'granite.residual_scale' is 0", float_of("granite.residual_scale", 0)},
      {"granite", "key 'granite.residual_scale' is -1", float_of("granite.residual_scale", -1)},
      {"granite", "key 'granite.logit_scale' is inf", float_of("granite.logit_scale", inf)},
      {"granite", "key 'granite.logit_scale' is 0", float_of("granite.logit_scale", 0)},
      {"granite", "key 'granite.attention.scale' is nan", float_of("granite.attention.scale", nan)},
      {"granite", "key 'granite.attention.scale' is a u32, expected a float",
       [](RawGguf& f) { f.SetU32("granite.attention.scale", 1); }},
      {"granite", "key 'granite.rope.scaling.finetuned' is a u32, expected a bool",
       [](RawGguf& f) { f.SetU32("granite.rope.scaling.finetuned", 1); }},
      {"llama", "key 'llama.logit_scale' is 2: Larder does not know what that means in a llama",
       float_of("llama.logit_scale", 2)},
      {"qwen3", "key 'qwen3.final_logit_softcapping' is 30",
       float_of("qwen3.final_logit_softcapping", 30)},
      {"llama", "key 'llama.rope.scaling.yarn_log_multiplier' is 0.1",
       float_of("llama.rope.scaling.yarn_log_multiplier", 0.1f)},
      {"mistral3", "key 'mistral3.attention.temperature_scale' is nan",
       float_of("mistral3.attention.temperature_scale", nan)},
      {"mistral3", "key 'mistral3.attention.temperature_scale' is -1",
       float_of("mistral3.attention.temperature_scale", -1)},
      {"mistral3", "key 'mistral3.rope.scaling.yarn_log_multiplier' is -2",
       float_of("mistral3.rope.scaling.yarn_log_multiplier", -2)},
      {"mistral3", "key 'mistral3.rope.scaling.original_context_length' is 0",
       [](RawGguf& f) { f.SetU32("mistral3.rope.scaling.original_context_length", 0); }},
      {"qwen3",
       "'qwen3.attention.sliding_window' is 32, less than the context 256: Larder does not",
       [](RawGguf& f) { f.SetU32("qwen3.attention.sliding_window", 32); }},
      {"gemma3", "key 'gemma3.attention.sliding_window' is 0, expected positions, 1 or more",
       [](RawGguf& f) { f.SetU32("gemma3.attention.sliding_window", 0); }},
      {"cohere2", "key 'cohere2.attention.sliding_window' is missing: all cohere2 models have",
       [](RawGguf& f) { f.EraseKey("cohere2.attention.sliding_window"); }},
      {"llama", "key 'llama.attention.sliding_window' is 0, expected positions",
       [](RawGguf& f) { f.SetU32("llama.attention.sliding_window", 0); }},
      {"gemma2", "key 'gemma2.attention.sliding_window_pattern' is 0, expected every how many-th",
       [](RawGguf& f) { f.SetU32("gemma2.attention.sliding_window_pattern", 0); }},
      {"gpt-oss", "_pattern' says that no layer has a window, but 'attention.sliding_window' is",
       [](RawGguf& f) {
         f.Set("gpt-oss.attention.sliding_window_pattern", Type::kArray,
               RawArray(Type::kBool, 4, std::string(4, 0)));
       }},
      {"glm4moe", "key 'glm4moe.expert_weights_scale' is 0, expected",
       float_of("glm4moe.expert_weights_scale", 0)},
      {"exaone4", "key 'exaone4.attention.sliding_window_pattern' has 3 values, expected one for",
       [](RawGguf& f) {
         f.SetU32("exaone4.attention.sliding_window", 32);
         f.Set("exaone4.attention.sliding_window_pattern", Type::kArray,
               RawArray(Type::kBool, 3, "\x01\x01\x01"));
       }},
      {"phi3", "key 'phi3.rope.scaling.attn_factor' is 0",
       float_of("phi3.rope.scaling.attn_factor", 0)},
      {"phi3", "'rope_factors_short.weight' and 'rope_factors_long.weight' belong together",
       [](RawGguf& f) { f.EraseTensor("rope_factors_long.weight"); }},
      {"phi3", "tensor 'rope_factors_long.weight' is 3 elements, expected 6 elements",
       [](RawGguf& f) { f.Find("rope_factors_long.weight").dims = {3}; }},
      {"phi3", "tensor 'rope_factors_short.weight': factor 0 is 0, expected more than 0",
       [](RawGguf& f) { f.Patch("rope_factors_short.weight", 0, Raw(0.0f)); }},
      {"phi3", "tensor 'rope_factors_short.weight': the weight at row 0, column 0 is NaN",
       [](RawGguf& f) { f.Patch("rope_factors_short.weight", 0, Raw(std::nanf(""))); }},
      {"phi3", "tensor 'blk.0.attn_qkv.weight' is 64 rows of 64, expected 128 rows of 64",
       [](RawGguf& f) {
         f.Find("blk.0.attn_qkv.weight").dims = {64, 64};
       }},
      {"phi3", "tensor 'blk.2.attn_qkv.weight' is missing",
       [](RawGguf& f) { f.EraseTensor("blk.2.attn_qkv.weight"); }},
      {"phi3", "tensor 'blk.0.attn_q.weight' is not part of a phi3 model",
       [](RawGguf& f) {
         f.AddF32("blk.0.attn_q.weight", {64, 64});
       }},
      {"glm4", "tensor 'blk.1.ffn_up.weight' is 96 rows of 64, expected 192 rows of 64",
       [](RawGguf& f) {
         f.Find("blk.1.ffn_up.weight").dims = {64, 96};
       }},
      {"glm4", "tensor 'blk.0.ffn_gate.weight' is missing",
       [](RawGguf& f) {
         f.Find("blk.0.ffn_up.weight").dims = {64, 96};
       }},
      {"glm4", "tensor 'blk.3.post_ffw_norm.weight' is missing",
       [](RawGguf& f) { f.EraseTensor("blk.3.post_ffw_norm.weight"); }},
      {"olmo2", "tensor 'blk.0.attn_q_norm.weight' is 16 elements, expected 64 elements",
       [](RawGguf& f) { f.Find("blk.0.attn_q_norm.weight").dims = {16}; }},
      {"olmo2", "tensor 'blk.0.attn_norm.weight' is not part of a olmo2 model",
       [](RawGguf& f) { f.AddF32("blk.0.attn_norm.weight", {64}); }},
      {"exaone4", "tensor 'blk.0.attn_q_norm.weight' is 8 elements, expected 16 elements",
       [](RawGguf& f) { f.Find("blk.0.attn_q_norm.weight").dims = {8}; }},
      {"qwen35", "key 'qwen35.ssm.inner_size' is missing",
       [](RawGguf& f) { f.EraseKey("qwen35.ssm.inner_size"); }},
      {"qwen35",
       "key 'qwen35.ssm.inner_size' is 100, expected for each of 4 heads a multiple of 32",
       [](RawGguf& f) { f.SetU32("qwen35.ssm.inner_size", 100); }},
      {"qwen35", "key 'qwen35.ssm.inner_size' is 129, expected a multiple of 4, 4 to",
       [](RawGguf& f) { f.SetU32("qwen35.ssm.inner_size", 129); }},
      {"qwen35", "key 'qwen35.ssm.group_count' is 3, expected a divisor of ssm.time_step_rank",
       [](RawGguf& f) { f.SetU32("qwen35.ssm.group_count", 3); }},
      {"qwen35", "key 'qwen35.ssm.state_size' is 24, expected a multiple of 16",
       [](RawGguf& f) { f.SetU32("qwen35.ssm.state_size", 24); }},
      {"qwen35", "key 'qwen35.ssm.conv_kernel' is 9, expected 1 to 8",
       [](RawGguf& f) { f.SetU32("qwen35.ssm.conv_kernel", 9); }},
      {"qwen35", "key 'qwen35.full_attention_interval' is 0, expected 1 to",
       [](RawGguf& f) { f.SetU32("qwen35.full_attention_interval", 0); }},
      {"qwen35", "'qwen35.nextn_predict_layers' is 4, expected less than 'qwen35.block_count'",
       [](RawGguf& f) { f.SetU32("qwen35.nextn_predict_layers", 4); }},
      {"qwen35", "tensor 'blk.0.ssm_conv1d.weight' is 3 rows of 4",
       [](RawGguf& f) {
         f.Find("blk.0.ssm_conv1d.weight").dims = {4, 3};
       }},
      {"qwen35", "tensor 'blk.0.ssm_a': head 1 has 0.5, expected at most 0",
       [](RawGguf& f) { f.Patch("blk.0.ssm_a", 4, Raw(0.5f)); }},
      {"qwen35", "tensor 'blk.0.ssm_a': the weight at row 0, column 0 is NaN",
       [](RawGguf& f) { f.Patch("blk.0.ssm_a", 0, Raw(std::nanf(""))); }},
      {"qwen35", "tensor 'blk.3.attn_q.weight' is 64 rows of 64, expected 128 rows of 64",
       [](RawGguf& f) {
         f.Find("blk.3.attn_q.weight").dims = {64, 64};
       }},
      {"qwen35", "tensor 'blk.1.ssm_out.weight' is missing",
       [](RawGguf& f) { f.EraseTensor("blk.1.ssm_out.weight"); }},
      {"falcon-h1", "key 'falcon-h1.ssm.state_size' is 8, expected a multiple of 16",
       [](RawGguf& f) { f.SetU32("falcon-h1.ssm.state_size", 8); }},
      {"falcon-h1", "key 'falcon-h1.attention.head_count' is 1, expected with heads of 16 a",
       [](RawGguf& f) {
         f.SetU32("falcon-h1.attention.head_count", 1);
         f.SetU32("falcon-h1.attention.head_count_kv", 1);
       }},
      {"falcon-h1", "tensor 'blk.0.ssm_in.weight' is 64 rows of 64, expected 388 rows of 64",
       [](RawGguf& f) {
         f.Find("blk.0.ssm_in.weight").dims = {64, 64};
       }},
      {"falcon-h1", "tensor 'blk.1.attn_output.weight' is missing",
       [](RawGguf& f) { f.EraseTensor("blk.1.attn_output.weight"); }},
      {"falcon-h1", "tensor 'blk.1.ssm_out.weight' is missing",
       [](RawGguf& f) { f.EraseTensor("blk.1.ssm_out.weight"); }},
      {"falcon-h1", "tensor 'blk.3.ssm_norm.weight' is missing",  // in all layers, or in none
       [](RawGguf& f) { f.EraseTensor("blk.3.ssm_norm.weight"); }},
      {"granitemoe", "key 'granitemoe.expert_used_count' is missing",
       [](RawGguf& f) { f.EraseKey("granitemoe.expert_used_count"); }},
      {"granitemoe", "tensor 'blk.0.ffn_down_shexp.weight' is missing",
       [](RawGguf& f) { f.EraseTensor("blk.0.ffn_down_shexp.weight"); }},
      {"olmoe", "tensor 'blk.1.attn_q_norm.weight' is missing",
       [](RawGguf& f) { f.EraseTensor("blk.1.attn_q_norm.weight"); }},
      {"minimax-m2", "tensor 'blk.2.exp_probs_b.bias' is missing",
       [](RawGguf& f) { f.EraseTensor("blk.2.exp_probs_b.bias"); }},
      {"qwen35moe", "tensor 'blk.2.ffn_gate_inp_shexp.weight' is missing",
       [](RawGguf& f) { f.EraseTensor("blk.2.ffn_gate_inp_shexp.weight"); }},
      {"hunyuan-dense", "tensor 'blk.0.attn_k_norm.weight' is missing",
       [](RawGguf& f) { f.EraseTensor("blk.0.attn_k_norm.weight"); }},
      {"granitehybrid", "tensor 'blk.0.ssm_norm.weight' is missing",
       [](RawGguf& f) { f.EraseTensor("blk.0.ssm_norm.weight"); }},
      {"granitehybrid", "key 'granitehybrid.ssm.group_count' is missing",
       [](RawGguf& f) { f.EraseKey("granitehybrid.ssm.group_count"); }},
      {"granitehybrid", "'granitehybrid.ssm.inner_size' is 96, expected for each of 4 heads a",
       [](RawGguf& f) { f.SetU32("granitehybrid.ssm.inner_size", 96); }},
      {"granitehybrid", "'granitehybrid.ssm.inner_size' is 64, expected for each of 4 groups a",
       [](RawGguf& f) {
         f.SetU32("granitehybrid.ssm.inner_size", 64);
         f.SetU32("granitehybrid.ssm.group_count", 4);
       }},
      {"granitehybrid", "key 'granitehybrid.expert_used_count' is missing",
       [](RawGguf& f) { f.SetU32("granitehybrid.expert_count", 4); }},
      {"granitehybrid", "key 'granitehybrid.residual_scale' is 0",
       float_of("granitehybrid.residual_scale", 0)},
      {"granitehybrid", "tensor 'blk.0.ssm_in.weight' is 64 rows of 64, expected 388 rows of 64",
       [](RawGguf& f) {
         f.Find("blk.0.ssm_in.weight").dims = {64, 64};
       }},
      {"granitehybrid", "tensor 'blk.0.ssm_a' is 4 elements, expected 4 rows of 1",
       [](RawGguf& f) { f.Find("blk.0.ssm_a").dims = {4}; }},
      {"granitehybrid", "tensor 'blk.2.ssm_a': head 3 has 0.5, expected at most 0",
       [](RawGguf& f) { f.Patch("blk.2.ssm_a", 12, Raw(0.5f)); }},
      {"granitehybrid", "tensor 'blk.0.ssm_norm.weight' is 128 elements, expected 2 rows of 64",
       [](RawGguf& f) { f.Find("blk.0.ssm_norm.weight").dims = {128}; }},
      {"granitehybrid", "tensor 'blk.2.ssm_d' is missing",
       [](RawGguf& f) { f.EraseTensor("blk.2.ssm_d"); }},
      {"granitehybrid", "tensor 'blk.2.ssm_conv1d.bias' is missing",
       [](RawGguf& f) { f.EraseTensor("blk.2.ssm_conv1d.bias"); }},
      {"granitehybrid", "tensor 'blk.1.ssm_out.weight' is not part of a granitehybrid model",
       [](RawGguf& f) {
         f.AddF32("blk.1.ssm_out.weight", {128, 64});
       }},
      {"lfm2", "key 'lfm2.shortconv.l_cache' is missing",
       [](RawGguf& f) { f.EraseKey("lfm2.shortconv.l_cache"); }},
      {"lfm2", "key 'lfm2.shortconv.l_cache' is 9, expected 1 to 8",
       [](RawGguf& f) { f.SetU32("lfm2.shortconv.l_cache", 9); }},
      {"lfm2", "key 'lfm2.attention.head_count_kv' is 3, expected a divisor of",
       [](RawGguf& f) {
         f.Set("lfm2.attention.head_count_kv", Type::kArray,
               RawArray(Type::kI32, 4, Raw(0) + Raw(3) + Raw(0) + Raw(2)));
       }},
      {"lfm2", "tensor 'blk.1.shortconv.in_proj.weight' is missing",
       [](RawGguf& f) {
         f.Set("lfm2.attention.head_count_kv", Type::kArray,
               RawArray(Type::kI32, 4, Raw(0) + Raw(0) + Raw(0) + Raw(2)));
       }},
      {"lfm2", "key 'lfm2.attention.head_count' is 6, expected a divisor of embedding_length",
       [](RawGguf& f) { f.SetU32("lfm2.attention.head_count", 6); }},
      {"lfm2", "tensor 'blk.0.shortconv.conv.weight' is 3 rows of 64, expected 64 rows of 3",
       [](RawGguf& f) {
         f.Find("blk.0.shortconv.conv.weight").dims = {64, 3};
       }},
      {"lfm2", "tensor 'blk.0.shortconv.in_proj.weight' is 64 rows of 64, expected 192 rows of 64",
       [](RawGguf& f) {
         f.Find("blk.0.shortconv.in_proj.weight").dims = {64, 64};
       }},
      {"lfm2", "tensor 'blk.0.shortconv.conv.bias' is not part of a lfm2 model",
       [](RawGguf& f) { f.AddF32("blk.0.shortconv.conv.bias", {64}); }},
      {"lfm2", "tensor 'token_embd_norm.weight' is missing",
       [](RawGguf& f) { f.EraseTensor("token_embd_norm.weight"); }},
      {"llama", "key 'llama.attention.head_count_kv' is 0, expected 1 to 1024",
       [](RawGguf& f) {
         f.Set("llama.attention.head_count_kv", Type::kArray,
               RawArray(Type::kI32, 4, Raw(0) + Raw(2) + Raw(0) + Raw(2)));
       }},
      {"qwen3moe", "key 'qwen3moe.expert_used_count' is 7, expected 1 to 6",
       [](RawGguf& f) { f.SetU32("qwen3moe.expert_used_count", 7); }},
      {"qwen3moe", "key 'qwen3moe.expert_used_count' is missing",
       [](RawGguf& f) { f.EraseKey("qwen3moe.expert_used_count"); }},
      {"qwen3moe", "key 'qwen3moe.expert_count' is missing",
       [](RawGguf& f) { f.EraseKey("qwen3moe.expert_count"); }},
      {"qwen3moe", "key 'qwen3moe.expert_count' is 4294967295, expected 1 to 1024",
       [](RawGguf& f) { f.SetU32("qwen3moe.expert_count", 4294967295u); }},
      {"qwen3moe", "key 'qwen3moe.expert_gating_func' is 4, expected 1 (softmax), 2 (sigmoid) or 3",
       [](RawGguf& f) { f.SetU32("qwen3moe.expert_gating_func", 4); }},
      {"qwen3moe", "key 'qwen3moe.expert_group_used_count' is missing",
       [](RawGguf& f) { f.SetU32("qwen3moe.expert_group_count", 2); }},
      {"bailingmoe2", "key 'bailingmoe2.expert_group_count' is 4, expected groups of equally many",
       [](RawGguf& f) { f.SetU32("bailingmoe2.expert_group_count", 4); }},
      {"bailingmoe2", "key 'bailingmoe2.expert_group_count' is 6, expected groups of equally many",
       [](RawGguf& f) { f.SetU32("bailingmoe2.expert_group_count", 6); }},
      {"bailingmoe2", "key 'bailingmoe2.expert_group_count' is 65, expected 1 to 64",
       [](RawGguf& f) { f.SetU32("bailingmoe2.expert_group_count", 65); }},
      {"bailingmoe2", "key 'bailingmoe2.expert_group_used_count' is 4, expected 1 to 3",
       [](RawGguf& f) { f.SetU32("bailingmoe2.expert_group_used_count", 4); }},
      {"bailingmoe2", "'bailingmoe2.expert_used_count' is 5, but 2 groups of 2 experts have fewer",
       [](RawGguf& f) { f.SetU32("bailingmoe2.expert_used_count", 5); }},
      {"bailingmoe2", "tensor 'blk.0.attn_q_norm.weight' is missing",
       [](RawGguf& f) { f.EraseTensor("blk.0.attn_q_norm.weight"); }},
      {"arcee", "tensor 'blk.0.ffn_gate.weight' is not part of a arcee model",
       [](RawGguf& f) {
         f.AddF32("blk.0.ffn_gate.weight", {64, 96});
       }},
      {"arcee", "tensor 'blk.1.ffn_up.weight' is 48 rows of 64, expected 96 rows of 64",
       [](RawGguf& f) {
         f.Find("blk.1.ffn_up.weight").dims = {64, 48};
       }},
      {"nemotron_h", "tensor 'blk.0.ffn_up.weight' is not part of a nemotron_h model",
       [](RawGguf& f) {
         f.AddF32("blk.0.ffn_up.weight", {64, 96});
       }},
      {"nemotron_h", "says that block 0 is an FFN, expected one without, since the block before it",
       [](RawGguf& f) { f.SetU32("nemotron_h.feed_forward_length", 96); }},
      {"nemotron_h", "says that block 2 is an FFN, expected one without, since it has KV heads",
       [](RawGguf& f) {
         f.Set("nemotron_h.feed_forward_length", Type::kArray,
               RawArray(Type::kI32, 7,
                        Raw(0) + Raw(96) + Raw(96) + Raw(0) + Raw(96) + Raw(0) + Raw(96)));
       }},
      {"nemotron_h", "key 'nemotron_h.feed_forward_length' has 6 values, expected one or",
       [](RawGguf& f) {
         f.Set("nemotron_h.feed_forward_length", Type::kArray,
               RawArray(Type::kI32, 6, Raw(0) + Raw(96) + Raw(0) + Raw(0) + Raw(96) + Raw(0)));
       }},
      {"nemotron_h", "tensor 'blk.1.attn_norm.weight' is missing",
       [](RawGguf& f) { f.EraseTensor("blk.1.attn_norm.weight"); }},
      {"nemotron_h", "tensor 'blk.3.ssm_norm.weight' is missing",
       [](RawGguf& f) { f.EraseTensor("blk.3.ssm_norm.weight"); }},
      {"nemotron_h_moe", "tensor 'blk.4.exp_probs_b.bias' is missing",
       [](RawGguf& f) { f.EraseTensor("blk.4.exp_probs_b.bias"); }},
      {"glm4moe", "tensor 'blk.2.attn_q_norm.weight' is missing",  // in all layers, or in none
       [](RawGguf& f) { f.EraseTensor("blk.2.attn_q_norm.weight"); }},
      {"glm4moe", "tensor 'blk.0.ffn_norm.weight' is not part of a glm4moe model",
       [](RawGguf& f) { f.AddF32("blk.0.ffn_norm.weight", {64}); }},
      {"lfm2moe", "tensor 'blk.1.ffn_gate.weight' is missing",
       [](RawGguf& f) { f.SetU32("lfm2moe.leading_dense_block_count", 3); }},
      {"lfm2moe", "tensor 'blk.2.exp_probs_b.bias' is missing",
       [](RawGguf& f) { f.EraseTensor("blk.2.exp_probs_b.bias"); }},
      {"qwen3next", "tensor 'blk.0.ssm_ba.weight' is 4 rows of 64, expected 8 rows of 64",
       [](RawGguf& f) {
         f.Find("blk.0.ssm_ba.weight").dims = {64, 4};
       }},
      {"qwen3next", "tensor 'blk.0.ssm_beta.weight' is not part of a qwen3next model",
       [](RawGguf& f) {
         f.AddF32("blk.0.ssm_beta.weight", {64, 4});
       }},
      {"qwen3next", "tensor 'blk.1.ssm_ba.weight' is missing",
       [](RawGguf& f) { f.EraseTensor("blk.1.ssm_ba.weight"); }},
      {"qwen35", "tensor 'blk.0.ssm_beta.weight' is missing",  // its heads are in turn
       [](RawGguf& f) {
         f.EraseTensor("blk.0.ssm_beta.weight");
         f.AddF32("blk.0.ssm_ba.weight", {64, 8});
       }},
      {"qwen3moe", "key 'qwen3moe.expert_feed_forward_length' is 0, expected 1 to 131072",
       [](RawGguf& f) { f.SetU32("qwen3moe.expert_feed_forward_length", 0); }},
      {"qwen3moe", "tensor 'blk.1.ffn_up_exps.weight' is missing, expected one of 576 rows of 64",
       [](RawGguf& f) { f.EraseTensor("blk.1.ffn_up_exps.weight"); }},
      {"qwen3moe", "tensor 'blk.2.ffn_down.5.weight' is missing, expected one of 64 rows of 96",
       [](RawGguf& f) {
         for (int i = 0; i < 4; ++i) {
           for (const auto& [kind, rows] : {std::pair{"gate", 96}, {"up", 96}, {"down", 64}})
             f.CutRows(fmt::format("blk.{}.ffn_{}_exps.weight", i, kind),
                       fmt::format("blk.{}.ffn_{}.*.weight", i, kind), static_cast<uint64_t>(rows));
         }
         f.EraseTensor("blk.2.ffn_down.5.weight");
       }},
      {"qwen3moe",
       "tensor 'blk.0.ffn_up.3.weight' is F16, expected F32, as 'blk.0.ffn_up.0.weight'",
       [](RawGguf& f) {
         for (const auto& [kind, rows] : {std::pair{"gate", 96}, {"up", 96}, {"down", 64}})
           f.CutRows(fmt::format("blk.0.ffn_{}_exps.weight", kind),
                     fmt::format("blk.0.ffn_{}.*.weight", kind), static_cast<uint64_t>(rows));
         f.Find("blk.0.ffn_up.3.weight").type = 1;
       }},
      {"qwen3moe", "tensor 'blk.1.ffn_gate.0.weight' is missing",  // in all layers, or in none
       [](RawGguf& f) {
         for (const auto& [kind, rows] : {std::pair{"gate", 96}, {"up", 96}, {"down", 64}})
           f.CutRows(fmt::format("blk.0.ffn_{}_exps.weight", kind),
                     fmt::format("blk.0.ffn_{}.*.weight", kind), static_cast<uint64_t>(rows));
       }},
      {"qwen3moe", "tensor 'blk.0.ffn_gate_inp.weight' is missing",
       [](RawGguf& f) { f.EraseTensor("blk.0.ffn_gate_inp.weight"); }},
      {"qwen3moe", "tensor 'blk.0.ffn_gate_inp.weight': the weight at row 0, column 0 is NaN",
       [](RawGguf& f) { f.Patch("blk.0.ffn_gate_inp.weight", 0, Raw(std::nanf(""))); }},
      {"qwen3moe", "tensor 'blk.0.ffn_gate_exps.weight' is 576 rows of 64, expected 672 rows of 64",
       [](RawGguf& f) { f.SetU32("qwen3moe.expert_count", 7); }},
      {"qwen3moe", "tensor 'blk.0.exp_probs_b.bias' is not part of a qwen3moe model",
       [](RawGguf& f) { f.AddF32("blk.0.exp_probs_b.bias", {6}); }},
      {"qwen3moe", "tensor 'blk.3.ffn_gate.weight' is not part of a qwen3moe model",
       [](RawGguf& f) {
         f.AddF32("blk.3.ffn_gate.weight", {64, 96});
       }},
      {"qwen3", "key 'qwen3.expert_count' is 8: Larder does not know experts in a qwen3 model",
       [](RawGguf& f) { f.SetU32("qwen3.expert_count", 8); }},
      {"qwen2moe", "tensor 'blk.2.ffn_gate_inp_shexp.weight' is missing",
       [](RawGguf& f) { f.EraseTensor("blk.2.ffn_gate_inp_shexp.weight"); }},
      {"qwen2moe", "tensor 'blk.0.ffn_gate_shexp.weight' is 192 rows of 64, expected 64 rows of 64",
       [](RawGguf& f) { f.SetU32("qwen2moe.expert_shared_feed_forward_length", 64); }},
      {"dots1", "key 'dots1.expert_shared_count' is 65, expected up to 64",
       [](RawGguf& f) { f.SetU32("dots1.expert_shared_count", 65); }},
      {"dots1", "key 'dots1.expert_weights_scale' is nan",
       float_of("dots1.expert_weights_scale", nan)},
      {"dots1", "tensor 'blk.1.ffn_gate.weight' is missing",
       [](RawGguf& f) { f.SetU32("dots1.leading_dense_block_count", 4294967295u); }},
      {"ernie4_5-moe", "key 'ernie4_5-moe.interleave_moe_layer_step' is 0, expected 1 to 1024",
       [](RawGguf& f) { f.SetU32("ernie4_5-moe.interleave_moe_layer_step", 0); }},
      {"seed_oss", "tensor 'blk.0.post_attention_norm.weight' is missing",
       [](RawGguf& f) { f.EraseTensor("blk.0.post_attention_norm.weight"); }},
      {"seed_oss", "tensor 'blk.0.ffn_norm.weight' is not part of a seed_oss model",
       [](RawGguf& f) { f.AddF32("blk.0.ffn_norm.weight", {64}); }},
      {"llama", "tensor 'blk.1.attn_output.bias' is missing",
       [](RawGguf& f) { f.AddF32("blk.0.attn_output.bias", {64}); }},
      {"llama", "tensor 'blk.0.attn_output.bias' is 63 elements, expected 64 elements",
       [](RawGguf& f) { f.AddF32("blk.0.attn_output.bias", {63}); }},
      {"command-r", "key 'command-r.logit_scale' is nan", float_of("command-r.logit_scale", nan)},
      {"command-r", "key 'command-r.attention.layer_norm_epsilon' is 0",
       float_of("command-r.attention.layer_norm_epsilon", 0)},
      {"command-r", "key 'command-r.attention.layer_norm_epsilon' is missing",
       [](RawGguf& f) { f.EraseKey("command-r.attention.layer_norm_epsilon"); }},
      {"command-r",
       "tensor 'blk.0.attn_k_norm.weight' is missing, expected one of 2 rows of 16 "
       "(head_count_kv x head size)",
       [](RawGguf& f) {
         f.AddF32("blk.0.attn_q_norm.weight", {16, 4});
       }},
      {"command-r", "tensor 'blk.0.attn_k_norm.weight' is 16 elements, expected 2 rows of 16",
       [](RawGguf& f) {
         AddNormsOfHeads(f, {16, 4}, {16});
       }},
      {"command-r", "tensor 'blk.0.attn_q_norm.weight' is 2 rows of 16, expected 4 rows of 16",
       [](RawGguf& f) {
         AddNormsOfHeads(f, {16, 2}, {16, 2});
       }},
      {"command-r", "tensor 'blk.0.attn_k_norm.weight' is not part of a command-r model",
       [](RawGguf& f) {
         f.AddF32("blk.0.attn_k_norm.weight", {16, 2});
       }},
      {"command-r", "tensor 'blk.0.ffn_norm.weight' is not part of a command-r model",
       [](RawGguf& f) { f.AddF32("blk.0.ffn_norm.weight", {64}); }},
      {"gpt-oss",
       "tensor 'blk.1.attn_sinks.weight' is missing, expected one of 4 elements (head_count",
       [](RawGguf& f) { f.EraseTensor("blk.1.attn_sinks.weight"); }},
      {"gpt-oss", "tensor 'blk.0.attn_sinks.weight' is 3 elements, expected 4 elements",
       [](RawGguf& f) { f.Find("blk.0.attn_sinks.weight").dims = {3}; }},
      {"gpt-oss", "tensor 'blk.0.attn_sinks.weight': the weight at row 0, column 0 is NaN",
       [](RawGguf& f) { f.Patch("blk.0.attn_sinks.weight", 0, Raw(std::nanf(""))); }},
      {"gpt-oss", "tensor 'blk.2.ffn_up_exps.bias' is missing, expected one of 8 rows of 96",
       [](RawGguf& f) { f.EraseTensor("blk.2.ffn_up_exps.bias"); }},
      {"gpt-oss", "tensor 'blk.2.ffn_down_exps.bias' is missing, expected one of 8 rows of 64",
       [](RawGguf& f) { f.EraseTensor("blk.2.ffn_down_exps.bias"); }},
      {"gpt-oss", "tensor 'blk.0.ffn_gate_exps.bias' is 8 rows of 64, expected 8 rows of 96",
       [](RawGguf& f) {
         f.Find("blk.0.ffn_gate_exps.bias").dims = {64, 8};
       }},
      {"gpt-oss", "tensor 'blk.0.ffn_gate_inp.bias' is missing, expected one of 8 elements",
       [](RawGguf& f) { f.EraseTensor("blk.0.ffn_gate_inp.bias"); }},
      {"gpt-oss", "tensor 'blk.0.attn_v.bias' is missing",
       [](RawGguf& f) { f.EraseTensor("blk.0.attn_v.bias"); }},
      {"gpt-oss", "tensor 'blk.3.attn_output.bias' is missing",
       [](RawGguf& f) { f.EraseTensor("blk.3.attn_output.bias"); }},
      {"qwen3moe", "tensor 'blk.0.ffn_gate_exps.bias' is not part of a qwen3moe model",
       [](RawGguf& f) {
         f.AddF32("blk.0.ffn_gate_exps.bias", {96, 6});
       }},
      {"qwen3moe", "tensor 'blk.0.attn_sinks.weight' is not part of a qwen3moe model",
       [](RawGguf& f) { f.AddF32("blk.0.attn_sinks.weight", {4}); }},
      {"deepseek2",
       "key 'deepseek2.attention.key_length_mla' is missing, as in files from before it",
       [](RawGguf& f) { f.EraseKey("deepseek2.attention.key_length_mla"); }},
      {"deepseek2", "key 'deepseek2.attention.kv_lora_rank' is missing",
       [](RawGguf& f) { f.EraseKey("deepseek2.attention.kv_lora_rank"); }},
      {"deepseek2",
       "key 'deepseek2.attention.key_length' is 16, expected 'attention.kv_lora_rank' +",
       [](RawGguf& f) { f.SetU32("deepseek2.attention.kv_lora_rank", 12); }},
      {"deepseek2", "key 'deepseek2.attention.kv_lora_rank' is 4294967295, expected 1 to 1024",
       [](RawGguf& f) { f.SetU32("deepseek2.attention.kv_lora_rank", 4294967295u); }},
      {"deepseek2",
       "key 'deepseek2.attention.value_length' is 16, expected 'attention.kv_lora_rank'",
       [](RawGguf& f) { f.SetU32("deepseek2.attention.value_length", 16); }},
      {"deepseek2", "key 'deepseek2.attention.key_length_mla' is 8, expected more than",
       [](RawGguf& f) { f.SetU32("deepseek2.attention.key_length_mla", 8); }},
      {"deepseek2", "key 'deepseek2.attention.value_length_mla' is 0, expected 1 to 1024",
       [](RawGguf& f) { f.SetU32("deepseek2.attention.value_length_mla", 0); }},
      {"deepseek2", "key 'deepseek2.attention.head_count_kv' is 2, expected 1",
       [](RawGguf& f) { f.SetU32("deepseek2.attention.head_count_kv", 2); }},
      {"deepseek2",
       "key 'deepseek2.expert_group_count' is 2: Larder chooses among groups of experts by",
       [](RawGguf& f) {
         f.SetU32("deepseek2.expert_group_count", 2);
         f.SetU32("deepseek2.expert_group_used_count", 1);
       }},
      {"deepseek2", "key 'deepseek2.rope.scaling.yarn_log_multiplier' is nan",
       float_of("deepseek2.rope.scaling.yarn_log_multiplier", nan)},
      {"deepseek2", "tensor 'blk.1.attn_k_b.weight' is missing, expected one of 32 rows of 4",
       [](RawGguf& f) { f.EraseTensor("blk.1.attn_k_b.weight"); }},
      {"deepseek2", "tensor 'blk.0.attn_output.weight' is 64 rows of 16, expected 64 rows of 20",
       [](RawGguf& f) { f.SetU32("deepseek2.attention.value_length_mla", 5); }},
      {"deepseek2", "tensor 'blk.0.attn_q_b.weight' is 48 rows of 32, expected 48 rows of 31",
       [](RawGguf& f) { f.SetU32("deepseek2.attention.q_lora_rank", 31); }},
      {"deepseek2", "tensor 'blk.0.attn_v_b.weight' is 8 rows of 16, expected 16 rows of 8",
       [](RawGguf& f) {
         f.Find("blk.0.attn_v_b.weight").dims = {16, 8};
       }},
      {"deepseek2", "tensor 'blk.3.attn_kv_a_norm.weight' is missing, expected one of 8 elements",
       [](RawGguf& f) { f.EraseTensor("blk.3.attn_kv_a_norm.weight"); }},
      {"deepseek2", "tensor 'blk.0.attn_q.weight' is missing, expected one of 48 rows of 64",
       [](RawGguf& f) { f.EraseKey("deepseek2.attention.q_lora_rank"); }},
      {"gemma2", "key 'gemma2.attn_logit_softcapping' is nan",
       float_of("gemma2.attn_logit_softcapping", nan)},
      {"gemma2", "key 'gemma2.attn_logit_softcapping' is -50, expected 0.000001 to 1000000",
       float_of("gemma2.attn_logit_softcapping", -50)},
      {"gemma2", "key 'gemma2.final_logit_softcapping' is inf",
       float_of("gemma2.final_logit_softcapping", inf)},
      {"gemma2", "tensor 'blk.2.post_ffw_norm.weight' is missing",
       [](RawGguf& f) { f.EraseTensor("blk.2.post_ffw_norm.weight"); }},
      {"gemma3", "key 'gemma3.attn_logit_softcapping' is 50: Larder does not know",
       float_of("gemma3.attn_logit_softcapping", 50)},
      {"gemma3", "key 'gemma3.final_logit_softcapping' is -1",
       float_of("gemma3.final_logit_softcapping", -1)},
      {"gemma3", "tensor 'blk.0.attn_q_norm.weight' is missing",
       [](RawGguf& f) { f.EraseTensor("blk.0.attn_q_norm.weight"); }},
      {"gemma3", "key 'gemma3.rope.freq_base_swa' is 0, expected",
       float_of("gemma3.rope.freq_base_swa", 0)},
      {"gemma3",
       "key 'gemma3.attention.shared_kv_layers' is 2: Larder does not know what that means",
       [](RawGguf& f) { f.SetU32("gemma3.attention.shared_kv_layers", 2); }},
      {"gemma3", "key 'gemma3.embedding_length_per_layer_input' is 256: Larder does not know",
       [](RawGguf& f) { f.SetU32("gemma3.embedding_length_per_layer_input", 256); }},
      {"gemma4", "key 'gemma4.attention.shared_kv_layers' is 4, expected less than the 4 layers",
       [](RawGguf& f) { f.SetU32("gemma4.attention.shared_kv_layers", 4); }},
      {"gemma4",
       "key 'gemma4.attention.shared_kv_layers' is 1: layer 3 has no window, and no layer before "
       "layer 3 is like that",
       [](RawGguf& f) {
         f.SetU32("gemma4.attention.shared_kv_layers", 1);
         f.SetU32("gemma4.attention.sliding_window", 32);
         f.Set("gemma4.attention.sliding_window_pattern", Type::kArray,
               RawArray(Type::kBool, 4, std::string("\x01\x01\x01\x00", 4)));
       }},
      {"gemma4",
       "key 'gemma4.attention.shared_kv_layers' is 1: layer 3 has 1 KV heads, expected the 2 of "
       "layer 1, which it shares",
       [](RawGguf& f) {
         f.SetU32("gemma4.attention.shared_kv_layers", 1);
         f.Set("gemma4.attention.head_count_kv", Type::kArray,
               RawArray(Type::kI32, 4, Raw(2) + Raw(2) + Raw(2) + Raw(1)));
       }},
      {"gemma4-experts",
       "tensor 'blk.2.ffn_gate_inp.scale' is missing, expected one of 64 elements",
       [](RawGguf& f) { f.EraseTensor("blk.2.ffn_gate_inp.scale"); }},
      {"gemma4-experts", "tensor 'blk.2.ffn_down_exps.scale' is 5 elements, expected 6 elements",
       [](RawGguf& f) { f.Find("blk.2.ffn_down_exps.scale").dims = {5}; }},
      {"gemma4-experts", "tensor 'blk.0.ffn_gate.weight' is missing",
       [](RawGguf& f) { f.EraseTensor("blk.0.ffn_gate.weight"); }},
      {"gemma4-experts", "tensor 'blk.3.pre_ffw_norm_2.weight' is missing",
       [](RawGguf& f) { f.EraseTensor("blk.3.pre_ffw_norm_2.weight"); }},
      {"gemma4-experts", "key 'gemma4.expert_used_count' is 7, expected 1 to 6",
       [](RawGguf& f) { f.SetU32("gemma4.expert_used_count", 7); }},
      {"gemma4", "key 'gemma4.expert_used_count' is missing",
       [](RawGguf& f) { f.SetU32("gemma4.expert_count", 4); }},
      {"gemma4-e2b", "tensor 'blk.1.attn_k.weight' is missing",
       [](RawGguf& f) { f.EraseTensor("blk.1.attn_k.weight"); }},
      {"gemma4-e2b", "tensor 'blk.3.attn_q.weight' is missing",
       [](RawGguf& f) { f.EraseTensor("blk.3.attn_q.weight"); }},
      {"gemma4-e2b", "tensor 'blk.3.inp_gate.weight' is missing, expected one of 24 rows of 64",
       [](RawGguf& f) { f.EraseTensor("blk.3.inp_gate.weight"); }},
      {"gemma4-e2b", "tensor 'per_layer_proj_norm.weight' is 8 elements, expected 24 elements",
       [](RawGguf& f) { f.Find("per_layer_proj_norm.weight").dims = {8}; }},
      {"gemma4-e2b",
       "tensor 'per_layer_model_proj.weight' is 95 rows of 64, expected 96 rows of 64",
       [](RawGguf& f) {
         f.Find("per_layer_model_proj.weight").dims = {64, 95};
       }},
      {"gemma4", "tensor 'blk.1.inp_gate.weight' is not part of a gemma4 model",
       [](RawGguf& f) { f.AddF32("blk.1.inp_gate.weight", {64, 24}); }},
      {"gemma4", "key 'gemma4.embedding_length_per_layer_input' is 20000, expected 1 to 16384",
       [](RawGguf& f) { f.SetU32("gemma4.embedding_length_per_layer_input", 20000); }},
      {"gemma4",
       "tensor 'per_layer_token_embd.weight' is missing, expected one of 300 rows of 32 "
       "(vocabulary x block_count * embedding_length_per_layer_input)",
       [](RawGguf& f) { f.SetU32("gemma4.embedding_length_per_layer_input", 8); }},
      {"gemma4",
       "key 'gemma4.attention.key_length_swa' is 7, expected an even number from 2 to 1024",
       [](RawGguf& f) { f.SetU32("gemma4.attention.key_length_swa", 7); }},
      {"gemma4", "key 'gemma4.attention.key_length_swa' is 4294967294, expected an even number",
       [](RawGguf& f) { f.SetU32("gemma4.attention.key_length_swa", 4294967294u); }},
      {"gemma4",
       "key 'gemma4.attention.value_length_swa' is 16, expected 'attention.key_length_swa'",
       [](RawGguf& f) { f.SetU32("gemma4.attention.value_length_swa", 16); }},
      {"gemma4",
       "key 'gemma4.rope.dimension_count_swa' is 64, expected an even number from 2 to 32",
       [](RawGguf& f) { f.SetU32("gemma4.rope.dimension_count_swa", 64); }},
      {"gemma4", "tensor 'blk.1.layer_output_scale.weight' is missing, expected one of 1 elements",
       [](RawGguf& f) { f.EraseTensor("blk.1.layer_output_scale.weight"); }},
      {"gemma4", "tensor 'blk.1.attn_k.weight' is missing",
       [](RawGguf& f) { f.EraseTensor("blk.1.attn_k.weight"); }},
      {"gemma4", "tensor 'blk.3.attn_v.weight' is not part of a gemma4 model",
       [](RawGguf& f) { f.AddF32("blk.3.attn_v.weight", {64, 32}); }},
      {"gemma4", "tensor 'rope_freqs.weight' is 4 elements, expected 8 elements",
       [](RawGguf& f) { f.AddF32("rope_freqs.weight", {4}, 3.0f); }},
      {"cohere2", "key 'cohere2.logit_scale' is 0", float_of("cohere2.logit_scale", 0)},
      {"cohere2", "key 'cohere2.attention.sliding_window' is -1",
       [](RawGguf& f) { f.Set("cohere2.attention.sliding_window", Type::kI32, Raw(int32_t{-1})); }},
      {"gemma", "key 'gemma.embedding_scale' is 2: Larder does not know",
       float_of("gemma.embedding_scale", 2)},
      {"smollm3", "'blk.0.attn_q.scale' is not part of a smollm3 model",
       [](RawGguf& f) { f.AddF32("blk.0.attn_q.scale", {1}); }},
  };
  for (const Bad& of : bad) {
    RawGguf file = SmallFile(of.family);
    of.change(file);
    const TempFile temp;
    try {
      ReferenceModel::Make(Open(file, temp));
      ADD_FAILURE() << "accepted, expected: " << of.message;
    } catch (const Error& error) {
      const std::string what = error.what();
      EXPECT_NE(what.find(of.message), what.npos) << what;
      EXPECT_EQ(what.find('\n'), what.npos) << what;
    }
  }
}

// What no key says, or not in this way.
TEST(Families, GemmasScalesAndRotations) {
  const auto read = [](std::string_view family, size_t layers, size_t window) {
    ModelShape shape = SmallShape(family);
    shape.layers = layers;
    shape.heads = 2;  // so that their size is not dim / heads
    shape.full_every = 0;
    shape.window = window;
    const TempFile temp;
    WriteSynth({.shape = shape, .type = TensorType::kF32}, temp.path());
    RawGguf raw = testing::RawOf(*GgufFile::Open(temp.path()));
    raw.SetF32(fmt::format("{}.rope.freq_base", family), 1e6f);
    raw.SetF32(fmt::format("{}.rope.scaling.factor", family), 8.0f);
    return ReadModelConfig(*Open(raw, temp));
  };
  for (const auto& [family, of_27b] : {std::pair{"gemma2", 46}, std::pair{"gemma3", 62}}) {
    EXPECT_EQ(read(family, 26, 0).layer(0).attention_divisor, std::sqrt(16.0));
    const ModelConfig config = read(family, static_cast<size_t>(of_27b), 0);
    EXPECT_EQ(config.layer(0).attention_divisor, std::sqrt(64.0 / 2)) << family;
    EXPECT_EQ(config.scales.embedding, 8.0);
  }
  const ModelConfig gemma3 = read("gemma3", 12, 100);
  for (size_t i = 0; i < 12; ++i) {
    const LayerSpec& layer = gemma3.layer(i);
    EXPECT_EQ(layer.window, i % 6 == 5 ? 0u : 100u) << i;
    EXPECT_EQ(layer.rotary.base, i % 6 == 5 ? 1e6 : 1e4) << i;
    EXPECT_EQ(layer.rotary.scale_factor, i % 6 == 5 ? 8.0 : 1.0) << i;
  }
  // A window that hides nothing in this context leaves its layers their rotation.
  const ModelConfig wide = read("gemma3", 12, 512);
  EXPECT_EQ(wide.layer(0).window, 0u);
  EXPECT_EQ(wide.layer(0).rotary.base, 1e4);
  // Files from before the key.
  ModelShape shape = SmallShape("gemma2");
  shape.context = 8192;
  const TempFile temp;
  WriteSynth({.shape = shape, .type = TensorType::kF32}, temp.path());
  const ModelConfig old = ReadModelConfig(*GgufFile::Open(temp.path()));
  EXPECT_EQ(old.layer(0).window, 4096u);
  EXPECT_EQ(old.layer(1).window, 0u);
}

// Gates beyond their limit are all the same, and ups on both sides.
TEST(Families, GatesOfGptOssAreClamped) {
  const std::vector<TokenId> tokens = {1, 5, 3, 12, 0, 7};
  const auto logits = [&](const char* tensor, float bias) {
    RawGguf file = SmallFile("gpt-oss");
    for (int layer = 0; layer < 4; ++layer) {
      const std::string name = fmt::format("blk.{}.{}", layer, tensor);
      for (uint64_t i = 0; i < 8 * 96; ++i) file.Patch(name, i * sizeof(float), Raw(bias));
    }
    const TempFile temp;
    return ReferenceModel::Make(Open(file, temp)).TeacherForced(tokens);
  };
  EXPECT_EQ(logits("ffn_gate_exps.bias", 50.0f), logits("ffn_gate_exps.bias", 100.0f));
  EXPECT_EQ(logits("ffn_up_exps.bias", 50.0f), logits("ffn_up_exps.bias", 100.0f));
  EXPECT_EQ(logits("ffn_up_exps.bias", -50.0f), logits("ffn_up_exps.bias", -100.0f));
  EXPECT_NE(logits("ffn_up_exps.bias", -50.0f), logits("ffn_up_exps.bias", 50.0f));
  EXPECT_NE(logits("ffn_gate_exps.bias", 50.0f), logits("ffn_gate_exps.bias", 1.0f));
}

TEST(Families, WhatAKnownFamilyWouldNeedIsSaid) {
  RawGguf file = SmallFile("llama");
  file.SetText("general.architecture", "llama4");
  const TempFile temp;
  try {
    ReadModelConfig(*Open(file, temp));
    ADD_FAILURE();
  } catch (const Error& error) {
    const std::string what = error.what();
    EXPECT_NE(what.find("is 'llama4', which needs what Larder does not have: attention in chunks"),
              what.npos)
        << what;
  }
}

// The definition decides: files of the publishers' classes, with the logits of their own code.
TEST(Families, PublishedLogitsAreTheReferences) {
  LARDER_NEEDS_TEST_DATA(TestData("families"));
  std::set<std::string> seen;
  for (const auto& entry : std::filesystem::directory_iterator(TestData("families"))) {
    if (entry.path().extension() != ".gguf") continue;
    const auto file = GgufFile::Open(entry.path());
    const std::string family(file->GetString("general.architecture"));
    if (FindFamily(family) == nullptr) {
      EXPECT_THROW(ReadModelConfig(*file), Error) << entry.path();
      continue;
    }
    seen.insert(family);
    const auto numbers = [&](const char* extension) {
      std::ifstream in(std::filesystem::path(entry.path()).replace_extension(extension));
      return std::vector<TokenId>{std::istream_iterator<TokenId>(in), {}};
    };
    const std::vector<TokenId> tokens = numbers(".ids"), positions = numbers(".positions");
    ReferenceModel model = ReferenceModel::Make(file, {.context = tokens.size()});
    const size_t vocab = model.config().vocab;
    std::vector<float> published(positions.size() * vocab), own;
    std::ifstream(std::filesystem::path(entry.path()).replace_extension("logits.f32"),
                  std::ios::binary)
        .read(reinterpret_cast<char*>(published.data()),
              static_cast<std::streamsize>(published.size() * sizeof(float)));
    const std::vector<float> all = model.TeacherForced(tokens);
    for (const TokenId position : positions) {
      const auto row = all.begin() + static_cast<std::ptrdiff_t>(position * vocab);
      own.insert(own.end(), row, row + static_cast<std::ptrdiff_t>(vocab));
    }
    // Float32 weights and residuals: 1e-11 of llama.cpp in float32; a wrong order of a norm and a
    // rotation is 1e-2.
    EXPECT_LT(CompareLogits(published, own, vocab).max_kl, 1e-9) << entry.path();
  }
  for (const char* family :
       {"llama",        "qwen2",      "qwen3",     "ernie4_5", "seed_oss",  "smollm3", "granite",
        "mistral3",     "olmo2",      "glm4",      "phi3",     "exaone4",   "gemma2",  "gemma3",
        "gemma4",       "cohere2",    "qwen35",    "lfm2",     "qwen3moe",  "olmoe",   "qwen2moe",
        "ernie4_5-moe", "minimax-m2", "falcon-h1", "lfm2moe",  "qwen3next", "glm4moe", "gpt-oss"})
    EXPECT_TRUE(seen.contains(family)) << family;
}

}  // namespace
}  // namespace larder::model::reference
