// TinyModel, for tests: a GGUF file of a given small shape. Its weights are in [-1, 1), each a hash
// of the tensor's name and the element's index, as in reference_golden.py. The file is in the
// temporary folder and is removed with the object.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/temporary_folder_testing.h"
#include "model/config/config.h"
#include "model/gguf/gguf.h"

namespace larder::model::inline reference {

// In [-1, 1): element() of reference_golden.py.
inline float HashedWeight(std::string_view name, size_t i) {
  uint32_t h = 2166136261u;
  for (const char c : name) h = (h ^ static_cast<uint8_t>(c)) * 16777619u;
  h ^= static_cast<uint32_t>(i + 1) * 2654435761u;
  h = (h ^ h >> 15) * 3266489917u;
  h ^= h >> 13;
  return static_cast<float>(h >> 8) / 0x1p24f * 2 - 1;
}

struct TinyShape {
  const char* architecture;
  uint32_t dim, ffn, heads, kv_heads, head_size, rotary_dim;
  float rope_base;
  bool tied;
  uint32_t vocab = 13, layers = 2;
  // What only some families have: keys by the ends of their names, and YaRN.
  std::vector<std::pair<std::string, float>> keys = {};
  float yarn_factor = 0;
  uint32_t original_context = 0;
  uint32_t window = 0;
  // Of states, where taps are not 0: every second layer has one, the first being the first;
  // falcon-h1's all have.
  struct Delta {
    uint32_t key_heads = 0, heads = 0, key_size = 0, size = 0, taps = 0;
  } delta = {};
  // Of experts, where count is not 0; the first `dense` layers have none.
  struct Experts {
    uint32_t count = 0, used = 0, ffn = 0, shared_ffn = 0, dense = 0, groups = 0, groups_used = 0;
  } experts = {};
  // Of deepseek2; head_size is then rotary_dim + rank.
  struct Latent {
    uint32_t rank = 0, query_rank = 0, key_size = 0, value_size = 0;
  } latent = {};
  // Of gemma4: the last layers, which have no keys and values, and the size of layer inputs.
  uint32_t shared_kv = 0, input_size = 0;
  bool qk_norm = false;  // of command-r
};

class TinyModel {
 public:
  explicit TinyModel(const TinyShape& s, TensorType type = TensorType::kF32,
                     std::vector<float> rope_factors = {}, float rope_scale = 1)
      : type_(type) {
    AddKeys(s, rope_scale);
    if (Is(s, {"phi3"})) {
      writer_.AddVector("rope_factors_short.weight", rope_factors);
      for (float& factor : rope_factors) factor *= 2;
      writer_.AddVector("rope_factors_long.weight", std::move(rope_factors));
    } else if (!rope_factors.empty()) {
      writer_.AddVector("rope_freqs.weight", std::move(rope_factors));
    }
    AddMatrix("token_embd.weight", s.vocab, s.dim);
    AddNorm(Is(s, {"lfm2", "lfm2moe"}) ? "token_embd_norm.weight" : "output_norm.weight", s.dim);
    if (!s.tied) AddMatrix("output.weight", s.vocab, s.dim);
    if (s.input_size != 0) {
      AddMatrix("per_layer_token_embd.weight", s.vocab, size_t{s.layers} * s.input_size);
      AddMatrix("per_layer_model_proj.weight", size_t{s.layers} * s.input_size, s.dim);
      AddNorm("per_layer_proj_norm.weight", s.input_size);
    }
    for (size_t i = 0; i < s.layers; ++i)
      Is(s, {"nemotron_h", "nemotron_h_moe"}) ? AddBlock(s, i) : AddLayer(s, i);
    writer_.Write(path_);
  }

  const std::string& path() const { return path_; }

 private:
  static constexpr uint32_t kSmallHead = 4;  // of gemma4's layers with windows
  struct Source {
    std::string name;
    size_t cols;
    TensorType type;
  };
  void AddKeys(const TinyShape& s, float rope_scale) {
    const std::string arch = s.architecture;
    writer_.Add("general.architecture", arch);
    writer_.Add(arch + ".block_count", s.layers);
    writer_.Add(arch + ".embedding_length", s.dim);
    if (Is(s, {"nemotron_h", "nemotron_h_moe"})) {
      const int32_t ffn = static_cast<int32_t>(s.ffn);
      writer_.Add(arch + ".feed_forward_length", std::vector<int32_t>{0, ffn, 0, 0, ffn});
    } else {
      writer_.Add(arch + ".feed_forward_length", s.ffn);
    }
    writer_.Add(arch + ".context_length", uint32_t{1024});
    writer_.Add(arch + ".attention.head_count", s.heads);
    if (Is(s, {"lfm2", "lfm2moe", "granitehybrid"})) {
      writer_.Add(arch + ".attention.head_count_kv",
                  std::vector<int32_t>{0, static_cast<int32_t>(s.kv_heads)});
      if (Is(s, {"lfm2", "lfm2moe"})) writer_.Add(arch + ".shortconv.l_cache", s.delta.taps);
    } else if (Is(s, {"nemotron_h", "nemotron_h_moe"})) {
      writer_.Add(arch + ".attention.head_count_kv",
                  std::vector<int32_t>{0, 0, static_cast<int32_t>(s.kv_heads), 0, 0});
    } else {
      writer_.Add(arch + ".attention.head_count_kv", s.kv_heads);
    }
    writer_.Add(arch + ".attention.key_length", s.head_size);
    writer_.Add(arch + ".attention.value_length", s.latent.rank != 0 ? s.latent.rank : s.head_size);
    if (s.latent.rank != 0) {
      writer_.Add(arch + ".attention.kv_lora_rank", s.latent.rank);
      writer_.Add(arch + ".attention.q_lora_rank", s.latent.query_rank);
      writer_.Add(arch + ".attention.key_length_mla", s.latent.key_size + s.rotary_dim);
      writer_.Add(arch + ".attention.value_length_mla", s.latent.value_size);
    }
    writer_.Add(arch + (Is(s, {"command-r", "cohere2"}) ? ".attention.layer_norm_epsilon"
                                                        : ".attention.layer_norm_rms_epsilon"),
                1e-5f);
    writer_.Add(arch + ".rope.dimension_count", s.rotary_dim);
    writer_.Add(arch + ".rope.freq_base", s.rope_base);
    for (const char* key :
         {"attention.key_length_swa", "attention.value_length_swa", "rope.dimension_count_swa"})
      if (Is(s, {"gemma4"})) writer_.Add(fmt::format("{}.{}", arch, key), kSmallHead);
    if (s.window != 0) writer_.Add(arch + ".attention.sliding_window", s.window);
    if (s.shared_kv != 0) writer_.Add(arch + ".attention.shared_kv_layers", s.shared_kv);
    if (s.input_size != 0) writer_.Add(arch + ".embedding_length_per_layer_input", s.input_size);
    if (Is(s, {"qwen35", "qwen35moe", "qwen3next"}))
      writer_.Add(arch + ".full_attention_interval", uint32_t{2});
    if (s.delta.key_size != 0) {
      writer_.Add(arch + ".ssm.group_count", s.delta.key_heads);
      writer_.Add(arch + ".ssm.time_step_rank", s.delta.heads);
      writer_.Add(arch + ".ssm.state_size", s.delta.key_size);
      writer_.Add(arch + ".ssm.inner_size", s.delta.heads * s.delta.size);
      writer_.Add(arch + ".ssm.conv_kernel", s.delta.taps);
    }
    if (s.experts.count != 0) {
      writer_.Add(arch + ".expert_count", s.experts.count);
      writer_.Add(arch + ".expert_used_count", s.experts.used);
      writer_.Add(arch + ".expert_feed_forward_length", s.experts.ffn);
      writer_.Add(arch + ".leading_dense_block_count", s.experts.dense);
      if (s.latent.query_rank != 0) {
        writer_.Add(arch + ".expert_gating_func", uint32_t{2});
        writer_.Add(arch + ".expert_weights_norm", true);
      }
      if (s.experts.groups != 0) {
        writer_.Add(arch + ".expert_group_count", s.experts.groups);
        writer_.Add(arch + ".expert_group_used_count", s.experts.groups_used);
      }
      if (s.experts.shared_ffn != 0)
        writer_.Add(arch + ".expert_shared_feed_forward_length", s.experts.shared_ffn);
    }
    for (const auto& [key, value] : s.keys) writer_.Add(fmt::format("{}.{}", arch, key), value);
    if (s.original_context != 0)
      writer_.Add(arch + ".rope.scaling.original_context_length", s.original_context);
    if (s.yarn_factor != 0) {
      writer_.Add(arch + ".rope.scaling.type", "yarn");
      writer_.Add(arch + ".rope.scaling.factor", s.yarn_factor);
    }
    if (rope_scale != 1) {
      writer_.Add(arch + ".rope.scaling.type", "linear");
      writer_.Add(arch + ".rope.scaling.factor", rope_scale);
    }
  }
  static bool Is(const TinyShape& s, std::initializer_list<std::string_view> names) {
    return std::ranges::find(names, std::string_view(s.architecture)) != names.end();
  }
  // Of nemotron_h: Mamba-2, an FFN, attention, Mamba-2, an FFN.
  void AddBlock(const TinyShape& s, size_t block) {
    const auto name = [block](std::string_view suffix) { return LayerTensor(block, suffix); };
    AddNorm(name("attn_norm.weight"), s.dim);
    if (block % 3 == 0) {
      AddMamba2(s, name);
    } else if (block % 3 == 2) {
      const size_t q = s.heads * s.head_size, kv = s.kv_heads * s.head_size;
      AddMatrix(name("attn_q.weight"), q, s.dim);
      AddMatrix(name("attn_k.weight"), kv, s.dim);
      AddMatrix(name("attn_v.weight"), kv, s.dim);
      AddMatrix(name("attn_output.weight"), s.dim, q);
    } else if (s.experts.count != 0) {
      AddExperts(s, name);
    } else {
      AddMatrix(name("ffn_up.weight"), s.ffn, s.dim);
      AddMatrix(name("ffn_down.weight"), s.dim, s.ffn);
    }
  }
  void AddLayer(const TinyShape& s, size_t layer) {
    const auto name = [layer](std::string_view suffix) { return LayerTensor(layer, suffix); };
    const bool gemma4 = Is(s, {"gemma4"}), full = layer % 6 == 5;
    const size_t head_size = gemma4 && !full ? kSmallHead : s.head_size;
    const size_t q = s.heads * head_size, kv = s.kv_heads * head_size;
    const bool shares = layer + s.shared_kv >= s.layers;
    if (!Is(s, {"olmo2", "exaone4"})) {
      AddNorm(name("attn_norm.weight"), s.dim);
      if (!Is(s, {"command-r", "cohere2"}))
        AddNorm(name(Is(s, {"seed_oss", "qwen35", "qwen35moe", "qwen3next", "glm4moe", "gpt-oss"})
                         ? "post_attention_norm.weight"
                     : Is(s, {"falcon-h1"}) ? "ffn_norm"
                                            : "ffn_norm.weight"),
                s.dim);
    }
    if (Is(s, {"olmo2", "exaone4", "glm4", "gemma2", "gemma3", "gemma4"})) {
      AddNorm(name("post_attention_norm.weight"), s.dim);
      AddNorm(name("post_ffw_norm.weight"), s.dim);
    }
    const bool beside = Is(s, {"falcon-h1"});
    const bool is_recurrent = s.delta.taps != 0 && layer % 2 == 0 && !beside;
    if (beside) AddMamba2(s, name);
    if (is_recurrent && Is(s, {"lfm2", "lfm2moe"})) {
      AddMatrix(name("shortconv.in_proj.weight"), 3 * s.dim, s.dim);
      AddMatrix(name("shortconv.out_proj.weight"), s.dim, s.dim);
      AddHashed(name("shortconv.conv.weight"), s.dim * s.delta.taps, 0, 1, s.dim);
    } else if (is_recurrent && Is(s, {"granitehybrid"})) {
      AddMamba2(s, name);
    } else if (is_recurrent) {
      AddDelta(s, name);
    } else if (s.latent.rank != 0) {
      AddLatent(s, name);
    } else if (Is(s, {"phi3", "bailingmoe2"})) {
      AddMatrix(name("attn_qkv.weight"), q + 2 * kv, s.dim);
    } else {
      AddMatrix(name("attn_q.weight"), Is(s, {"qwen35", "qwen35moe", "qwen3next"}) ? 2 * q : q,
                s.dim);
      if (!shares) AddMatrix(name("attn_k.weight"), kv, s.dim);
      if (!shares && (!gemma4 || !full)) AddMatrix(name("attn_v.weight"), kv, s.dim);
    }
    if (gemma4) AddNorm(name("layer_output_scale.weight"), 1);
    if (s.input_size != 0) {
      AddMatrix(name("inp_gate.weight"), s.input_size, s.dim);
      AddMatrix(name("proj.weight"), s.dim, s.input_size);
      AddNorm(name("post_norm.weight"), s.dim);
    }
    const size_t to_o = s.latent.rank != 0 ? s.heads * s.latent.value_size : q;
    if (!is_recurrent) AddMatrix(name("attn_output.weight"), s.dim, to_o);
    const bool is_fused = Is(s, {"phi3", "glm4"});
    const bool has_experts = s.experts.count != 0 && layer >= s.experts.dense;
    if (has_experts) AddExperts(s, name);
    if (has_experts && gemma4) {
      for (const char* norm : {"pre_ffw_norm_2", "post_ffw_norm_1", "post_ffw_norm_2"})
        AddNorm(name(fmt::format("{}.weight", norm)), s.dim);
      AddNorm(name("ffn_gate_inp.scale"), s.dim);
      AddNorm(name("ffn_down_exps.scale"), s.experts.count);
    }
    if (!has_experts || gemma4) {
      if (!is_fused && !Is(s, {"arcee"})) AddMatrix(name("ffn_gate.weight"), s.ffn, s.dim);
      AddMatrix(name("ffn_up.weight"), is_fused ? 2 * s.ffn : s.ffn, s.dim);
      AddMatrix(name("ffn_down.weight"), s.dim, s.ffn);
    }
    if (Is(s, {"qwen2", "qwen2moe", "seed_oss", "glm4", "glm4moe", "gpt-oss"})) {
      AddBias(name("attn_q.bias"), q);
      AddBias(name("attn_k.bias"), kv);
      AddBias(name("attn_v.bias"), kv);
    }
    if (Is(s, {"gpt-oss"})) {
      AddBias(name("attn_output.bias"), s.dim);
      AddBias(name("attn_sinks.weight"), s.heads);
    }
    if (!is_recurrent && Is(s, {"qwen3", "qwen3moe", "qwen35", "qwen35moe", "qwen3next", "dots1",
                                "hunyuan-dense", "exaone4", "olmo2", "gemma3", "gemma4", "lfm2",
                                "lfm2moe", "glm4moe", "bailingmoe2", "olmoe", "minimax-m2"})) {
      const bool rows = Is(s, {"olmo2", "olmoe", "minimax-m2"});
      AddNorm(name("attn_q_norm.weight"), rows ? q : head_size);
      if (!shares) AddNorm(name("attn_k_norm.weight"), rows ? kv : head_size);
    }
    if (s.qk_norm) {
      AddHashed(name("attn_q_norm.weight"), q, 1, 0.5f, s.heads);
      AddHashed(name("attn_k_norm.weight"), kv, 1, 0.5f, s.kv_heads);
    }
  }
  template <typename Name>
  void AddLatent(const TinyShape& s, const Name& name) {
    const TinyShape::Latent& of = s.latent;
    const size_t queries = s.heads * (of.key_size + s.rotary_dim);
    if (of.query_rank != 0) {
      AddMatrix(name("attn_q_a.weight"), of.query_rank, s.dim);
      AddNorm(name("attn_q_a_norm.weight"), of.query_rank);
      AddMatrix(name("attn_q_b.weight"), queries, of.query_rank);
    } else {
      AddMatrix(name("attn_q.weight"), queries, s.dim);
    }
    AddMatrix(name("attn_kv_a_mqa.weight"), of.rank + s.rotary_dim, s.dim);
    AddNorm(name("attn_kv_a_norm.weight"), of.rank);
    AddMatrix(name("attn_k_b.weight"), s.heads * of.rank, of.key_size);
    AddMatrix(name("attn_v_b.weight"), s.heads * of.value_size, of.rank);
  }
  template <typename Name>
  void AddDelta(const TinyShape& s, const Name& name) {
    const TinyShape::Delta& of = s.delta;
    const size_t keys = of.key_heads * of.key_size, values = of.heads * of.size;
    AddMatrix(name("attn_qkv.weight"), 2 * keys + values, s.dim);
    AddMatrix(name("attn_gate.weight"), values, s.dim);
    if (Is(s, {"qwen3next"})) {
      AddMatrix(name("ssm_ba.weight"), size_t{2} * of.heads, s.dim);
    } else {
      AddMatrix(name("ssm_alpha.weight"), of.heads, s.dim);
      AddMatrix(name("ssm_beta.weight"), of.heads, s.dim);
    }
    AddMatrix(name("ssm_out.weight"), s.dim, values);
    AddHashed(name("ssm_conv1d.weight"), (2 * keys + values) * of.taps, 0, 1, 2 * keys + values);
    AddHashed(name("ssm_a"), of.heads, -1, 0.5f);
    AddBias(name("ssm_dt.bias"), of.heads);
    AddNorm(name("ssm_norm.weight"), of.size);
  }
  template <typename Name>
  void AddMamba2(const TinyShape& s, const Name& name) {
    const TinyShape::Delta& of = s.delta;
    const size_t inner = of.heads * of.size, channels = inner + 2 * of.key_heads * of.key_size;
    AddMatrix(name("ssm_in.weight"), inner + channels + of.heads, s.dim);
    AddMatrix(name("ssm_out.weight"), s.dim, inner);
    AddHashed(name("ssm_conv1d.weight"), channels * of.taps, 0, 1, channels);
    AddBias(name("ssm_conv1d.bias"), channels);
    AddHashed(name("ssm_a"), of.heads, -1, 0.5f, of.heads);
    AddHashed(name("ssm_d"), of.heads, 0, 1, of.heads);
    AddBias(name("ssm_dt.bias"), of.heads);
    AddHashed(name("ssm_norm.weight"), inner, 1, 0.5f, of.key_heads);
  }
  template <typename Name>
  void AddExperts(const TinyShape& s, const Name& name) {
    const TinyShape::Experts& of = s.experts;
    AddMatrix(name("ffn_gate_inp.weight"), of.count, s.dim);
    const bool gated = !Is(s, {"nemotron_h_moe"});
    if (gated) AddMatrix(name("ffn_gate_exps.weight"), of.count * of.ffn, s.dim);
    AddMatrix(name("ffn_up_exps.weight"), of.count * of.ffn, s.dim);
    AddMatrix(name("ffn_down_exps.weight"), of.count * s.dim, of.ffn);
    if (Is(s, {"nemotron_h_moe", "dots1", "lfm2moe", "glm4moe", "bailingmoe2", "minimax-m2",
               "ernie4_5-moe"}) ||
        s.latent.query_rank != 0)
      AddBias(name("exp_probs_b.bias"), of.count);
    if (Is(s, {"gpt-oss"})) {
      AddBias(name("ffn_gate_inp.bias"), of.count);
      AddHashed(name("ffn_gate_exps.bias"), of.count * of.ffn, 0, 1, of.count);
      AddHashed(name("ffn_up_exps.bias"), of.count * of.ffn, 0, 1, of.count);
      AddHashed(name("ffn_down_exps.bias"), of.count * s.dim, 0, 1, of.count);
    }
    if (of.shared_ffn == 0) return;
    if (gated) AddMatrix(name("ffn_gate_shexp.weight"), of.shared_ffn, s.dim);
    AddMatrix(name("ffn_up_shexp.weight"), of.shared_ffn, s.dim);
    AddMatrix(name("ffn_down_shexp.weight"), s.dim, of.shared_ffn);
    if (Is(s, {"qwen2moe", "qwen35moe", "qwen3next"}))
      AddMatrix(name("ffn_gate_inp_shexp.weight"), 1, s.dim);
  }
  void AddMatrix(const std::string& name, size_t rows, size_t cols) {
    sources_.push_back(std::make_unique<Source>(Source{name, cols, type_}));
    const auto fill = [](void* context, size_t row0, size_t n, void* dst) {
      const Source& source = *static_cast<const Source*>(context);
      std::vector<float> values(n * source.cols);
      const size_t first = row0 * source.cols;
      for (size_t i = 0; i < values.size(); ++i) values[i] = HashedWeight(source.name, first + i);
      if (source.type == TensorType::kF32) {
        std::memcpy(dst, values.data(), values.size() * sizeof(float));
      } else {
        QuantizeQ8_0(values, static_cast<Q8Block*>(dst));
      }
    };
    writer_.AddTensor(name, type_, rows, cols, fill, sources_.back().get());
  }
  void AddNorm(const std::string& name, size_t n) { AddHashed(name, n, 1, 0.5f); }
  void AddBias(const std::string& name, size_t n) { AddHashed(name, n, 0, 1); }
  void AddHashed(const std::string& name, size_t n, float around, float spread, size_t rows = 1) {
    std::vector<float> values(n);
    for (size_t i = 0; i < n; ++i) values[i] = around + spread * HashedWeight(name, i);
    writer_.AddVector(name, std::move(values), rows);
  }

  TensorType type_;
  GgufWriter writer_;
  std::vector<std::unique_ptr<Source>> sources_;  // the contexts of Fill
  TemporaryFolder folder_;
  const std::string path_ = folder_ / "tiny.gguf";
};

}  // namespace larder::model::reference
