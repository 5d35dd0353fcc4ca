#include "model/synth/synth.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <iterator>
#include <map>

#include "base/error.h"
#include "model/families/family.h"
#include "model/gguf/gguf.h"
#include "model/synth/synth_quants.h"
#include "model/synth/synth_random.h"

namespace larder::model::inline synth {
namespace {

constexpr float kNormSpread = 0.1f;  // norm weights are 1 +- this
constexpr float kBiasDeviation = 0.1f;
// One in kOutliers of Q's and K's biases is so many times as large: trained ones (Qwen2.5) are.
constexpr uint64_t kOutliers = 8;
constexpr float kOutlier = 100.0f;

// GGUF's values of tokenizer.ggml.token_type.
constexpr int32_t kNormal = 1, kUnknown = 2, kControl = 3, kByte = 6;
constexpr const char* kSpace = "\u2581";  // SPM's visible space

// An SPM vocabulary: the special and byte tokens, single characters, then syllables and words of
// them.
class Vocabulary {
 public:
  explicit Vocabulary(size_t size) : size_(size) {
    AddToken("<unk>", 0.0f, kUnknown);
    AddToken("<s>", 0.0f, kControl);
    AddToken("</s>", 0.0f, kControl);
    for (int b = 0; b < 256; ++b) AddToken(fmt::format("<0x{:02X}>", b), 0.0f, kByte);
    AddPiece(kSpace);
    for (char c = '!'; c <= '~'; ++c) AddPiece(std::string(1, c));
    std::vector<std::string> syllables;
    for (const char consonant : std::string_view("tnshrdlcmfpgwybvkjxqz")) {
      for (const char vowel : std::string_view("eaoiu")) syllables.push_back({consonant, vowel});
    }
    // Words of one, two, three... syllables. Each is an earlier word plus a syllable, so that SPM's
    // pairwise merges reach it.
    std::vector<std::string> words = {""};
    while (tokens.size() < size_) {
      std::vector<std::string> longer;
      for (const std::string& word : words) {
        for (const std::string& syllable : syllables) {
          if (tokens.size() + longer.size() >= size_) break;
          longer.push_back(word + syllable);
        }
      }
      for (const std::string& word : longer) AddPiece(word);
      for (const std::string& word : longer) AddPiece(kSpace + word);
      words = std::move(longer);
    }
  }

  std::vector<std::string> tokens;
  std::vector<float> scores;
  std::vector<int32_t> types;

 private:
  void AddToken(std::string text, float score, int32_t type) {
    tokens.push_back(std::move(text));
    scores.push_back(score);
    types.push_back(type);
  }
  void AddPiece(const std::string& text) {
    if (tokens.size() < size_)
      AddToken(text, -static_cast<float>(tokens.size() - kMinSynthVocab), kNormal);
  }
  size_t size_;
};

void Check(const ModelShape& shape) {
  const auto require = [](bool good, std::string_view what, size_t value,
                          std::string_view expected) {
    if (!good) throw Error("synth: {} is {}, expected {}", what, value, expected);
  };
  require(shape.layers >= 1 && shape.layers <= 1024, "layers", shape.layers, "1 to 1024");
  require(shape.dim >= 1 && shape.dim <= (1 << 17), "dim", shape.dim, "1 to 131072");
  require(shape.kv_heads >= 1, "kv_heads", shape.kv_heads, "a divisor of heads");
  for (const size_t layer : {0, 1}) {
    const LayerSizes sizes = shape.SizesOf(layer);
    require((sizes.ffn >= 1 || shape.ffn >= 1) && sizes.ffn <= (1 << 20), "ffn", sizes.ffn,
            "1 to 1048576");
    require(sizes.heads >= 1 && sizes.heads <= 1024, "heads", sizes.heads, "1 to 1024");
    require(sizes.kv_heads == 0 || sizes.heads % sizes.kv_heads == 0, "kv_heads", sizes.kv_heads,
            "a divisor of heads");
  }
  require(shape.head_size >= 2 && shape.head_size <= 1024 && shape.head_size % 2 == 0, "head_size",
          shape.head_size, "an even number from 2 to 1024");
  // What does not rotate is the latent.
  require(!FamilyOf(shape.architecture).latent || shape.head_size > RotaryDim(shape), "head_size",
          shape.head_size, fmt::format("more than the {} that rotate", RotaryDim(shape)));
  require(shape.vocab >= kMinSynthVocab && shape.vocab <= (1 << 22), "vocab", shape.vocab,
          "259 to 4194304");
  require(shape.context >= 1 && shape.context <= (size_t{1} << 31), "context", shape.context,
          "1 to 2147483648");
}

class Synthesis {
 public:
  explicit Synthesis(const SynthOptions& options) : options_(options), shape_(options.shape) {}

  void Write(const std::string& path, const WriteProgress& progress) {
    AddKeys();
    AddTokenizer();
    AddTensors();
    writer_.Write(path, progress);
  }

 private:
  // What Fill needs to know about one tensor.
  struct Source {
    const NormalTable* table;
    const QuantBlocks* quants;  // null for types that the table makes
    uint64_t key;
    TensorType type;
    size_t cols;
    float deviation;
  };

  void AddKeys() {
    const std::string arch(shape_.architecture);
    const auto key = [&](const char* suffix) { return arch + "." + suffix; };
    const auto u32 = [](size_t value) { return static_cast<uint32_t>(value); };
    writer_.Add("general.architecture", arch);
    writer_.Add("general.name", options_.name.empty() ? std::string("synth") : options_.name);
    writer_.Add("general.file_type", FileTypeOf(options_.type));
    writer_.Add("general.quantization_version", uint32_t{2});
    writer_.Add(key("context_length"), u32(shape_.context));
    writer_.Add(key("embedding_length"), u32(shape_.dim));
    writer_.Add(key("block_count"), u32(shape_.Blocks().size()));
    AddOfLayers(key("feed_forward_length"), &LayerSizes::ffn);
    writer_.Add(key("rope.dimension_count"), u32(RotaryDim(shape_)));
    writer_.Add(key("rope.freq_base"), static_cast<float>(shape_.rope_base));
    AddOfLayers(key("attention.head_count"), &LayerSizes::heads);
    AddOfLayers(key("attention.head_count_kv"), &LayerSizes::kv_heads);
    writer_.Add(key("attention.key_length"), u32(shape_.head_size));
    const Family& family = FamilyOf(shape_.architecture);
    if (!family.latent) writer_.Add(key("attention.value_length"), u32(shape_.head_size));
    for (const auto& [suffix, value] : KeysOfLatent(shape_))
      writer_.Add(fmt::format("{}.{}", arch, suffix), value);
    writer_.Add(key(family.norm == NormKind::kRms ? "attention.layer_norm_rms_epsilon"
                                                  : "attention.layer_norm_epsilon"),
                static_cast<float>(shape_.norm_epsilon));
    writer_.Add(key("vocab_size"), u32(shape_.vocab));
    if (const size_t window = WindowOf(shape_); window != 0)
      writer_.Add(key("attention.sliding_window"), u32(window));
    for (const Family::Sample::Value& sample : family.sample.values)
      writer_.Add(fmt::format("{}.{}", arch, sample.key), sample.value);
    for (const auto& [suffix, value] : CountsOfSample(shape_))
      writer_.Add(fmt::format("{}.{}", arch, suffix), value);
    if (family.sample.original_context != 0)
      writer_.Add(key("rope.scaling.original_context_length"), u32(OriginalContext(shape_)));
    if (family.sample.yarn_factor > 0.0) {
      writer_.Add(key("rope.scaling.type"), "yarn");
      writer_.Add(key("rope.scaling.factor"), static_cast<float>(family.sample.yarn_factor));
    }
    if (family.sample.state == StateKind::kDeltaRule) {  // what peers want to know of positions in
                                                         // images
      const auto pairs = static_cast<int32_t>(RotaryDim(shape_) / 2);
      writer_.Add(key("rope.dimension_sections"),
                  std::vector<int32_t>{(pairs + 2) / 3, (pairs + 1) / 3, pairs / 3, 0});
    }
    for (const auto& [suffix, value] : KeysOfState(shape_))
      writer_.Add(fmt::format("{}.{}", arch, suffix), value);
    for (const auto& [suffix, value] : KeysOfExperts(shape_))
      writer_.Add(fmt::format("{}.{}", arch, suffix), value);
    for (const auto& [suffix, value] : KeysOfInputs(shape_))
      writer_.Add(fmt::format("{}.{}", arch, suffix), value);
    if (family.long_rope) writer_.Add(key("rope.scaling.attn_factor"), kLongRopeMagnitude);
  }

  // A number, or an array where layers differ.
  void AddOfLayers(const std::string& key, size_t LayerSizes::*size) {
    std::vector<int32_t> values;
    for (const LayerSizes& block : shape_.Blocks())
      values.push_back(static_cast<int32_t>(block.*size));
    if (std::ranges::count(values, values[0]) == std::ssize(values)) {
      writer_.Add(key, static_cast<uint32_t>(values[0]));
    } else {
      writer_.Add(key, values);
    }
  }

  void AddTokenizer() {
    const Vocabulary vocabulary(shape_.vocab);
    writer_.Add("tokenizer.ggml.model", "llama");
    writer_.Add("tokenizer.ggml.pre", "default");
    writer_.Add("tokenizer.ggml.tokens", vocabulary.tokens);
    writer_.Add("tokenizer.ggml.scores", vocabulary.scores);
    writer_.Add("tokenizer.ggml.token_type", vocabulary.types);
    writer_.Add("tokenizer.ggml.unknown_token_id", uint32_t{0});
    writer_.Add("tokenizer.ggml.bos_token_id", uint32_t{1});
    writer_.Add("tokenizer.ggml.eos_token_id", uint32_t{2});
    writer_.Add("tokenizer.ggml.add_bos_token", true);
    writer_.Add("tokenizer.ggml.add_eos_token", false);
  }

  void AddTensors() {
    const Family& family = FamilyOf(shape_.architecture);
    const ModelConfig config = ConfigOfShape(shape_, options_.name, options_.type);
    AddMatrix(kEmbeddingTensor, config.types.embedding, config.vocab, config.dim);
    AddNorm(OutputNormTensor(config), 1, config.dim);
    if (!config.tied_embeddings)
      AddMatrix(kHeadTensor, config.types.head, config.vocab, config.dim);
    if (config.input_size != 0) {
      AddMatrix(kInputEmbeddingTensor, config.types.input_embedding, config.vocab,
                config.all_inputs());
      AddMatrix(kInputMatrixTensor, config.types.input_matrix, config.all_inputs(), config.dim);
      AddNorm(kInputNormTensor, 1, config.input_size);
    }
    const auto with_factors = std::ranges::find_if(
        config.kinds, [](const LayerSpec& kind) { return !kind.rotary.freq_factors.empty(); });
    const RotarySpec rotary =
        with_factors == config.kinds.end() ? RotarySpec() : with_factors->rotary;
    if (!rotary.long_factors.empty()) {
      writer_.AddVector(kShortRopeFactorsTensor, rotary.freq_factors);
      writer_.AddVector(kLongRopeFactorsTensor, rotary.long_factors);
    } else if (!rotary.freq_factors.empty()) {
      writer_.AddVector(kRopeFactorsTensor, rotary.freq_factors);
    }
    for (size_t layer = 0; layer < config.layers; ++layer) {
      for (const TensorSpec& tensor : config.layer(layer).tensors) {
        // Written with the first part, or as another's.
        if ((tensor.of != 0 && tensor.first != 0) || tensor.shared) continue;
        const std::string name = config.TensorName(layer, tensor, 0);
        switch (tensor.kind) {
          case TensorKind::kMatrix:
            AddMatrix(name, config.TypeOf(layer, tensor.role),
                      tensor.of != 0 ? tensor.of : tensor.rows, tensor.cols,
                      MatricesOf(config.layer(layer), tensor));
            break;
          case TensorKind::kNorm:
            AddNorm(name, tensor.rows, tensor.cols,
                    tensor.role == TensorRole::kQNorm ? family.sample.query_norm : 1.0f);
            break;
          case TensorKind::kBias:
            AddBias(name, tensor.rows, tensor.of != 0 ? tensor.of : tensor.cols,
                    tensor.role == TensorRole::kQBias || tensor.role == TensorRole::kKBias);
            break;
          case TensorKind::kTable:
            AddTable(name, tensor, config.layer(layer).experts.beside_ffn);
            break;
        }
      }
    }
  }

  // Experts' matrices, and those of heads, have a third dimension.
  static size_t MatricesOf(const LayerSpec& layer, const TensorSpec& tensor) {
    if (tensor.role == TensorRole::kKeyUp || tensor.role == TensorRole::kValueUp)
      return layer.sizes.heads;
    return tensor.suffix.ends_with("_exps.weight") ? layer.experts.count : 1;
  }

  void AddMatrix(const std::string& name, TensorType type, size_t rows, size_t cols,
                 size_t matrices = 1) {
    const float deviation = options_.standard_deviation > 0.0f
                                ? options_.standard_deviation
                                : 1.0f / std::sqrt(static_cast<float>(cols));
    sources_.push_back(
        {&table_, QuantsOf(type), HashText(options_.seed, name), type, cols, deviation});
    writer_.AddTensor(name, type, rows, cols, &Fill, &sources_.back(), matrices);
  }

  const QuantBlocks* QuantsOf(TensorType type) {
    switch (type) {
      case TensorType::kF32:
      case TensorType::kF16:
      case TensorType::kBF16:
      case TensorType::kQ8_0:
        return nullptr;
      default:
        return &quants_.try_emplace(type, type).first->second;
    }
  }

  static void Fill(void* context, size_t row0, size_t n, void* dst) {
    const Source& source = *static_cast<const Source*>(context);
    const uint64_t first = row0 * source.cols;
    const size_t count = n * source.cols;
    if (source.quants != nullptr) {
      const size_t elements = LayoutOfGgufType(static_cast<uint32_t>(source.type)).elements;
      source.quants->Fill(source.key, first / elements, count / elements, source.deviation,
                          static_cast<char*>(dst));
    } else if (source.type == TensorType::kQ8_0) {
      source.table->FillQ8_0(source.key, first / kBlock, count / kBlock, source.deviation,
                             static_cast<Q8Block*>(dst));
    } else if (source.type == TensorType::kF32) {
      source.table->FillF32(source.key, first, count, source.deviation, static_cast<float*>(dst));
    } else {
      std::vector<float> values(count);
      source.table->FillF32(source.key, first, count, source.deviation, values.data());
      auto* out = static_cast<uint16_t*>(dst);
      if (source.type == TensorType::kF16) {
        F32ToF16(values, out);
      } else {
        std::ranges::transform(values, out, F32ToBf16);
      }
    }
  }

  void AddNorm(const std::string& name, size_t rows, size_t cols, float around = 1.0f) {
    std::vector<float> values(rows * cols);
    const uint64_t key = HashText(options_.seed, name);
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = around * (1.0f + kNormSpread * UniformOf(HashBits(key, i)));
    }
    writer_.AddVector(name, std::move(values), rows);
  }

  void AddBias(const std::string& name, size_t rows, size_t cols, bool outliers) {
    std::vector<float> values(rows * cols);
    const uint64_t key = HashText(options_.seed, name);
    table_.FillF32(key, 0, values.size(), kBiasDeviation, values.data());
    for (size_t i = 0; outliers && i < values.size(); ++i) {
      if (HashBits(key, i) % kOutliers == 0) values[i] *= kOutlier;
    }
    writer_.AddVector(name, std::move(values), rows);
  }

  // Decays are below 0, and so that heads forget at rates that are far apart. Experts are chosen by
  // margins that roundings seldom turn.
  void AddTable(const std::string& name, const TensorSpec& tensor, bool beside_ffn) {
    std::vector<float> values(tensor.rows * tensor.cols);
    const uint64_t key = HashText(options_.seed, name);
    float deviation = 0.5f;
    if (tensor.role == TensorRole::kRouter || tensor.role == TensorRole::kSharedRouter)
      deviation = 2.0f / std::sqrt(static_cast<float>(tensor.cols));
    if (beside_ffn && tensor.role == TensorRole::kRouter) deviation = 2.0f;  // of x / sqrt(cols)
    if (tensor.role == TensorRole::kRouterBias) deviation = 0.05f;
    if (tensor.role == TensorRole::kSinks) deviation = 2.0f;
    table_.FillF32(key, 0, values.size(), deviation, values.data());
    if (tensor.role == TensorRole::kGroupNorm || tensor.role == TensorRole::kExpertScale) {
      for (float& value : values) value += 1.0f;
    }
    if (tensor.role == TensorRole::kDecay) {
      for (float& value : values) value = -0.1f * std::exp(4.0f * value);
    }
    writer_.AddVector(name, std::move(values), tensor.rows);
  }

  const SynthOptions& options_;
  const ModelShape& shape_;
  NormalTable table_;
  std::map<TensorType, QuantBlocks> quants_;  // those that a matrix has, by reference from sources_
  std::deque<Source> sources_;  // a deque, because the writer keeps pointers to its elements
  GgufWriter writer_;
};

}  // namespace

void WriteSynth(const SynthOptions& options, const std::string& path,
                const WriteProgress& progress) {
  Check(options.shape);
  Synthesis(options).Write(path, progress);
}

}  // namespace larder::model::synth
