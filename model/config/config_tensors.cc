#include "model/config/config_tensors.h"

#include <unordered_set>

#include "base/error.h"
#include "model/config/split.h"
#include "model/gguf/gguf_impl.h"

namespace larder::model {
namespace {

class TensorChecker {
 public:
  TensorChecker(const GgufFile& file, ModelConfig& config) : file_(file), config_(config) {}

  void Check() {
    const auto part = ReadPart(file_, config_.layers);
    part ? CheckPart(*part) : CheckWhole();
    ReadRopeFactors();
    RefuseOthers();
  }

 private:
  void CheckWhole() {
    CheckEnds();
    config_.tied_embeddings = file_.FindTensor("output.weight") == nullptr;
    config_.qkv_bias = config_.architecture == Architecture::kQwen2 ||
                       file_.FindTensor(LayerTensor(0, "attn_q.bias")) != nullptr;
    config_.qk_norm = config_.architecture == Architecture::kQwen3;
    if (!config_.tied_embeddings) CheckHead();
    for (size_t layer = 0; layer < config_.layers; ++layer) CheckLayer(layer);
  }

  void CheckPart(const ModelPart& part) {
    config_.part = part;
    config_.vocab = part.vocab;
    config_.tied_embeddings = part.tied_embeddings;
    config_.qkv_bias = part.qkv_bias || config_.architecture == Architecture::kQwen2;
    config_.qk_norm = config_.architecture == Architecture::kQwen3;
    if (part.kind == ModelPart::Kind::kServing) {
      CheckEnds();
      if (!config_.tied_embeddings) CheckHead();
    }
    for (size_t layer = part.first_layer; layer < part.first_layer + part.layers; ++layer) CheckLayer(layer);
  }

  void CheckEnds() {
    // The embedding's rows are the vocabulary: the one dimension that no key of a whole model has to say.
    const TensorInfo& embedding = file_.Tensor("token_embd.weight");
    if (config_.vocab == 0) config_.vocab = embedding.rows;
    Expect(embedding.name, config_.vocab, config_.dim, "vocabulary x embedding_length");
    Expect("output_norm.weight", 1, config_.dim, "embedding_length");
  }
  void CheckHead() { Expect("output.weight", config_.vocab, config_.dim, "vocabulary x embedding_length"); }

  void CheckLayer(size_t layer) {
    const size_t dim = config_.dim, ffn = config_.ffn, q_rows = config_.q_rows(), kv_rows = config_.kv_rows();
    const auto expect = [&](const char* suffix, size_t rows, size_t cols, std::string_view meaning) {
      Expect(LayerTensor(layer, suffix), rows, cols, meaning);
    };
    expect("attn_norm.weight", 1, dim, "embedding_length");
    expect("attn_q.weight", q_rows, dim, "head_count * head size x embedding_length");
    expect("attn_k.weight", kv_rows, dim, "head_count_kv * head size x embedding_length");
    expect("attn_v.weight", kv_rows, dim, "head_count_kv * head size x embedding_length");
    expect("attn_output.weight", dim, q_rows, "embedding_length x head_count * head size");
    expect("ffn_norm.weight", 1, dim, "embedding_length");
    expect("ffn_gate.weight", ffn, dim, "feed_forward_length x embedding_length");
    expect("ffn_up.weight", ffn, dim, "feed_forward_length x embedding_length");
    expect("ffn_down.weight", dim, ffn, "embedding_length x feed_forward_length");
    if (config_.qkv_bias) {
      expect("attn_q.bias", 1, q_rows, "head_count * head size");
      expect("attn_k.bias", 1, kv_rows, "head_count_kv * head size");
      expect("attn_v.bias", 1, kv_rows, "head_count_kv * head size");
    }
    if (config_.qk_norm) {
      expect("attn_q_norm.weight", 1, config_.head_size, "head size");
      expect("attn_k_norm.weight", 1, config_.head_size, "head size");
    }
  }

  void Expect(const std::string& name, size_t rows, size_t cols, std::string_view meaning) {
    const TensorInfo* tensor = file_.FindTensor(name);
    if (tensor == nullptr) {
      throw Error("{}: tensor '{}' is missing, expected one of {} ({})", file_.path(), name,
                  Shape(rows, cols), meaning);
    }
    if (!IsReadableType(tensor->gguf_type)) {
      throw Error(
          "{}: tensor '{}' is {} (type {}), expected F32, F16, BF16 or Q8_0: convert the model to Q8_0 or "
          "F16",
          file_.path(), name, GgufTypeName(tensor->gguf_type), tensor->gguf_type);
    }
    if (tensor->rows != rows || tensor->cols != cols) {
      throw Error("{}: tensor '{}' is {}, expected {} ({})", file_.path(), name,
                  Shape(tensor->rows, tensor->cols), Shape(rows, cols), meaning);
    }
    used_.insert(tensor);
  }

  static std::string Shape(size_t rows, size_t cols) {
    return rows == 1 ? fmt::format("{} elements", cols) : fmt::format("{} rows of {}", rows, cols);
  }

  void ReadRopeFactors() {
    const TensorInfo* tensor = file_.FindTensor("rope_freqs.weight");
    if (tensor == nullptr) return;
    Expect(tensor->name, 1, config_.rotary_dim / 2, "rotary dimensions / 2");
    config_.rope_freq_factors.resize(tensor->cols);
    file_.ReadRowsF32(*tensor, 0, 1, config_.rope_freq_factors.data());
    for (size_t i = 0; i < tensor->cols; ++i) {
      if (config_.rope_freq_factors[i] > 0.0f) continue;
      throw Error("{}: tensor 'rope_freqs.weight': factor {} is {}, expected more than 0", file_.path(), i,
                  config_.rope_freq_factors[i]);
    }
  }

  // A weight that is left out is a wrong model, and nobody would see it.
  void RefuseOthers() const {
    for (const TensorInfo& tensor : file_.tensors()) {
      // Some old converters stored the inverse frequencies, which the keys say already.
      const bool is_harmless = tensor.name.ends_with(".attn_rot_embd.weight") ||
                               tensor.name.ends_with(".attn.rot_embd") ||
                               tensor.name.ends_with("rotary_emb.inv_freq");
      if (used_.contains(&tensor) || is_harmless) continue;
      throw Error("{}: tensor {} is not part of a {} model of {} layers as Larder knows it", file_.path(),
                  Quoted(tensor.name), config_.architecture_name, config_.layers);
    }
  }

  const GgufFile& file_;
  ModelConfig& config_;
  std::unordered_set<const TensorInfo*> used_;
};

}  // namespace

void ReadTensors(const GgufFile& file, ModelConfig& config) { TensorChecker(file, config).Check(); }

}  // namespace larder::model
