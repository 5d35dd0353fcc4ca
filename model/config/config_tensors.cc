#include "model/config/config_tensors.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "model/config/pooling.h"
#include "model/config/split.h"
#include "model/families/family.h"
#include "model/gguf/gguf_impl.h"

namespace larder::model::inline config {
namespace {

class TensorChecker {
 public:
  TensorChecker(const GgufFile& file, const KeysOfModel& keys, ModelConfig& config)
      : file_(file), keys_(keys), config_(config) {}

  void Check() {
    config_.types.layers.resize(config_.layers);
    for (TensorTypes::OfLayer& types : config_.types.layers) types.fill(TensorType::kQ8_0);
    const auto part = ReadPart(file_, config_.layers);
    part ? CheckPart(*part) : CheckWhole();
    RefuseOthers();
  }

 private:
  void CheckWhole() {
    CheckEnds();
    config_.tied_embeddings = file_.FindTensor(kHeadTensor) == nullptr;
    DescribeLayers(FormsInFile());
    CheckInputs();
    if (!config_.tied_embeddings) CheckHead();
    for (size_t layer = 0; layer < config_.layers; ++layer) CheckLayer(layer);
    ReadTypesOfEnds();
  }

  void ReadTypesOfEnds() {
    if (config_.input_size != 0) {
      config_.types.input_embedding = file_.Tensor(kInputEmbeddingTensor).type;
      config_.types.input_matrix = file_.Tensor(kInputMatrixTensor).type;
    }
    config_.types.embedding = file_.Tensor(kEmbeddingTensor).type;
    config_.types.head =
        config_.tied_embeddings ? config_.types.embedding : file_.Tensor(kHeadTensor).type;
  }

  // A part states the types of tensors that it does not have: rows must be whole blocks of them,
  // too.
  void CheckTypes() const {
    const auto check = [&](TensorType type, size_t cols) {
      const size_t elements = LayoutOfGgufType(static_cast<uint32_t>(type)).elements;
      if (cols % elements == 0) return;
      throw Error(
          "{}: key 'larder.split.types': {} for rows of {} elements, expected a multiple of {}",
          file_.path(), GgufTypeName(static_cast<uint32_t>(type)), cols, elements);
    };
    check(config_.types.embedding, config_.dim);
    check(config_.types.head, config_.dim);
    if (config_.input_size != 0) {
      check(config_.types.input_embedding, config_.all_inputs());
      check(config_.types.input_matrix, config_.dim);
    }
    for (size_t layer = 0; layer < config_.layers; ++layer) {
      for (const TensorSpec& tensor : config_.layer(layer).tensors)
        if (tensor.kind == TensorKind::kMatrix)
          check(config_.TypeOf(layer, tensor.role), tensor.cols);
    }
  }

  void CheckPart(const ModelPart& part) {
    config_.part = part;
    config_.types = part.types;
    config_.vocab = part.vocab;
    config_.tied_embeddings = part.tied_embeddings;
    DescribeLayers(part.forms);
    CheckTypes();
    if (part.kind == ModelPart::Kind::kServing) {
      CheckEnds();
      CheckInputs();
      if (!config_.tied_embeddings) CheckHead();
      ReadTypesOfEnds();
    }
    for (size_t layer = part.first_layer; layer < part.first_layer + part.layers; ++layer)
      CheckLayer(layer);
  }

  // As the first layer with attention has them.
  TensorForms FormsInFile() const {
    const size_t first = FirstWithAttention();
    const auto find = [&](std::string_view suffix) {
      return file_.FindTensor(LayerTensor(config_.BlockOf(first), suffix));
    };
    const auto has = [&](std::string_view suffix) { return find(suffix) != nullptr; };
    const TensorInfo* const up = find("ffn_up.weight");
    return {.qkv_bias = has("attn_q.bias") || has("attn_qkv.bias"),
            .o_bias = has("attn_output.bias"),
            .gate_up_bias = has("ffn_up.bias"),
            .down_bias = has("ffn_down.bias"),
            .fused_qkv = has("attn_qkv.weight"),
            .fused_gate_up = !has("ffn_gate.weight") && up != nullptr &&
                             up->rows == 2 * keys_.layers[first].sizes.ffn,
            .fused_experts = HasInLayerWithExperts("ffn_gate_up_exps.weight"),
            .fused_rates = HasInLayerWith(StateKind::kDeltaRule, "ssm_ba.weight"),
            .fused_state = HasInLayerWith(StateKind::kDeltaRule, "ssm_in.weight"),
            .experts_apart = HasInLayerWithExperts("ffn_gate.0.weight"),
            .value_is_key = LacksValue(),
            .qk_norm = has("attn_q_norm.weight"),
            .router_bias = HasInLayerWithExperts(SuffixOf(TensorRole::kRouterBias)),
            .shared_gate = HasInLayerWithExperts(SuffixOf(TensorRole::kSharedRouter)),
            .group_norm = HasInLayerWith(StateKind::kMamba2, SuffixOf(TensorRole::kGroupNorm)),
            .bare_ffn_norm = has("ffn_norm")};
  }

  static bool IsRecurrentOnly(const KeysOfModel::Layer& layer) {
    return layer.recurrence.any() && !layer.recurrence.beside_attention();
  }

  // Whether one of the layers of which `is` is true has that tensor: then all must.
  template <typename Is>
  bool AnyHas(const Is& is, std::string_view suffix) const {
    for (size_t layer = 0; layer < keys_.layers.size(); ++layer) {
      if (!is(keys_.layers[layer])) continue;
      for (size_t i = 0; i < keys_.layers[layer].blocks; ++i)
        if (file_.FindTensor(LayerTensor(config_.BlockOf(layer) + i, suffix)) != nullptr)
          return true;
    }
    return false;
  }
  bool HasInLayerWith(StateKind kind, std::string_view suffix) const {
    return AnyHas([&](const KeysOfModel::Layer& layer) { return layer.recurrence.kind == kind; },
                  suffix);
  }
  bool HasInLayerWithExperts(std::string_view suffix) const {
    return AnyHas([](const KeysOfModel::Layer& layer) { return layer.experts.count != 0; }, suffix);
  }

  // Whether layers that may be without V are.
  bool LacksValue() const {
    const auto layer = std::ranges::find(keys_.layers, true, &KeysOfModel::Layer::may_lack_value);
    if (layer == keys_.layers.end()) return false;
    const auto number = static_cast<size_t>(layer - keys_.layers.begin());
    return file_.FindTensor(LayerTensor(number, SuffixOf(TensorRole::kV))) == nullptr &&
           file_.FindTensor(LayerTensor(number, "attn_qkv.weight")) == nullptr;
  }
  size_t FirstWithAttention() const {
    size_t first = 0;
    while (first + 1 < keys_.layers.size() && IsRecurrentOnly(keys_.layers[first])) ++first;
    return first;
  }

  void DescribeLayers(const TensorForms& forms) {
    const std::vector<float> factors = ReadRopeFactors(kRopeFactorsTensor);
    std::vector<float> short_factors, long_factors;
    const Family& family = FamilyOf(config_.architecture_name);
    if (family.long_rope) {
      short_factors = ReadRopeFactors(kShortRopeFactorsTensor);
      long_factors = ReadRopeFactors(kLongRopeFactorsTensor);
      if (short_factors.empty() != long_factors.empty() ||
          (!factors.empty() && !long_factors.empty())) {
        throw Error("{}: tensors '{}' and '{}' belong together, without '{}'", file_.path(),
                    kShortRopeFactorsTensor, kLongRopeFactorsTensor, kRopeFactorsTensor);
      }
    }
    for (KeysOfModel::Layer layer : keys_.layers) {
      if (layer.rotary.dim != 0 && layer.has_factors) {
        layer.rotary.freq_factors = long_factors.empty() ? factors : short_factors;
        layer.rotary.long_factors = long_factors;
      }
      if (!config_.AddLayer(
              MakeLayerSpec(family, layer, config_.norm_epsilon, forms, config_.input_size)))
        throw Error("{}: layers of more than {} different kinds", file_.path(),
                    ModelConfig::kMaxKinds);
    }
  }

  void CheckEnds() {
    // The embedding's rows are the vocabulary, the only dimension that a whole model's keys need
    // not give.
    const TensorInfo& embedding = file_.Tensor(kEmbeddingTensor);
    if (config_.vocab == 0) config_.vocab = embedding.rows;
    Expect(embedding.name, config_.vocab, config_.dim, "vocabulary x embedding_length");
    Expect(OutputNormTensor(config_), 1, config_.dim, "embedding_length");
  }
  void CheckInputs() {
    if (config_.input_size == 0) return;
    const size_t all = config_.all_inputs();
    Expect(kInputEmbeddingTensor, config_.vocab, all,
           "vocabulary x block_count * embedding_length_per_layer_input");
    Expect(kInputMatrixTensor, all, config_.dim,
           "block_count * embedding_length_per_layer_input x embedding_length");
    Expect(kInputNormTensor, 1, config_.input_size, "embedding_length_per_layer_input");
  }
  void CheckHead() {
    Expect(kHeadTensor, config_.vocab, config_.dim, "vocabulary x embedding_length");
  }

  void CheckLayer(size_t layer) {
    for (const TensorSpec& tensor : config_.layer(layer).tensors) {
      const bool matrix = tensor.kind == TensorKind::kMatrix || tensor.kind == TensorKind::kTable;
      const size_t rows = tensor.each != 0           ? tensor.each
                          : matrix && tensor.of != 0 ? tensor.of
                                                     : tensor.rows;
      const size_t cols = !matrix && tensor.of != 0 ? tensor.of : tensor.cols;
      const auto expect = [&](size_t number) -> const TensorInfo& {
        return Expect(LayerTensor(config_.BlockOf(layer), tensor, number), rows, cols,
                      tensor.of != 0     ? "together with others: " + tensor.meaning
                      : tensor.each != 0 ? "one of " + tensor.meaning
                                         : tensor.meaning);
      };
      const TensorInfo& found = expect(0);
      for (size_t number = 1; number < tensor.tensors(); ++number)
        ExpectType(expect(number), found);
      // The first 14 roles were written before others were matrices, and stay as they were.
      const auto role = static_cast<size_t>(tensor.role);
      if (role < kOldRoles || tensor.kind == TensorKind::kMatrix)
        config_.types.layers[layer][role] = found.type;
      if (tensor.role == TensorRole::kDecay) CheckDecays(found);
    }
  }

  // What is one matrix to Larder has one type.
  void ExpectType(const TensorInfo& tensor, const TensorInfo& other) const {
    if (tensor.type == other.type) return;
    throw Error("{}: tensor '{}' is {}, expected {}, as '{}' is", file_.path(), tensor.name,
                GgufTypeName(tensor.gguf_type), GgufTypeName(other.gguf_type), other.name);
  }

  // Above 0 a state would grow without end.
  void CheckDecays(const TensorInfo& tensor) const {
    std::vector<float> decays(tensor.rows * tensor.cols);
    file_.ReadRowsF32(tensor, 0, tensor.rows, decays.data());
    for (size_t i = 0; i < decays.size(); ++i) {
      if (decays[i] <= 0.0f) continue;
      throw Error("{}: tensor '{}': head {} has {}, expected at most 0", file_.path(), tensor.name,
                  i, decays[i]);
    }
  }

  const TensorInfo& Expect(const std::string& name, size_t rows, size_t cols,
                           std::string_view meaning) {
    const TensorInfo* tensor = file_.FindTensor(name);
    if (tensor == nullptr) {
      throw Error("{}: tensor '{}' is missing, expected one of {} ({})", file_.path(), name,
                  Shape(rows, cols), meaning);
    }
    file_.CheckReadable(*tensor);
    if (tensor->rows != rows || tensor->cols != cols) {
      throw Error("{}: tensor '{}' is {}, expected {} ({})", file_.path(), name,
                  Shape(tensor->rows, tensor->cols), Shape(rows, cols), meaning);
    }
    used_.insert(tensor);
    return *tensor;
  }

  static std::string Shape(size_t rows, size_t cols) {
    return rows == 1 ? fmt::format("{} elements", cols) : fmt::format("{} rows of {}", rows, cols);
  }

  // Empty if there is no such tensor.
  std::vector<float> ReadRopeFactors(const char* name) {
    const TensorInfo* tensor = file_.FindTensor(name);
    if (tensor == nullptr) return {};
    const size_t pairs = RotaryDim() / 2;
    Expect(tensor->name, 1, pairs, "rotary dimensions / 2");
    std::vector<float> factors(pairs);
    file_.ReadRowsF32(*tensor, 0, 1, factors.data());
    for (size_t i = 0; i < pairs; ++i) {
      if (factors[i] > 0.0f) continue;
      throw Error("{}: tensor '{}': factor {} is {}, expected more than 0", file_.path(),
                  tensor->name, i, factors[i]);
    }
    return factors;
  }
  // Of the layers that rotate by factors.
  size_t RotaryDim() const {
    size_t dim = 0;
    for (const KeysOfModel::Layer& layer : keys_.layers)
      if (layer.has_factors) dim = std::max(dim, layer.rotary.dim);
    return dim;
  }

  // A tensor that is ignored would silently make the wrong model.
  void RefuseOthers() const {
    for (const TensorInfo& tensor : file_.tensors()) {
      // Some old converters stored the inverse frequencies, which the keys already give.
      // ReadRankHead checks those of a rank head.
      const bool is_harmless = tensor.name.ends_with(".attn_rot_embd.weight") ||
                               tensor.name.ends_with(".attn.rot_embd") ||
                               tensor.name.ends_with("rotary_emb.inv_freq") ||
                               tensor.name.starts_with(kRankHeadPrefix);
      if (used_.contains(&tensor) || is_harmless || IsOfSkipped(tensor.name) ||
          IsOfSharedKeys(tensor.name))
        continue;
      throw Error("{}: tensor {} is not part of a {} model of {} layers as Larder knows it",
                  file_.path(), Quoted(tensor.name), config_.architecture_name, config_.layers);
    }
  }

  // Of the keys and values that a layer would have if it did not attend to another one's.
  bool IsOfSharedKeys(std::string_view name) const {
    using enum TensorRole;
    for (size_t i = 0; i < config_.layers; ++i) {
      if (!config_.layer(i).kv_of) continue;
      for (const TensorRole role : {kK, kV, kKNorm})
        if (name == LayerTensor(config_.BlockOf(i), SuffixOf(role))) return true;
    }
    return false;
  }

  bool IsOfSkipped(std::string_view name) const {
    size_t blocks = 0;  // of the layers
    for (const KeysOfModel::Layer& layer : keys_.layers) blocks += layer.blocks;
    for (size_t i = 0; i < keys_.skipped; ++i)
      if (name.starts_with(LayerTensor(blocks + i, ""))) return true;
    return false;
  }

  const GgufFile& file_;
  const KeysOfModel& keys_;
  ModelConfig& config_;
  std::unordered_set<const TensorInfo*> used_;
};

}  // namespace

void ReadTensors(const GgufFile& file, const KeysOfModel& keys, ModelConfig& config) {
  TensorChecker(file, keys, config).Check();
}

}  // namespace larder::model::config
