#include "model/config/split.h"

#include <algorithm>
#include <deque>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/fnv.h"
#include "model/config/description.h"
#include "model/gguf/gguf_impl.h"

namespace larder::model::inline config {
namespace {

constexpr std::string_view kPrefix = "larder.split.";
constexpr const char *kPart = "larder.split.part", *kIndex = "larder.split.index",
                     *kCount = "larder.split.count", *kFirst = "larder.split.first_layer",
                     *kLayers = "larder.split.layers", *kVocab = "larder.split.vocab",
                     *kTied = "larder.split.tied", *kQkvBias = "larder.split.qkv_bias",
                     *kFingerprint = "larder.split.fingerprint", *kTypes = "larder.split.types",
                     *kDescription = "larder.split.description",
                     *kInputTypes = "larder.split.input_types",  // missing: Q8_0
                         *kForms = "larder.split.forms";         // missing: none of them
// What kForms lists of TensorForms; qkv_bias has a key of its own.
constexpr std::pair<std::string_view, bool TensorForms::*> kFormNames[] = {
    {"o_bias", &TensorForms::o_bias},
    {"gate_up_bias", &TensorForms::gate_up_bias},
    {"down_bias", &TensorForms::down_bias},
    {"fused_qkv", &TensorForms::fused_qkv},
    {"fused_gate_up", &TensorForms::fused_gate_up},
    {"fused_experts", &TensorForms::fused_experts},
    {"experts_apart", &TensorForms::experts_apart},
    {"fused_rates", &TensorForms::fused_rates},
    {"fused_state", &TensorForms::fused_state},
    {"value_is_key", &TensorForms::value_is_key},
    {"qk_norm", &TensorForms::qk_norm},
    {"router_bias", &TensorForms::router_bias},
    {"shared_gate", &TensorForms::shared_gate},
    {"group_norm", &TensorForms::group_norm},
    {"bare_ffn_norm", &TensorForms::bare_ffn_norm}};
// Rows per tensor: about 35 MB in all of a 3B model, read at the start.
constexpr size_t kFingerprintRows = 16;
constexpr uint64_t kMaxStages = 1024;

size_t Count(const GgufFile& file, const char* key, uint64_t low, uint64_t high) {
  const uint64_t value = file.GetUnsigned(key);
  if (value < low || value > high)
    throw Error("{}: key '{}' is {}, expected {} to {}", file.path(), key, value, low, high);
  return value;
}

bool Flag(const GgufFile& file, const char* key) {
  const auto value = file.FindBool(key);
  if (!value) throw Error("{}: key '{}' is missing, expected with '{}'", file.path(), key, kPart);
  return *value;
}

bool IsRopeFactors(const std::string& name) {
  return name == kRopeFactorsTensor || name == kShortRopeFactorsTensor ||
         name == kLongRopeFactorsTensor;
}

// Whether a layer without Mamba-2, whose tensors have one form, has that role in that tensor.
bool HasSuffix(const ModelConfig& config, TensorRole role, std::string_view suffix) {
  return config.Sum([&](const LayerSpec& of) {
    const TensorSpec* const tensor = of.Find(role);
    return size_t{tensor != nullptr && tensor->suffix == suffix &&
                  of.recurrence.kind != StateKind::kMamba2};
  }) != 0;
}

// Which optional tensors the layers have, and in which form.
TensorForms FormsOf(const ModelConfig& config) {
  const LayerSpec& layer = config.FirstWithAttention();
  return {.qkv_bias = layer.Has(TensorRole::kQBias),
          .o_bias = layer.Has(TensorRole::kOBias),
          .gate_up_bias = layer.Has(TensorRole::kUpBias),
          .down_bias = layer.Has(TensorRole::kDownBias),
          .fused_qkv = layer.tensor(TensorRole::kQ).of != 0,
          .fused_gate_up = HasSuffix(config, TensorRole::kGate, SuffixOf(TensorRole::kUp)),
          .fused_experts = HasSuffix(config, TensorRole::kGate, "ffn_gate_up_exps.weight"),
          .fused_rates = HasSuffix(config, TensorRole::kBeta, "ssm_ba.weight"),
          .fused_state = HasSuffix(config, TensorRole::kOutputGate, "ssm_in.weight"),
          .experts_apart = HasSuffix(config, TensorRole::kGate, "ffn_gate.*.weight"),
          .value_is_key = config.Sum([](const LayerSpec& of) {
            return size_t{of.Has(TensorRole::kV) && of.tensor(TensorRole::kV).shared};
          }) != 0,
          .qk_norm = FamilyOf(config.architecture_name).qk_norm_where_in_file &&
                     layer.qk_norm != QkNorm::kNone,
          .router_bias = config.Sum([](const LayerSpec& of) {
            return size_t{of.Has(TensorRole::kRouterBias)};
          }) != 0,
          .shared_gate = config.Sum([](const LayerSpec& of) {
            return size_t{of.Has(TensorRole::kSharedRouter)};
          }) != 0,
          .group_norm = config.Sum([](const LayerSpec& of) {
            return size_t{of.Has(TensorRole::kGroupNorm)};
          }) != 0,
          .bare_ffn_norm = layer.Has(TensorRole::kFfnNorm) &&
                           layer.tensor(TensorRole::kFfnNorm).suffix == "ffn_norm"};
}

std::vector<std::string> NamesOf(const TensorForms& forms) {
  std::vector<std::string> names;
  for (const auto& [name, form] : kFormNames)
    if (forms.*form) names.emplace_back(name);
  return names;
}

TensorForms ReadForms(const GgufFile& file) {
  TensorForms forms{.qkv_bias = Flag(file, kQkvBias)};
  const auto names = file.FindStrings(kForms);
  for (const std::string_view listed : names.value_or(std::vector<std::string_view>())) {
    const auto* const known =
        std::ranges::find(kFormNames, listed, [](const auto& of) { return of.first; });
    if (known == std::end(kFormNames))
      throw Error("{}: key '{}' has {}: split the model again", file.path(), kForms,
                  Quoted(listed));
    forms.*(known->second) = true;
  }
  return forms;
}

// blk.N.* of the stage's layers, and the tensor outside layers that every stage needs.
bool OfStage(const std::string& name, const ModelConfig& config, const SplitStage& stage) {
  if (IsRopeFactors(name)) return true;
  for (size_t layer = stage.first_layer; layer < stage.first_layer + stage.layers; ++layer) {
    const LayerSpec& spec = config.kinds[config.kind_of[layer]];
    const size_t first = config.BlockOf(layer);
    const size_t last = first + (spec.has_ffn() ? spec.tensor(TensorRole::kDown).block : 0);
    for (size_t block = first; block <= last; ++block)
      if (name.starts_with(LayerTensor(block, ""))) return true;
  }
  return false;
}

bool OfServing(const std::string& name, const ModelConfig& config) {
  return name == kEmbeddingTensor || name == OutputNormTensor(config) || name == kHeadTensor ||
         name == kInputEmbeddingTensor || name == kInputMatrixTensor || name == kInputNormTensor ||
         IsRopeFactors(name);
}

// The whole model's types, which each part's Plan counts with: embedding, head, then layer by layer
// in the order of TensorRole.
std::vector<int32_t> NumbersOf(const ModelConfig& config) {
  const TensorTypes& types = config.types;
  const bool more = std::ranges::any_of(config.kinds, [](const LayerSpec& kind) {
    return std::ranges::any_of(kind.tensors, [](const TensorSpec& tensor) {
      return tensor.kind == TensorKind::kMatrix && static_cast<size_t>(tensor.role) >= kOldRoles;
    });
  });
  std::vector<int32_t> numbers = {static_cast<int32_t>(types.embedding),
                                  static_cast<int32_t>(types.head)};
  for (const TensorTypes::OfLayer& layer : types.layers) {
    for (size_t role = 0; role < (more ? kTensorRoles : kOldRoles); ++role)
      numbers.push_back(static_cast<int32_t>(layer[role]));
  }
  return numbers;
}

TensorTypes ReadTypes(const GgufFile& file, size_t layers) {
  const auto numbers = file.FindInts(kTypes);
  // Of a layer; an earlier version of larder may have written fewer.
  const size_t roles = numbers && numbers->size() > 2 ? (numbers->size() - 2) / layers : 0;
  if (roles < kOldRoles || roles > kTensorRoles || numbers->size() != 2 + layers * roles) {
    throw Error(
        "{}: key '{}' has {} numbers, expected 2 + {} layers x {} to {}: split the model again",
        file.path(), kTypes, numbers ? numbers->size() : 0, layers, kOldRoles, kTensorRoles);
  }
  const auto type_of = [&](const char* key, int32_t number) {
    if (number < 0 || !IsReadableType(static_cast<uint32_t>(number)))
      throw Error("{}: key '{}' has type {}, expected {}", file.path(), key, number,
                  kReadableTypes);
    return static_cast<TensorType>(number);
  };
  size_t next = 0;
  const auto take = [&] { return type_of(kTypes, (*numbers)[next++]); };
  TensorTypes types;
  if (const auto of_inputs = file.FindInts(kInputTypes)) {
    if (of_inputs->size() != 2) {
      throw Error("{}: key '{}' has {} numbers, expected 2: split the model again", file.path(),
                  kInputTypes, of_inputs->size());
    }
    types.input_embedding = type_of(kInputTypes, (*of_inputs)[0]);
    types.input_matrix = type_of(kInputTypes, (*of_inputs)[1]);
  }
  types.embedding = take();
  types.head = take();
  types.layers.resize(layers);
  for (TensorTypes::OfLayer& layer : types.layers) {
    layer.fill(TensorType::kQ8_0);
    for (size_t role = 0; role < roles; ++role) layer[role] = take();
  }
  return types;
}

struct Source {
  const GgufFile* file;
  const TensorInfo* tensor;
};
void Copy(void* context, size_t row0, size_t n, void* dst) {
  const Source& source = *static_cast<const Source*>(context);
  source.file->ReadRows(*source.tensor, row0, n, dst);
}

template <typename Wanted>
void WritePart(const GgufFile& file, const ModelConfig& config, const ModelPart& part,
               uint64_t fingerprint, const std::string& path, const Wanted& wanted,
               const WriteProgress& progress) {
  GgufWriter writer;
  // Skips the alignment, because the writer uses GGUF's default, and what gguf-split says of its
  // own parts, because a stage's file is one file.
  for (const GgufFile::Entry& entry : file.entries()) {
    if (entry.key != "general.alignment" && !IsPartsKey(entry.key)) writer.Copy(file, entry);
  }
  const auto u32 = [](size_t value) { return static_cast<uint32_t>(value); };
  writer.Add(kPart, part.kind == ModelPart::Kind::kStage ? "stage" : "serving");
  writer.Add(kIndex, u32(part.index));
  writer.Add(kCount, u32(part.count));
  writer.Add(kFirst, u32(part.first_layer));
  writer.Add(kLayers, u32(part.layers));
  writer.Add(kVocab, u32(config.vocab));
  writer.Add(kTied, config.tied_embeddings);
  const TensorForms forms = FormsOf(config);
  writer.Add(kQkvBias, forms.qkv_bias);
  if (const auto names = NamesOf(forms); !names.empty()) writer.Add(kForms, names);
  writer.Add(kFingerprint, fingerprint);
  writer.Add(kTypes, NumbersOf(config));
  if (config.input_size != 0) {
    writer.Add(kInputTypes, std::vector<int32_t>{static_cast<int32_t>(config.types.input_embedding),
                                                 static_cast<int32_t>(config.types.input_matrix)});
  }
  writer.Add(kDescription, DescriptionOf(config));
  std::deque<Source> sources;  // a deque, because the writer keeps pointers to its elements
  for (const TensorInfo& tensor : file.tensors()) {
    if (!wanted(tensor.name) || !IsReadableType(tensor.gguf_type)) continue;
    sources.push_back({&file, &tensor});
    writer.AddTensor(tensor.name, tensor.type, tensor.rows, tensor.cols, &Copy, &sources.back(),
                     tensor.matrices);
  }
  writer.Write(path, progress);
}

}  // namespace

std::optional<ModelPart> ReadPart(const GgufFile& file, size_t layers) {
  if (!file.Has(kPart)) return {};
  ModelPart part;
  const std::string_view kind = file.GetString(kPart);
  if (kind != "stage" && kind != "serving")
    throw Error("{}: key '{}' is {}, expected stage or serving", file.path(), kPart, Quoted(kind));
  part.kind = kind == "stage" ? ModelPart::Kind::kStage : ModelPart::Kind::kServing;
  part.count = Count(file, kCount, 1, kMaxStages);
  part.vocab = Count(file, kVocab, 1, kMaxVocab);
  part.tied_embeddings = Flag(file, kTied);
  part.forms = ReadForms(file);
  part.fingerprint = file.GetUnsigned(kFingerprint);
  part.types = ReadTypes(file, layers);
  if (part.kind == ModelPart::Kind::kServing) return part;
  part.index = Count(file, kIndex, 0, part.count - 1);
  part.first_layer = Count(file, kFirst, 0, layers - 1);
  part.layers = Count(file, kLayers, 1, layers - part.first_layer);
  return part;
}

std::string Describe(const ModelPart& part) {
  if (part.kind == ModelPart::Kind::kServing)
    return fmt::format("serving, of {} stages", part.count);
  if (part.kind == ModelPart::Kind::kWhole) return "a whole model";
  return fmt::format("stage {} of {}: layers {}-{}", part.index, part.count, part.first_layer,
                     part.first_layer + part.layers - 1);
}

void CheckIsAsSplit(const GgufFile& file, const ModelConfig& config) {
  if (config.part.kind == ModelPart::Kind::kWhole) return;
  const auto expected = file.FindString(kDescription);
  if (!expected) {
    throw Error(
        "{}: key '{}' is missing: an earlier version of larder wrote it; split the model again",
        file.path(), kDescription);
  }
  const std::string difference =
      DescriptionDifference(DescriptionOf(config), std::string(*expected));
  if (difference.empty()) return;
  throw Error("{}: is part of another model than was split: it has {}; split the model again",
              file.path(), difference);
}

void CheckHolds(const GgufFile& file, const ModelConfig& config, size_t first_layer, size_t layers,
                bool serving) {
  const ModelPart& part = config.part;
  if (part.kind == ModelPart::Kind::kWhole) return;
  if (serving && part.kind != ModelPart::Kind::kServing) {
    throw Error(
        "{}: is {}; expected the serving part, or the whole model, for embedding and lm_head",
        file.path(), Describe(part));
  }
  const bool has = part.kind == ModelPart::Kind::kStage && first_layer >= part.first_layer &&
                   first_layer + layers <= part.first_layer + part.layers;
  if (layers == 0 || has) return;
  throw Error(
      "{}: is {}; expected a file with layers {}-{}: split the model again with the manifest that "
      "is in use",
      file.path(), Describe(part), first_layer, first_layer + layers - 1);
}

uint64_t Fingerprint(const GgufFile& file) {
  if (file.Has(kFingerprint)) return file.GetUnsigned(kFingerprint);
  std::vector<const TensorInfo*> tensors;
  for (const TensorInfo& tensor : file.tensors()) {
    if (IsReadableType(tensor.gguf_type)) tensors.push_back(&tensor);
  }
  std::ranges::sort(tensors, {},
                    [](const TensorInfo* tensor) -> const std::string& { return tensor->name; });
  uint64_t hash = kFnvStart;
  std::string row;
  for (const TensorInfo* tensor : tensors) {
    hash = Fnv1a(
        fmt::format("{}:{}:{}:{};", tensor->name, tensor->gguf_type, tensor->rows, tensor->cols),
        hash);
    row.resize(RowBytes(tensor->type, tensor->cols));
    // Rows from the first to the last, evenly spread; all rows of a short tensor.
    const size_t rows = std::min(tensor->rows, kFingerprintRows);
    for (size_t i = 0; i < rows; ++i) {
      file.ReadRows(*tensor, rows == 1 ? 0 : i * (tensor->rows - 1) / (rows - 1), 1, row.data());
      hash = Fnv1a(row, hash);
    }
  }
  return hash;
}

void WriteSplit(const GgufFile& file, const std::vector<SplitStage>& stages,
                const std::string& serving_path, const WriteProgress& progress) {
  const ModelConfig config = ReadModelConfig(file);
  if (config.part.kind != ModelPart::Kind::kWhole)
    throw Error("{}: is {} already; expected a whole model", file.path(), Describe(config.part));
  for (const GgufFile::Entry& entry : file.entries()) {
    if (entry.key.starts_with(kPrefix))
      throw Error("{}: key {}: a whole model has no keys {}*", file.path(), Quoted(entry.key),
                  kPrefix);
  }
  size_t next = 0;
  for (const SplitStage& stage : stages) {
    LARDER_CHECK(stage.first_layer == next && stage.layers > 0, "stages out of order");
    next += stage.layers;
  }
  LARDER_CHECK(next == config.layers, "stages have {} of {} layers", next, config.layers);
  const uint64_t fingerprint = Fingerprint(file);
  ModelPart part;
  part.count = stages.size();
  for (size_t i = 0; i < stages.size(); ++i) {
    part.kind = ModelPart::Kind::kStage;
    part.index = i;
    part.first_layer = stages[i].first_layer;
    part.layers = stages[i].layers;
    WritePart(
        file, config, part, fingerprint, stages[i].path,
        [&](const std::string& name) { return OfStage(name, config, stages[i]); }, progress);
  }
  part = {.kind = ModelPart::Kind::kServing, .count = stages.size()};
  WritePart(
      file, config, part, fingerprint, serving_path,
      [&](const std::string& name) { return OfServing(name, config); }, progress);
}

}  // namespace larder::model::config
