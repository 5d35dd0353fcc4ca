#include "model/config/description.h"

#include <fmt/format.h>

#include <array>
#include <iterator>
#include <string_view>

#include "model/families/family.h"
#include "model/gguf/gguf_impl.h"

namespace larder::model::inline config {
namespace {

constexpr std::array kKindNames = {"matrix", "norm", "bias", "table"};
// What a norm and a gate are was not written while there was one of each.
constexpr std::array kOpNames = {"rms_norm",    "qkv",    "attention",  "o",
                                 "silu_gate",   "down",   "input",      "delta_rule",
                                 "convolution", "mamba2", "input_gate", "input_out"};
constexpr std::array kNormNames = {"rms", "layer"};
constexpr std::array kGateNames = {"silu", "gelu_tanh", "clamped", "squared_relu"};
constexpr std::array kGatingNames = {"softmax", "sigmoid"};
constexpr std::array kQkNormNames = {"none", "head", "head_after_rope", "row", "each_head"};
constexpr std::array kStateNames = {"none", "delta_rule", "convolution", "mamba2"};
constexpr std::array kPairingNames = {"interleaved", "halves"};
constexpr std::array kScalingNames = {"none", "linear", "yarn"};

template <typename Names, typename Enum>
std::string_view NameOf(const Names& names, Enum value) {
  return names.at(static_cast<size_t>(value));
}

// Each structured binding names all fields of a struct, so a new field does not compile until it is
// named here: written, or left out for a reason. What came later is written only where it is not as
// before, so that the text of older models stays the same.
class Writer {
 public:
  std::string Take() { return std::move(text_); }

  void Add(const ModelConfig& config) {
    // Left out: the name, which may be the file's, and the part, which is of the file.
    [[maybe_unused]] const auto& [architecture_name, name, layers, first_layer, ends, dim, vocab,
                                  trained_context, norm_epsilon, norm, tied_embeddings, scales,
                                  input_size, kinds, kind_of, first_block, types, part] = config;
    const Family* const family = FindFamily(architecture_name);  // null: a config made by hand
    Line("architecture", "{} {}", family == nullptr ? 0 : family->number, architecture_name);
    Line("layers", "{}", layers);
    Line("first_layer", "{}", first_layer);
    Line("ends", "{}", ends);
    Line("dim", "{}", dim);
    Line("vocab", "{}", vocab);
    Line("trained_context", "{}", trained_context);
    Line("norm_epsilon", "{}", norm_epsilon);
    LineUnless(norm == NormKind::kRms, "norm", NameOf(kNormNames, norm));
    Line("tied_embeddings", "{}", tied_embeddings);
    const auto& [of_embedding, of_residual, of_logits, logit_cap] = scales;
    LineUnless(of_embedding == 1.0, "scale.embedding", of_embedding);
    LineUnless(of_residual == 1.0, "scale.residual", of_residual);
    LineUnless(of_logits == 1.0, "scale.logits", of_logits);
    LineUnless(logit_cap == 0.0, "logit_cap", logit_cap);
    LineUnless(input_size == 0, "input_size", input_size);
    for (size_t kind = 0; kind < kinds.size(); ++kind) {
      Line("kind", "{}", kind);
      Add(kinds[kind]);
    }
    Line("kind_of", "{}", fmt::join(kind_of, " "));
    if (!first_block.empty()) Line("first_block", "{}", fmt::join(first_block, " "));
    Add(types);
  }

 private:
  template <typename... Values>
  void Line(std::string_view property, fmt::format_string<Values...> format, Values&&... values) {
    text_ += property;
    text_ += ' ';
    fmt::format_to(std::back_inserter(text_), format, std::forward<Values>(values)...);
    text_ += '\n';
  }

  template <typename Value>
  void LineUnless(bool as_before, std::string_view property, const Value& value) {
    if (!as_before) Line(property, "{}", value);
  }

  void Add(const LayerSpec& layer) {
    const auto& [sizes, norm_epsilon, tensors, ops, rotary, attention_divisor, qk_norm, temperature,
                 window, norm_kind, gate, score_cap, value_norm, output_gate, recurrence, experts,
                 latent, kv_of, input_size] = layer;
    const auto& [dim, ffn, heads, kv_heads, head_size] = sizes;
    Line("layer.dim", "{}", dim);
    Line("ffn", "{}", ffn);
    Line("heads", "{}", heads);
    Line("kv_heads", "{}", kv_heads);
    Line("head_size", "{}", head_size);
    Line("layer.norm_epsilon", "{}", norm_epsilon);
    for (const TensorSpec& tensor : tensors) Add(tensor);
    for (const LayerOp& op : ops) {
      const auto& [kind, norm, post_norm, output_scale] = op;
      Line("op", "{} {}", NameOf(kOpNames, kind), SuffixOf(norm));
      if (post_norm) Line("op.post_norm", "{}", SuffixOf(*post_norm));
      if (output_scale) Line("op.output_scale", "{}", SuffixOf(*output_scale));
    }
    Add(rotary);
    Line("attention_divisor", "{}", attention_divisor);
    // Norms of each head are seen by their tensors.
    LineUnless(qk_norm == QkNorm::kNone || qk_norm == QkNorm::kHead, "qk_norm",
               NameOf(kQkNormNames, qk_norm));
    const auto& [beta, length] = temperature;
    if (beta != 0.0) Line("temperature", "{} {}", beta, length);
    LineUnless(window == 0, "window", window);
    LineUnless(norm_kind == NormKind::kRms, "layer.norm", NameOf(kNormNames, norm_kind));
    LineUnless(gate == GateKind::kSilu, "gate", NameOf(kGateNames, gate));
    LineUnless(score_cap == 0.0, "score_cap", score_cap);
    LineUnless(!value_norm, "value_norm", value_norm);
    LineUnless(!output_gate, "output_gate", output_gate);
    const auto& [rank, query_rank, of_key, of_value] = latent;
    if (latent.any()) Line("latent", "{} {} {} {}", rank, query_rank, of_key, of_value);
    const auto& [state_kind, key_size, taps, heads_in_turn, of_state, of_keys, of_head,
                 least_step] = recurrence;
    if (recurrence.any()) {
      Line(NameOf(kStateNames, state_kind), "{} {} {}", key_size, taps, heads_in_turn);
      if (of_state != 0) Line("beside_attention", "{} {} {}", of_state, of_keys, of_head);
      LineUnless(least_step == 0.0, "least_step", least_step);
    }
    const auto& [count, used, shared_ffn, gating, normalise, scale, groups, groups_used,
                 beside_ffn] = experts;
    if (count != 0)
      Line("experts", "{} {} {} {} {} {}", count, used, shared_ffn, NameOf(kGatingNames, gating),
           normalise, scale);
    LineUnless(!beside_ffn, "experts.beside_ffn", beside_ffn);
    if (groups != 1) Line("expert_groups", "{} {}", groups, groups_used);
    if (kv_of) Line("kv_of", "{}", *kv_of);
    LineUnless(input_size == 0, "layer.input_size", input_size);
  }

  void Add(const TensorSpec& tensor) {
    // Left out: what the shape means, which is for messages.
    [[maybe_unused]] const auto& [role, kind, suffix, rows, cols, meaning, first, of, shared, run,
                                  step, each, block] = tensor;
    Line("tensor", "{} {} {} {} x {}", static_cast<int>(role), suffix, NameOf(kKindNames, kind),
         rows, cols);
    if (of != 0) Line("tensor.part", "{} of {}", first, of);
    if (run != 0) Line("tensor.runs", "{} of {}", run, step);
    LineUnless(each == 0, "tensor.each", each);
    LineUnless(block == 0, "tensor.block", block);
    LineUnless(!shared, "tensor.shared", shared);
  }

  void Add(const RotarySpec& rotary) {
    const auto& [pairing, dim, base, scaling, scale_factor, original_context, ext_factor,
                 attn_factor, beta_fast, beta_slow, freq_factors, log_multiplier, long_factors,
                 magnitude, whole_pairs] = rotary;
    Line("rope.pairing", "{}", NameOf(kPairingNames, pairing));
    Line("rope.dim", "{}", dim);
    Line("rope.base", "{}", base);
    Line("rope.scaling", "{}", NameOf(kScalingNames, scaling));
    Line("rope.scale_factor", "{}", scale_factor);
    Line("rope.original_context", "{}", original_context);
    Line("rope.yarn_ext_factor", "{}", ext_factor);
    Line("rope.yarn_attn_factor", "{}", attn_factor);
    Line("rope.yarn_beta_fast", "{}", beta_fast);
    Line("rope.yarn_beta_slow", "{}", beta_slow);
    Line("rope.freq_factors", "{}", fmt::join(freq_factors, " "));
    LineUnless(log_multiplier == 0.0, "rope.yarn_log_multiplier", log_multiplier);
    if (!long_factors.empty()) Line("rope.long_factors", "{}", fmt::join(long_factors, " "));
    LineUnless(magnitude == 1.0, "rope.magnitude", magnitude);
    LineUnless(whole_pairs, "rope.yarn_whole_pairs", whole_pairs);
  }

  void Add(const TensorTypes& types) {
    const auto& [layers, embedding, head, input_embedding, input_matrix] = types;
    const auto name = [](TensorType type) { return GgufTypeName(static_cast<uint32_t>(type)); };
    Line("type.embedding", "{}", name(embedding));
    Line("type.head", "{}", name(head));
    LineUnless(input_embedding == TensorType::kQ8_0, "type.input_embedding", name(input_embedding));
    LineUnless(input_matrix == TensorType::kQ8_0, "type.input_matrix", name(input_matrix));
    for (size_t i = 0; i < layers.size(); ++i) {
      std::string names;
      for (size_t role = 0; role < kTensorRoles; ++role) {
        const TensorType type = layers[i][role];
        if (role < kOldRoles) names += fmt::format(" {}", name(type));
        if (role >= kOldRoles && type != TensorType::kQ8_0)
          names += fmt::format(" {}:{}", role, name(type));
      }
      Line("type.layer", "{}{}", i, names);
    }
  }

  std::string text_;
};

// The first line of the text, which loses it.
std::string_view TakeLine(std::string_view& text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(text.size(), line.size() + 1));
  return line;
}

}  // namespace

std::string DescriptionOf(const ModelConfig& config) {
  Writer writer;
  writer.Add(config);
  return writer.Take();
}

std::string DescriptionDifference(const std::string& is, const std::string& expected) {
  if (is == expected) return "";
  std::string_view a = is, b = expected;
  while (!a.empty() || !b.empty()) {
    const std::string_view of_a = TakeLine(a), of_b = TakeLine(b);
    if (of_a != of_b) return fmt::format("{}, not {}", Quoted(of_a), Quoted(of_b));
  }
  return "another text";  // a last line without its end
}

}  // namespace larder::model::config
