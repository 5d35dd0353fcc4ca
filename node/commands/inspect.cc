// `larder inspect`: the contents of a GGUF file, also of files that Larder can't run.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "kernels/formats/panel_format.h"
#include "model/config/config.h"
#include "model/config/split.h"
#include "model/gguf/gguf.h"
#include "model/gguf/quants.h"
#include "model/tokenizer/tokenizer_data.h"
#include "node/commands/command.h"
#include "node/options/terminal.h"
#include "weight_node/shard_plan.h"

namespace larder::node::inline commands {
namespace {

using nlohmann::json;

constexpr size_t kShownItems = 6;  // items of an array that are printed

struct Totals {
  size_t tensors = 0;
  uint64_t bytes = 0;
  uint32_t gguf_type = 0;
  size_t matrices = 0;
};

std::map<std::string, Totals> TotalsByType(const model::GgufFile& file) {
  std::map<std::string, Totals> totals;
  for (const auto& tensor : file.tensors()) {
    Totals& t = totals[std::string(model::GgufTypeName(tensor.gguf_type))];
    ++t.tensors;
    t.bytes += tensor.size_bytes;
    t.gguf_type = tensor.gguf_type;
    t.matrices += tensor.rows > 1;
  }
  return totals;
}

// What becomes of the tensors of a type; vectors (norms, biases) are float32 in any case.
std::string_view Becomes(const Totals& of) {
  const auto type = static_cast<model::TensorType>(of.gguf_type);
  if (!model::IsReadableType(of.gguf_type))
    return "not read by Larder: convert to a type that it reads";
  if (of.matrices == 0) return "as float32";
  if (kernels::PanelFormatOf(type).type == type) return "as it is";
  return "rounded to Q8_0";
}

// The number of tokens in a file that holds a tokenizer and no tensors; 0 for any other file.
uint64_t VocabularyOnly(const model::GgufFile& file) {
  if (!file.tensors().empty()) return 0;
  for (const auto& entry : file.entries()) {
    if (entry.key == "tokenizer.ggml.tokens") return entry.count;
  }
  return 0;
}

// What the file says about its tokenizer, or why Larder can't use it; empty if it has none.
struct TokenizerOrReason {
  std::string kind, reason;
};
TokenizerOrReason TryTokenizer(const model::GgufFile& file) {
  try {
    const auto model = file.FindString("tokenizer.ggml.model");
    if (!model) return {};
    model::CheckTokenizerIsKnown(file);
    if (*model == "llama") return {"SPM", ""};
    if (*model == "gemma4") return {"SPM, merges by rank", ""};
    return {fmt::format("BPE, pre-tokenizer {}", *file.FindString("tokenizer.ggml.pre")), ""};
  } catch (const Error& error) {
    return {"", error.what()};
  }
}

// The config, or why there is none.
struct ConfigOrReason {
  std::optional<model::ModelConfig> config;
  std::string reason;
};
ConfigOrReason TryConfig(const model::GgufFile& file) {
  try {
    return {model::ReadModelConfig(file), ""};
  } catch (const Error& error) {
    return {std::nullopt, error.what()};
  }
}

std::string RotationText(const model::RotarySpec& rotary) {
  if (rotary.dim == 0) return "no rotation";
  std::string text = fmt::format("rope base {:g} over {} elements", rotary.base, rotary.dim);
  if (!rotary.long_factors.empty())
    text += fmt::format(", LongRoPE: other factors for contexts above {}", rotary.original_context);
  return text;
}

// How experts are chosen: ", sigmoid router: biases for the choice, weights normalised".
std::string RouterText(const model::LayerSpec& layer) {
  const model::ExpertSpec& experts = layer.experts;
  if (experts.count == 0) return "";
  return fmt::format(", {} router: {}{}weights {}{}",
                     experts.gating == model::ExpertGating::kSigmoid ? "sigmoid" : "softmax",
                     layer.Has(model::TensorRole::kRouterBias) ? "biases for the choice, " : "",
                     experts.groups == 1
                         ? std::string()
                         : fmt::format("{} of {} groups, ", experts.groups_used, experts.groups),
                     experts.normalise ? "normalised" : "as they are",
                     experts.scale == 1.0 ? "" : fmt::format(" times {:g}", experts.scale));
}

json RouterJson(const model::LayerSpec& layer) {
  const model::ExpertSpec& experts = layer.experts;
  if (experts.count == 0) return nullptr;
  return {{"gating", experts.gating == model::ExpertGating::kSigmoid ? "sigmoid" : "softmax"},
          {"bias", layer.Has(model::TensorRole::kRouterBias)},
          {"normalised", experts.normalise},
          {"scale", experts.scale},
          {"groups", experts.groups},
          {"groups_used", experts.groups_used}};
}

// What a layer has besides what all have: ", biases on q, k, v".
std::string MechanismsText(const model::LayerSpec& layer) {
  using model::QkNorm;
  std::string text;
  if (layer.Has(model::TensorRole::kQBias)) text += ", biases on q, k, v";
  if (layer.Has(model::TensorRole::kOBias)) text += ", on o";
  if (layer.Has(model::TensorRole::kUpBias)) text += ", on gate, up";
  if (layer.Has(model::TensorRole::kDownBias)) text += ", on down";
  if (layer.qk_norm != QkNorm::kNone) text += ", norms on q, k";
  if (layer.qk_norm == QkNorm::kHeadAfterRope) text += " after rotation";
  if (layer.qk_norm == QkNorm::kRow) text += " over all heads";
  if (layer.qk_norm == QkNorm::kEachHead) text += ", weights of its own for each head";
  const auto has_post_norm = [](const model::LayerOp& op) { return op.post_norm.has_value(); };
  if (std::ranges::any_of(layer.ops, has_post_norm)) text += ", norms behind attention and FFN";
  if (layer.value_norm) text += ", values normalised";
  if (layer.Has(model::TensorRole::kV) && layer.tensor(model::TensorRole::kV).shared)
    text += ", V is K";
  if (layer.latent.any()) {
    text += fmt::format(", latent attention: keys of {} + {}, values of {}{}",
                        layer.latent.key_size, layer.rotary.dim, layer.latent.value_size,
                        layer.latent.query_rank == 0
                            ? std::string()
                            : fmt::format(", queries of {}", layer.latent.query_rank));
  }
  text += RouterText(layer);
  if (layer.experts.beside_ffn) text += ", experts beside the FFN";
  if (layer.kv_of) text += fmt::format(", keys and values of layer {}", *layer.kv_of);
  if (layer.input_size != 0) text += fmt::format(", a layer input of {}", layer.input_size);
  if (layer.Has(model::TensorRole::kOutputScale)) text += ", output scaled";
  if (layer.norm == model::NormKind::kLayer) text += ", LayerNorm";
  if (layer.gate == model::GateKind::kGeluTanh) text += ", gates of GELU";
  if (layer.gate == model::GateKind::kClamped) text += ", clamped gates";
  if (layer.Has(model::TensorRole::kRouterLogitBias)) text += ", biases of the router";
  if (layer.Has(model::TensorRole::kSinks)) text += ", attention sinks";
  if (!layer.gated()) text += ", squares of ReLU without gates";
  const auto is_gate = [](const model::LayerOp& op) { return op.kind == model::OpKind::kGate; };
  if (std::ranges::any_of(layer.BeforeAttention(), is_gate)) text += ", FFN beside attention";
  if (layer.window != 0) text += fmt::format(", windows of {}", layer.window);
  if (layer.score_cap != 0.0) text += fmt::format(", scores capped at {:g}", layer.score_cap);
  if (layer.output_gate) text += ", output gates";
  const size_t taps = layer.recurrence.taps;
  if (layer.recurrence.kind == model::StateKind::kDeltaRule)
    text += fmt::format(", gated delta rule behind a convolution over {} tokens", taps);
  if (layer.recurrence.kind == model::StateKind::kMamba2)
    text += fmt::format(", Mamba-2 behind a convolution over {} tokens", taps);
  if (layer.recurrence.kind == model::StateKind::kConvolution)
    text += fmt::format(", gated convolution over {} tokens", taps);
  if (layer.temperature.beta != 0.0) {
    text += fmt::format(", queries grow by {:g} with each {} positions", layer.temperature.beta,
                        layer.temperature.length);
  }
  return text;
}

void PrintJson(const model::GgufFile& file) {
  json out = {{"file", file.path()},        {"version", file.version()},
              {"bytes", file.file_bytes()}, {"vocabulary_only", VocabularyOnly(file) > 0},
              {"metadata", json::array()},  {"tensors", json::array()}};
  if (file.parts().size() > 1) {
    for (const auto& part : file.parts())
      out["files"].push_back(
          {{"file", part.path}, {"bytes", part.file_bytes}, {"tensors", part.tensors}});
  }
  const ConfigOrReason found = TryConfig(file);
  if (found.config) {
    const auto& c = *found.config;
    out["config"] = {{"architecture", c.architecture_name},
                     {"name", c.name},
                     {"layers", c.layers},
                     {"dim", c.dim},
                     {"vocab", c.vocab},
                     {"trained_context", c.trained_context},
                     {"tied_embeddings", c.tied_embeddings},
                     {"kind_of_layer", c.kind_of},
                     {"kinds", json::array()},
                     {"parameters", c.parameters()}};
    for (const model::LayerSpec& kind : c.kinds)
      out["config"]["kinds"].push_back(
          {{"ffn", kind.sizes.ffn},
           {"heads", kind.sizes.heads},
           {"kv_heads", kind.sizes.kv_heads},
           {"head_size", kind.sizes.head_size},
           {"qkv_bias", kind.Has(model::TensorRole::kQBias)},
           {"qk_norm", kind.Has(model::TensorRole::kQNorm)},
           {"rope_base", kind.rotary.base},
           {"rotary_dim", kind.rotary.dim},
           {"window", kind.window},
           {"experts", kind.experts.count},
           {"experts_used", kind.experts.used},
           {"shared_ffn", kind.experts.shared_ffn},
           {"router", RouterJson(kind)},
           {"details", RotationText(kind.rotary) + MechanismsText(kind)}});
    if (c.part.kind != model::ModelPart::Kind::kWhole) {
      out["part"] = {{"description", model::Describe(c.part)},
                     {"stages", c.part.count},
                     {"first_layer", c.part.first_layer},
                     {"layers", c.part.layers},
                     {"fingerprint", fmt::format("{:016x}", c.part.fingerprint)}};
    }
  } else {
    out["config_error"] = found.reason;
  }
  const TokenizerOrReason tokenizer = TryTokenizer(file);
  if (!tokenizer.kind.empty()) out["tokenizer"] = tokenizer.kind;
  if (!tokenizer.reason.empty()) out["tokenizer_error"] = tokenizer.reason;
  for (const auto& entry : file.entries()) {
    out["metadata"].push_back(
        {{"key", entry.key}, {"count", entry.count}, {"value", file.Describe(entry, kShownItems)}});
  }
  for (const auto& tensor : file.tensors()) {
    out["tensors"].push_back({{"name", tensor.name},
                              {"type", model::GgufTypeName(tensor.gguf_type)},
                              {"rows", tensor.rows},
                              {"cols", tensor.cols},
                              {"bytes", tensor.size_bytes},
                              {"readable", model::IsReadableType(tensor.gguf_type)}});
  }
  fmt::print("{}\n", out.dump(2, ' ', false, json::error_handler_t::replace));
}

void PrintConfig(const model::GgufFile& file, const ConfigOrReason& found) {
  if (const uint64_t tokens = VocabularyOnly(file)) {
    fmt::print("model      vocabulary only: {} tokens, no weights; `larder tokenize` can use it\n",
               tokens);
    return;
  }
  if (!found.config) {
    fmt::print("config     none: {}\n", found.reason);
    return;
  }
  const auto& c = *found.config;
  if (c.part.kind != model::ModelPart::Kind::kWhole)
    fmt::print("part       {} (of model {:016x})\n", model::Describe(c.part), c.part.fingerprint);
  fmt::print("model      {} ({}), {:.2f} M parameters\n", c.name, c.architecture_name,
             static_cast<double>(c.parameters()) * 1e-6);
  fmt::print("shape      {}, vocab {}, context {}\n", model::LayersText(c), c.vocab,
             c.trained_context);
  const std::vector<size_t> kinds = c.OwnKinds();
  for (const size_t kind : kinds) {
    const size_t count = c.Sum([&](const model::LayerSpec& of) { return of == c.kinds[kind]; });
    fmt::print("details    {}{}, norm epsilon {:g}{}{}\n",
               kinds.size() > 1 ? fmt::format("{} of the layers: ", count) : "",
               RotationText(c.kinds[kind].rotary), c.norm_epsilon, MechanismsText(c.kinds[kind]),
               c.tied_embeddings ? ", embeddings tied" : "");
  }
  if (c.scales != model::Scales()) {
    fmt::print("scales     embedding {:g}, what layers add {:g}, logits {:g}{}\n",
               c.scales.embedding, c.scales.residual, c.scales.logits,
               c.scales.logit_cap == 0.0 ? "" : fmt::format(" capped at {:g}", c.scales.logit_cap));
  }
}

void PrintText(const model::GgufFile& file) {
  fmt::print("file       {} (GGUF v{}, {}{})\n", file.path(), file.version(),
             HumanBytes(static_cast<double>(file.file_bytes())),
             file.parts().size() > 1 ? fmt::format(" in {} files", file.parts().size()) : "");
  for (size_t i = 0; file.parts().size() > 1 && i < file.parts().size(); ++i) {
    const auto& part = file.parts()[i];
    fmt::print("  {:<4}     {}: {}, {} tensors\n", i + 1, part.path,
               HumanBytes(static_cast<double>(part.file_bytes)), part.tensors);
  }
  const ConfigOrReason found = TryConfig(file);
  PrintConfig(file, found);
  const TokenizerOrReason tokenizer = TryTokenizer(file);
  if (!tokenizer.reason.empty()) fmt::print("tokenizer  not supported: {}\n", tokenizer.reason);
  if (!tokenizer.kind.empty()) fmt::print("tokenizer  {}\n", tokenizer.kind);
  fmt::print("\nmetadata ({} keys)\n", file.entries().size());
  for (const auto& entry : file.entries())
    fmt::print("  {:<40} {}\n", entry.key, file.Describe(entry, kShownItems));
  fmt::print("\ntensors ({})\n", file.tensors().size());
  for (const auto& tensor : file.tensors()) {
    const std::string shape = tensor.rows == 1 ? fmt::format("{}", tensor.cols)
                                               : fmt::format("{} x {}", tensor.rows, tensor.cols);
    fmt::print("  {:<36} {:<8} {:>16} {:>12}{}\n", tensor.name,
               model::GgufTypeName(tensor.gguf_type), shape,
               tensor.size_bytes == 0 ? "size unknown"
                                      : HumanBytes(static_cast<double>(tensor.size_bytes)),
               model::IsReadableType(tensor.gguf_type) ? "" : "  (not read by Larder)");
  }
  fmt::print("\ntotals\n");
  for (const auto& [type, total] : TotalsByType(file)) {
    fmt::print("  {:<8} {:>5} tensors {:>12}  ({})\n", type, total.tensors,
               HumanBytes(static_cast<double>(total.bytes)), Becomes(total));
  }
  if (!found.config || found.config->part.kind != model::ModelPart::Kind::kWhole) return;
  size_t mixed = 0;
  for (size_t layer = 0; layer < found.config->layers; ++layer) {
    mixed += weight_node::LayerPanels(*found.config, layer).mixed();
  }
  if (mixed > 0)
    fmt::print(
        "In {} layer{} gate and up, or query, key and value, have several types: these become "
        "Q8_0.\n",
        mixed, mixed == 1 ? "" : "s");
}

}  // namespace

Command AddInspect(CLI::App& program) {
  struct Options {
    std::string model;
    bool as_json = false;
  };
  auto o = std::make_shared<Options>();
  CLI::App* command =
      program.add_subcommand("inspect", "show a GGUF file's config, metadata and tensors");
  command->add_option("-m,--model", o->model, "GGUF file")->type_name("FILE")->required();
  command->add_flag("--json", o->as_json, "print JSON");
  return {command, [o] {
            const auto file = model::GgufFile::Open(o->model);
            o->as_json ? PrintJson(*file) : PrintText(*file);
            return 0;
          }};
}

}  // namespace larder::node::commands
