#include "model/config/config.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"
#include "model/config/config_tensors.h"
#include "model/config/split.h"
#include "model/families/family.h"
#include "model/gguf/gguf_impl.h"

namespace larder::model::inline config {
namespace {

// Larger than any known model; these keep every product of two or three dimensions far below 64
// bits.
constexpr uint64_t kMaxLayers = 1024;
constexpr uint64_t kMaxDim = 1 << 17;
constexpr uint64_t kMaxFfn = 1 << 20;
constexpr uint64_t kMaxHeads = 1024;
constexpr uint64_t kMaxContext = uint64_t{1} << 31;

class ConfigReader {
 public:
  explicit ConfigReader(const GgufFile& file) : file_(file) {}

  ModelConfig Read() {
    ReadArchitecture();
    ReadShape();
    RefuseOtherKinds();
    ReadRope();
    ReadKeysOfFamily();
    ReadTensors(file_, keys_, config_);
    ReadVocabKeys();
    CheckIsAsSplit(file_, config_);
    return std::move(config_);
  }

 private:
  std::string Key(std::string_view suffix) const {
    return fmt::format("{}.{}", config_.architecture_name, suffix);
  }

  size_t CheckRange(const std::string& key, uint64_t value, uint64_t low, uint64_t high) const {
    if (value < low || value > high) {
      throw Error("{}: key '{}' is {}, expected {} to {}", file_.path(), key, value, low, high);
    }
    return value;
  }
  size_t Count(std::string_view suffix, uint64_t high) const {
    const std::string key = Key(suffix);
    return CheckRange(key, file_.GetUnsigned(key), 1, high);
  }
  size_t CountOr(std::string_view suffix, uint64_t absent, uint64_t high) const {
    const std::string key = Key(suffix);
    const auto value = file_.FindUnsigned(key);
    return value ? CheckRange(key, *value, 1, high) : absent;
  }
  // A count for each layer: a number for all of them, or an array, whose values are at least `low`;
  // `absent` where there is no key, which must be there if that is empty.
  std::vector<size_t> Counts(std::string_view suffix, const std::vector<size_t>& absent,
                             uint64_t high, uint64_t low = 1) const {
    const std::string key = Key(suffix);
    if (!absent.empty() && !file_.Has(key)) return absent;
    if (!file_.IsArray(key)) return std::vector<size_t>(config_.layers, Count(suffix, high));
    const auto values = file_.FindInts(key);
    if (values->size() != config_.layers + keys_.skipped) {
      throw Error("{}: key '{}' has {} values, expected one or '{}', which is {}", file_.path(),
                  key, values->size(), Key("block_count"), config_.layers + keys_.skipped);
    }
    std::vector<size_t> counts;
    for (size_t i = 0; i < config_.layers; ++i) {
      const int32_t value = (*values)[i];
      counts.push_back(CheckRange(key, value < 0 ? 0 : static_cast<uint64_t>(value), low, high));
    }
    return counts;
  }
  double PositiveOr(std::string_view suffix, double absent, double low, double high) const {
    const std::string key = Key(suffix);
    const double value = file_.FindFloat(key).value_or(absent);
    if (!(value >= low && value <= high)) {  // refuses NaN, too
      throw Error("{}: key '{}' is {}, expected {} to {}", file_.path(), key, value, low, high);
    }
    return value;
  }

  void ReadArchitecture() {
    const std::string_view name = file_.GetString("general.architecture");
    if (FindFamily(name) == nullptr) {
      const std::string_view missing = MissingIn(name);
      const std::string why =
          missing.empty() ? "which Larder does not know"
                          : fmt::format("which needs what Larder does not have: {}", missing);
      throw Error("{}: key 'general.architecture' is {}, {}; it runs {}", file_.path(),
                  Quoted(name), why, FamilyNames());
    }
    config_.architecture_name = name;
    const std::string& path = file_.path();
    const auto own_name = file_.FindString("general.name");
    config_.name =
        own_name && !own_name->empty() ? std::string(*own_name) : path.substr(path.rfind('/') + 1);
  }

  static std::string FamilyNames() {  // "llama, qwen2 and qwen3"
    const std::span<const Family* const> families = Families();
    std::string names(families[0]->name);
    for (size_t i = 1; i < families.size(); ++i)
      names += fmt::format("{}{}", i + 1 < families.size() ? ", " : " and ", families[i]->name);
    return names;
  }

  void ReadShape() {
    const size_t blocks = Count("block_count", kMaxLayers);
    // Blocks behind the layers predict further tokens; Larder does not run them.
    const uint64_t skipped = file_.FindUnsigned(Key("nextn_predict_layers")).value_or(0);
    if (skipped >= blocks) {
      throw Error("{}: key '{}' is {}, expected less than '{}', which is {}", file_.path(),
                  Key("nextn_predict_layers"), skipped, Key("block_count"), blocks);
    }
    config_.layers = blocks - skipped;
    keys_.skipped = skipped;
    config_.dim = Count("embedding_length", kMaxDim);
    const std::vector<size_t> ffn =
        Counts("feed_forward_length", {}, kMaxFfn, family().ffn_apart ? 0 : 1);
    const std::vector<size_t> heads = Counts("attention.head_count", {}, kMaxHeads);
    const std::vector<size_t> kv_heads = Counts("attention.head_count_kv", heads, kMaxHeads,
                                                family().states_without_kv_heads ? 0 : 1);
    config_.trained_context = Count("context_length", kMaxContext);
    for (size_t i = 0; i < config_.layers; ++i) {
      if (kv_heads[i] != 0 && heads[i] % kv_heads[i] != 0) {
        throw Error("{}: key '{}' is {}, expected a divisor of '{}', which is {}", file_.path(),
                    Key("attention.head_count_kv"), kv_heads[i], Key("attention.head_count"),
                    heads[i]);
      }
      keys_.layers.push_back(
          {.sizes = {
               .dim = config_.dim, .ffn = ffn[i], .heads = heads[i], .kv_heads = kv_heads[i]}});
    }
    config_.norm = family().norm;
    const std::string_view epsilon = config_.norm == NormKind::kRms
                                         ? "attention.layer_norm_rms_epsilon"
                                         : "attention.layer_norm_epsilon";
    if (!file_.Has(Key(epsilon)))
      file_.GetFloat(Key(epsilon));  // throws the error for a missing key
    config_.norm_epsilon = static_cast<float>(PositiveOr(epsilon, 0, 1e-12, 0.1));
    // The file has no others where it has no explicit ones: those of the first layer.
    head_size_ = ReadHeadSize(heads[0]);
    for (KeysOfModel::Layer& layer : keys_.layers) layer.sizes.head_size = head_size_;
  }

  size_t ReadHeadSize(size_t heads) const {
    const auto explicit_size = file_.FindUnsigned(Key("attention.key_length"));
    if (!explicit_size && config_.dim % heads != 0) {
      throw Error(
          "{}: key '{}' is {}, expected a multiple of '{}', which is {} (or an explicit '{}')",
          file_.path(), Key("embedding_length"), config_.dim, Key("attention.head_count"), heads,
          Key("attention.key_length"));
    }
    const size_t head_size = CountOr("attention.key_length", config_.dim / heads, kMaxHeadSize);
    if (head_size > kMaxHeadSize || head_size % 2 != 0) {
      throw Error(
          "{}: the head size ('{}', or '{}' / '{}') is {}, expected an even number up to {}",
          file_.path(), Key("attention.key_length"), Key("embedding_length"),
          Key("attention.head_count"), head_size, kMaxHeadSize);
    }
    if (family().latent) return head_size;  // ReadKeys knows its values
    const size_t value_size = CountOr("attention.value_length", config_.dim / heads, kMaxHeadSize);
    if (value_size != head_size) {
      throw Error("{}: key '{}' says {} and '{}' {}: Larder needs keys and values of one size",
                  file_.path(), Key("attention.key_length"), head_size,
                  Key("attention.value_length"), value_size);
    }
    return head_size;
  }

  // Models with these keys would load and then generate nonsense.
  void RefuseOtherKinds() const {
    const auto causal = file_.FindBool(Key("attention.causal"));
    if (!causal.value_or(true)) {
      throw Error("{}: key '{}' is false: Larder runs causal models only", file_.path(),
                  Key("attention.causal"));
    }
  }

  const Family& family() const { return FamilyOf(config_.architecture_name); }

  class OfFile final : public FamilyKeys {
   public:
    explicit OfFile(const ConfigReader& reader) : reader_(reader) {}
    std::optional<double> Float(std::string_view suffix) const override {
      return reader_.file_.FindFloat(reader_.Key(suffix));
    }
    std::optional<bool> Flag(std::string_view suffix) const override {
      return reader_.file_.FindBool(reader_.Key(suffix));
    }
    std::optional<uint64_t> Unsigned(std::string_view suffix) const override {
      return reader_.file_.FindUnsigned(reader_.Key(suffix));
    }
    std::optional<std::vector<bool>> Flags(std::string_view suffix) const override {
      if (!reader_.file_.IsArray(reader_.Key(suffix))) return {};
      return reader_.file_.FindFlags(reader_.Key(suffix));
    }
    std::string Name(std::string_view suffix) const override {
      return fmt::format("{}: key '{}'", reader_.file_.path(), reader_.Key(suffix));
    }

   private:
    const ConfigReader& reader_;
  };

  void ReadKeysOfFamily() {
    const OfFile keys(*this);
    for (const std::string_view suffix : KeysOfSome()) {
      if (std::ranges::find(family().keys, suffix) != family().keys.end()) continue;
      const double value = keys.Float(suffix).value_or(0.0);
      if (value == 0.0) continue;
      throw Error("{} is {}: Larder does not know what that means in a {} model", keys.Name(suffix),
                  value, config_.architecture_name);
    }
    for (const std::string_view suffix : CountsOfSome()) {
      if (std::ranges::find(family().keys, suffix) != family().keys.end()) continue;
      const uint64_t value = keys.Unsigned(suffix).value_or(0);
      if (value == 0) continue;
      throw Error("{} is {}: Larder does not know what that means in a {} model", keys.Name(suffix),
                  value, config_.architecture_name);
    }
    keys_.norm_epsilon = config_.norm_epsilon;
    for (KeysOfModel::Layer& layer : keys_.layers) layer.rotary = rotary_;
    ReadKeys(family(), keys, config_.trained_context, keys_);
    config_.scales = keys_.scales;
    config_.input_size = keys_.input_size;
    config_.layers = keys_.layers.size();
    if (family().ffn_apart) config_.first_block = FirstBlocks(keys_);
  }

  void ReadRope() {
    rotary_.dim = CountOr("rope.dimension_count", head_size_, kMaxHeadSize);
    if (rotary_.dim > head_size_ || rotary_.dim % 2 != 0) {
      throw Error("{}: key '{}' is {}, expected an even number up to the head size {}",
                  file_.path(), Key("rope.dimension_count"), rotary_.dim, head_size_);
    }
    rotary_.base = PositiveOr("rope.freq_base", 10000.0, 1.0 + 1e-6, 1e12);
    // Files from before scaling types have `rope.scale_linear`; a factor without a type is linear.
    const bool is_old =
        !file_.Has(Key("rope.scaling.factor")) && file_.Has(Key("rope.scale_linear"));
    double factor = PositiveOr(is_old ? "rope.scale_linear" : "rope.scaling.factor", 1.0, 0.0, 1e6);
    if (factor == 0.0) factor = 1.0;
    if (factor < 1e-3) {
      throw Error("{}: key '{}' is {}, expected 0.001 to 1000000", file_.path(),
                  Key(is_old ? "rope.scale_linear" : "rope.scaling.factor"), factor);
    }
    const std::string_view type = file_.FindString(Key("rope.scaling.type")).value_or("linear");
    if (type == "yarn") {
      rotary_.scaling = RopeScaling::kYarn;
    } else if (type == "linear") {
      rotary_.scaling = factor != 1.0 ? RopeScaling::kLinear : RopeScaling::kNone;
    } else if (type != "none" && !(type == "longrope" && family().long_rope)) {
      throw Error("{}: key '{}' is {}, expected none, linear or yarn", file_.path(),
                  Key("rope.scaling.type"), Quoted(type));
    }
    rotary_.scale_factor = rotary_.scaling == RopeScaling::kNone ? 1.0 : factor;
    rotary_.original_context =
        CountOr("rope.scaling.original_context_length", config_.trained_context, kMaxContext);
    if (rotary_.scaling == RopeScaling::kYarn) ReadYarn();
    if (family().long_rope)
      rotary_.magnitude = PositiveOr("rope.scaling.attn_factor", 1.0, 1e-3, 1e3);
  }

  void ReadYarn() {
    rotary_.yarn_ext_factor = PositiveOr("rope.scaling.yarn_ext_factor", 1.0, 0.0, 1.0);
    const char* attn_key = file_.Has(Key("rope.scaling.yarn_attn_factor"))
                               ? "rope.scaling.yarn_attn_factor"
                               : "rope.scaling.attn_factor";
    rotary_.yarn_attn_factor = PositiveOr(attn_key, 1.0, 1e-3, 1e3);
    rotary_.yarn_beta_fast = PositiveOr("rope.scaling.yarn_beta_fast", 32.0, 1e-3, 1e6);
    rotary_.yarn_beta_slow = PositiveOr("rope.scaling.yarn_beta_slow", 1.0, 1e-3, 1e6);
  }

  // Fewer tokens than rows are common (rows padded to a round number); more tokens than rows would
  // be ids without an embedding.
  void ReadVocabKeys() const {
    const uint64_t said = file_.FindUnsigned(Key("vocab_size")).value_or(0);
    if (said > config_.vocab) {
      throw Error("{}: key '{}' is {}, but tensor '{}' has {} rows", file_.path(),
                  Key("vocab_size"), said, kEmbeddingTensor, config_.vocab);
    }
    for (const GgufFile::Entry& entry : file_.entries()) {
      if (entry.key == "tokenizer.ggml.tokens" && entry.count > config_.vocab) {
        throw Error("{}: key 'tokenizer.ggml.tokens' has {} tokens, but tensor '{}' has {} rows",
                    file_.path(), entry.count, kEmbeddingTensor, config_.vocab);
      }
    }
    if (config_.vocab > kMaxVocab) {
      throw Error("{}: tensor '{}' has {} rows, expected at most {}", file_.path(),
                  kEmbeddingTensor, config_.vocab, kMaxVocab);
    }
  }

  const GgufFile& file_;
  ModelConfig config_;
  KeysOfModel keys_;
  RotarySpec rotary_;  // of all layers
  size_t head_size_ = 0;
};

}  // namespace

std::vector<float> ReadVector(const GgufFile& file, const ModelConfig& config, size_t index,
                              TensorRole role) {
  const TensorSpec& spec = config.layer(index).tensor(role);
  const TensorInfo& tensor = file.Tensor(config.TensorName(index, role));
  std::vector<float> values(tensor.rows * tensor.cols);
  file.ReadRowsF32(tensor, 0, tensor.rows, values.data());
  const auto first = values.begin() + static_cast<std::ptrdiff_t>(spec.first);
  return {first, first + static_cast<std::ptrdiff_t>(spec.rows * spec.cols)};
}

std::string OutputNormTensor(const ModelConfig& config) {
  const Family* const family = FindFamily(config.architecture_name);  // null: a config made by hand
  return std::string(family == nullptr ? kOutputNormTensor : family->output_norm);
}

ModelConfig ForContext(ModelConfig config, size_t context) {
  for (LayerSpec& kind : config.kinds) {
    RotarySpec& rotary = kind.rotary;
    if (context > rotary.original_context && !rotary.long_factors.empty())
      rotary.freq_factors = rotary.long_factors;
    rotary.long_factors.clear();
  }
  return config;
}

std::string LongRopeText(const ModelConfig& config, size_t context) {
  for (const LayerSpec& kind : config.kinds) {
    if (kind.rotary.long_factors.empty()) continue;
    const bool is_long = context > kind.rotary.original_context;
    return fmt::format("LongRoPE: {} factors, for a context of {} {} {}",
                       is_long ? "long" : "short", context, is_long ? "above" : "up to",
                       kind.rotary.original_context);
  }
  return "";
}

ModelConfig ReadModelConfig(const GgufFile& file) { return ConfigReader(file).Read(); }

std::string LayersText(const ModelConfig& config) {
  std::string text = fmt::format("{} layers, dim {}", config.layers, config.dim);
  using Of = std::tuple<LayerSizes, Recurrence, ExpertSpec>;
  std::vector<Of> all;  // in the order of kinds
  const auto of_layer = [](const LayerSpec& layer) {
    return Of{layer.sizes, layer.recurrence, layer.experts};
  };
  for (const size_t kind : config.OwnKinds()) {
    const Of of = of_layer(config.kinds[kind]);
    if (std::ranges::find(all, of) == all.end()) all.push_back(of);
  }
  for (const Of& of : all) {
    const auto& [sizes, recurrence, experts] = of;
    if (all.size() > 1) {
      const auto count = config.Sum([&](const LayerSpec& layer) { return of_layer(layer) == of; });
      text += fmt::format("; {} of", count);
    } else {
      text += ',';
    }
    text += sizes.ffn == 0 ? " no FFN,"
            : experts.count == 0
                ? fmt::format(" ffn {},", sizes.ffn)
                : fmt::format(" {} of {} experts of {}{},", experts.used, experts.count, sizes.ffn,
                              experts.shared_ffn == 0
                                  ? std::string()
                                  : fmt::format(" and a shared one of {}", experts.shared_ffn));
    if (recurrence.kind == StateKind::kConvolution) {
      text += fmt::format(" convolutions of {} channels over {} tokens", sizes.q_rows(),
                          recurrence.taps);
      continue;
    }
    if (recurrence.beside_attention()) {
      text += fmt::format(" {} heads / {} KV heads of {}, beside {} / {} of {} x {} of Mamba-2",
                          sizes.heads, sizes.kv_heads, sizes.head_size, recurrence.heads,
                          recurrence.key_heads, recurrence.key_size, recurrence.head_size);
      continue;
    }
    text += !recurrence.any()
                ? fmt::format(" {} heads / {} KV heads of {}", sizes.heads, sizes.kv_heads,
                              sizes.head_size)
                : fmt::format(" {}: {} heads / {} key heads of {} x {}",
                              recurrence.kind == StateKind::kMamba2 ? "Mamba-2" : "delta rule",
                              sizes.heads, sizes.kv_heads, recurrence.key_size, sizes.head_size);
  }
  return text;
}

ModelConfig LayersOf(ModelConfig config, size_t first, size_t count) {
  config.first_layer += first;
  config.layers = count;
  config.ends = false;
  return config;
}

ModelConfig EndsOf(ModelConfig config) {
  config.layers = 0;
  return config;
}

bool ModelConfig::AddLayer(LayerSpec layer) {
  const auto known = std::ranges::find(kinds, layer);
  const auto kind = static_cast<size_t>(known - kinds.begin());
  if (kind == kMaxKinds) return false;
  kind_of.push_back(static_cast<uint8_t>(kind));
  if (kind == kinds.size()) kinds.push_back(std::move(layer));
  return true;
}

std::vector<size_t> ModelConfig::OwnKinds() const {
  std::vector<size_t> own;
  for (size_t i = 0; i < layers; ++i) own.push_back(KindOf(i));
  std::ranges::sort(own);
  own.erase(std::unique(own.begin(), own.end()), own.end());
  return own;
}

const LayerSpec& ModelConfig::FirstWithAttention() const {
  for (size_t i = 0; i < layers; ++i)
    if (layer(i).attends()) return layer(i);
  return layer(0);
}

size_t ModelConfig::layers_together() const {
  size_t first = kind_of.size() - 1;
  for (const uint8_t kind : kind_of) first = std::min(first, kinds[kind].kv_of.value_or(first));
  return kind_of.size() - first;
}

size_t ModelConfig::last_storing() const {
  size_t last = layers - 1;
  while (last > 0 && layer(last).kv_of) --last;
  return last;
}

bool ModelConfig::recurrent() const { return std::ranges::any_of(kinds, &LayerSpec::recurrent); }

uint64_t ModelConfig::parameters() const {
  return Sum([](const LayerSpec& layer) { return layer.parameters(); }) +
         (tied_embeddings ? 1 : 2) * vocab * dim + dim +
         (input_size == 0 ? 0 : all_inputs() * (vocab + dim) + input_size);
}

}  // namespace larder::model::config
