// Test support: models whose matrices have a mixture of quantised types. Included by tests only.
#pragma once

#include <deque>
#include <random>
#include <string>

#include "base/temporary_folder_testing.h"
#include "kernels/formats/panel_format.h"
#include "model/gguf/gguf.h"
#include "model/synth/synth.h"

namespace larder::weight_node {

// The model of `options` (whose type is Q8_0) with other types for some matrices: type_of(name), a
// type with a panel format of its own. Their weights are random.
class MixedModel {
 public:
  template <typename TypeOf>
  MixedModel(const model::SynthOptions& options, TypeOf type_of) {
    model::WriteSynth(options, folder_ / "model.gguf");
    const auto from = model::GgufFile::Open(folder_ / "model.gguf");
    model::GgufWriter writer;
    for (const model::GgufFile::Entry& entry : from->entries())
      if (entry.key != "general.alignment") writer.Copy(*from, entry);
    std::deque<Source> sources;  // the writer keeps pointers to its elements
    std::minstd_rand random(1);
    for (const model::TensorInfo& tensor : from->tensors()) {
      const model::TensorType type =
          tensor.type == model::TensorType::kQ8_0 ? type_of(tensor.name) : tensor.type;
      sources.push_back({from.get(), &tensor, type, &random});
      writer.AddTensor(tensor.name, type, tensor.rows, tensor.cols, &Rows, &sources.back());
    }
    writer.Write(folder_ / "mixed.gguf");
    file_ = model::GgufFile::Open(folder_ / "mixed.gguf");
  }
  const std::shared_ptr<const model::GgufFile>& file() const { return file_; }

 private:
  struct Source {
    const model::GgufFile* from;
    const model::TensorInfo* tensor;
    model::TensorType type;
    std::minstd_rand* random;
  };
  static void Rows(void* context, size_t row0, size_t n, void* dst) {
    const Source& source = *static_cast<const Source*>(context);
    if (source.type == source.tensor->type)
      return source.from->ReadRows(*source.tensor, row0, n, dst);
    const kernels::PanelShape row{source.tensor->cols / kernels::kBlock,
                                  kernels::PanelFormatOf(source.type)};
    for (size_t r = 0; r < n; ++r)
      kernels::FillRandomRow(row, *source.random, static_cast<uint8_t*>(dst) + r * row.row_bytes());
  }

  TemporaryFolder folder_;
  std::shared_ptr<const model::GgufFile> file_;
};

// Names of matrices and their types, as quantisers mix them: layer 0 has other types than the
// others, value heads other types than query heads, gate another than up in layer 1.
inline model::TensorType MixedType(const std::string& name) {
  using model::TensorType;
  const bool first = name.starts_with("blk.0.");
  if (name == "output.weight") return TensorType::kQ8_0;
  if (name == "token_embd.weight") return TensorType::kIQ4_NL;
  if (name.find("attn_v") != std::string::npos)
    return first ? TensorType::kQ6_K : TensorType::kQ4_0;
  if (name.find("attn_k") != std::string::npos)
    return first ? TensorType::kQ4_K : TensorType::kIQ4_NL;
  if (name.find("ffn_up") != std::string::npos)
    return first ? TensorType::kQ4_K : TensorType::kQ4_0;
  if (name.find("ffn_down") != std::string::npos)
    return first ? TensorType::kQ6_K : TensorType::kQ5_K;
  if (name.find("attn_output") != std::string::npos)
    return first ? TensorType::kMXFP4 : TensorType::kIQ4_XS;
  return TensorType::kQ4_K;
}

// A shape whose rows are whole super-blocks.
inline model::SynthOptions MixedShape() {
  model::SynthOptions options;
  options.shape = {.architecture = "llama",
                   .layers = 2,
                   .dim = 256,
                   .ffn = 512,
                   .heads = 8,
                   .kv_heads = 2,
                   .head_size = 32,
                   .vocab = 300,
                   .context = 1024};
  return options;
}

}  // namespace larder::weight_node
