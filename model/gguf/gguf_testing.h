// Test support: GGUF files that are put together part by part, so that each part can be made wrong,
// and temporary files. Included by tests only.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/memory.h"
#include "model/gguf/gguf.h"

namespace larder::model::inline gguf::testing {

// A path that is unique to this process; the destructor removes the file.
class TempFile {
 public:
  TempFile() {
    static int count = 0;
    path_ = fmt::format("{}/larder_model_test_{}_{}.gguf", P_tmpdir, ::getpid(), count++);
  }
  explicit TempFile(std::string_view bytes) : TempFile() {
    std::ofstream(path_, std::ios::binary)
        .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }
  TempFile(const TempFile&) = delete;
  TempFile& operator=(const TempFile&) = delete;
  ~TempFile() { std::remove(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

template <typename T>
std::string Raw(T value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof value);
}
inline std::string RawText(std::string_view text) {
  return Raw(uint64_t{text.size()}) + std::string(text);
}
inline std::string RawArray(GgufValueType element, uint64_t count, const std::string& values) {
  return Raw(static_cast<uint32_t>(element)) + Raw(count) + values;
}

struct RawGguf {
  struct Key {
    std::string name;
    uint32_t type = 0;
    std::string value;
  };
  struct Tensor {
    std::string name;
    std::vector<uint64_t> dims;
    uint32_t type = 0;
    uint64_t offset = 0;
    std::optional<uint32_t> said_dims;  // the count written to the file, if it is to be wrong
  };
  std::string magic = "GGUF";
  uint32_t version = 3;
  std::optional<uint64_t> tensor_count, key_count;  // the counts written to the file, if they are
                                                    // to be wrong
  std::vector<Key> keys;
  std::vector<Tensor> tensors;
  std::string data;
  size_t alignment = 32;

  std::string Bytes() const {
    std::string out = magic + Raw(version) + Raw(tensor_count.value_or(tensors.size())) +
                      Raw(key_count.value_or(keys.size()));
    for (const Key& key : keys) out += RawText(key.name) + Raw(key.type) + key.value;
    for (const Tensor& tensor : tensors) {
      out += RawText(tensor.name) +
             Raw(tensor.said_dims.value_or(static_cast<uint32_t>(tensor.dims.size())));
      for (const uint64_t dim : tensor.dims) out += Raw(dim);
      out += Raw(tensor.type) + Raw(tensor.offset);
    }
    out.resize(RoundUp(out.size(), alignment), '\0');
    return out + data;
  }

  void Set(std::string_view name, GgufValueType type, std::string value) {
    const auto it = std::ranges::find(keys, name, &Key::name);
    Key& key = it != keys.end() ? *it : keys.emplace_back();
    key = {std::string(name), static_cast<uint32_t>(type), std::move(value)};
  }
  void SetU32(std::string_view name, uint32_t value) { Set(name, GgufValueType::kU32, Raw(value)); }
  void SetF32(std::string_view name, float value) { Set(name, GgufValueType::kF32, Raw(value)); }
  void SetText(std::string_view name, std::string_view value) {
    Set(name, GgufValueType::kString, RawText(value));
  }
  void EraseKey(std::string_view name) {
    std::erase_if(keys, [&](const Key& key) { return key.name == name; });
  }

  // Adds a tensor at the end of the data, which is `bytes` padded to the alignment.
  void AddTensor(std::string_view name, std::vector<uint64_t> dims, uint32_t type,
                 std::string bytes) {
    tensors.push_back({std::string(name), std::move(dims), type, data.size(), {}});
    data += bytes;
    data.resize(RoundUp(data.size(), alignment), '\0');
  }
  void AddF32(std::string_view name, std::vector<uint64_t> dims, float value = 0.5f) {
    uint64_t n = 1;
    for (const uint64_t dim : dims) n *= dim;
    std::string bytes;
    for (uint64_t i = 0; i < n; ++i) bytes += Raw(value);
    AddTensor(name, std::move(dims), 0, bytes);
  }
  Tensor& Find(std::string_view name) {
    const auto it = std::ranges::find(tensors, name, &Tensor::name);
    LARDER_CHECK(it != tensors.end(), "no tensor {}", name);
    return *it;
  }
  void EraseTensor(std::string_view name) {
    std::erase_if(tensors, [&](const Tensor& tensor) { return tensor.name == name; });
  }
  // Rows [first, first + rows) of a tensor.
  struct Rows {
    std::string tensor;
    uint64_t first, rows;
  };
  // Takes rows out of their tensors, which go, into a new one: of each of `groups` equal parts of
  // them those of the first, then those of the next.
  void MergeRows(const std::string& name, const std::vector<Rows>& all, uint64_t groups) {
    std::string bytes;
    uint64_t rows = 0;
    const Tensor like = Find(all.front().tensor);
    const size_t row_bytes = RowBytes(static_cast<TensorType>(like.type), like.dims[0]);
    for (uint64_t group = 0; group < groups; ++group) {
      for (const Rows& of : all) {
        const uint64_t n = of.rows / groups;
        bytes +=
            data.substr(Find(of.tensor).offset + (of.first + group * n) * row_bytes, n * row_bytes);
        rows += n;
      }
    }
    for (const Rows& of : all) EraseTensor(of.tensor);
    AddTensor(name, {like.dims[0], rows}, like.type, bytes);
  }
  // Takes each `rows` rows of a tensor, which goes, into one of their own, whose name has their
  // number in the place of '*'.
  void CutRows(const std::string& tensor, const std::string& name, uint64_t rows) {
    const Tensor all = Find(tensor);
    const size_t bytes = rows * RowBytes(static_cast<TensorType>(all.type), all.dims[0]);
    EraseTensor(tensor);
    for (uint64_t i = 0; i < all.dims[1] / rows; ++i) {
      std::string own = name;
      own.replace(own.find('*'), 1, std::to_string(i));
      AddTensor(own, {all.dims[0], rows}, all.type, data.substr(all.offset + i * bytes, bytes));
    }
  }
  // Overwrites the data of a tensor with `bytes`, from byte `at` on.
  void Patch(std::string_view tensor, size_t at, const std::string& bytes) {
    data.replace(Find(tensor).offset + at, bytes.size(), bytes);
  }
};

// The contents of an open file, to be changed and written again.
inline RawGguf RawOf(const GgufFile& file) {
  RawGguf raw;
  for (const GgufFile::Entry& entry : file.entries()) {  // the value's bytes begin with its type
    if (entry.key == "general.alignment") continue;
    raw.Set(entry.key, entry.type, std::string(file.RawValue(entry).substr(4)));
  }
  for (const TensorInfo& tensor : file.tensors()) {
    std::string bytes(tensor.size_bytes, '\0');
    file.ReadRows(tensor, 0, tensor.rows, bytes.data());
    std::vector<uint64_t> dims = {tensor.cols};
    if (tensor.rows > 1) dims.push_back(tensor.rows);
    raw.AddTensor(tensor.name, std::move(dims), tensor.gguf_type, std::move(bytes));
  }
  return raw;
}

// The model in parts as llama.cpp's gguf-split makes them: all keys are in the first, part i has
// counts[i] tensors.
inline std::vector<RawGguf> PartsOf(const RawGguf& model, const std::vector<size_t>& counts) {
  std::vector<RawGguf> parts(counts.size());
  parts.front().keys = model.keys;
  size_t next = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    RawGguf& part = parts[i];
    part.alignment = model.alignment;
    part.Set("split.no", GgufValueType::kU16, Raw(static_cast<uint16_t>(i)));
    part.Set("split.count", GgufValueType::kU16, Raw(static_cast<uint16_t>(parts.size())));
    part.Set("split.tensors.count", GgufValueType::kI32,
             Raw(static_cast<int32_t>(model.tensors.size())));
    for (const size_t end = next + counts[i]; next < end; ++next) {
      const RawGguf::Tensor& tensor = model.tensors.at(next);
      const uint64_t data_end =
          next + 1 < model.tensors.size() ? model.tensors[next + 1].offset : model.data.size();
      part.AddTensor(tensor.name, tensor.dims, tensor.type,
                     model.data.substr(tensor.offset, data_end - tensor.offset));
    }
  }
  LARDER_CHECK(next == model.tensors.size(), "parts have {} of {} tensors", next,
               model.tensors.size());
  return parts;
}

// gguf-split's name of part i, from 0: "STEM-00001-of-00003.gguf".
inline std::string PartPath(const std::string& stem, size_t i, size_t count) {
  return fmt::format("{}-{:05}-of-{:05}.gguf", stem, i + 1, count);
}

// Writes the parts and returns the first one's path. Empty parts of the vector are left out.
inline std::string WriteParts(const std::string& stem, const std::vector<std::string>& parts) {
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].empty()) continue;
    std::ofstream(PartPath(stem, i, parts.size()), std::ios::binary)
        .write(parts[i].data(), static_cast<std::streamsize>(parts[i].size()));
  }
  return PartPath(stem, 0, parts.size());
}
inline std::string WriteParts(const std::string& stem, const std::vector<RawGguf>& parts) {
  std::vector<std::string> bytes;
  for (const RawGguf& part : parts) bytes.push_back(part.Bytes());
  return WriteParts(stem, bytes);
}

// A complete model of one layer: dim 4, ffn 32, 2 heads of size 2, 1 KV head, vocabulary 3. It has
// tensors of all four types.
inline RawGguf GoodModel(const std::string& arch = "llama") {
  RawGguf file;
  const auto key = [&](const char* suffix) { return arch + "." + suffix; };
  file.SetText("general.architecture", arch);
  file.SetText("general.name", "good");
  file.SetU32("general.alignment", 32);
  file.SetU32(key("block_count"), 1);
  file.SetU32(key("context_length"), 64);
  file.SetU32(key("embedding_length"), 4);
  file.SetU32(key("feed_forward_length"), 32);
  file.SetU32(key("attention.head_count"), 2);
  file.SetU32(key("attention.head_count_kv"), 1);
  file.SetF32(key("attention.layer_norm_rms_epsilon"), 1e-5f);
  file.SetU32(key("rope.dimension_count"), 2);
  file.SetF32(key("rope.freq_base"), 10000.0f);
  file.Set("tokenizer.ggml.tokens", GgufValueType::kArray,
           RawArray(GgufValueType::kString, 3, RawText("<unk>") + RawText("<s>") + RawText("a")));
  file.Set("tokenizer.ggml.add_bos_token", GgufValueType::kBool, Raw(uint8_t{1}));

  const auto add16 = [&](const char* name, uint64_t rows, uint64_t cols, uint32_t type,
                         uint16_t value) {
    std::string bytes;
    for (uint64_t i = 0; i < rows * cols; ++i) bytes += Raw(value);
    file.AddTensor(name, {cols, rows}, type, bytes);
  };
  constexpr uint16_t kHalfF16 = 0x3800, kHalfBf16 = 0x3f00;  // 0.5
  file.AddF32("token_embd.weight", {4, 3});
  file.AddF32("output_norm.weight", {4});
  file.AddF32("output.weight", {4, 3});
  file.AddF32("blk.0.attn_norm.weight", {4});
  add16("blk.0.attn_q.weight", 4, 4, 1, kHalfF16);
  add16("blk.0.attn_k.weight", 2, 4, 1, kHalfF16);
  add16("blk.0.attn_v.weight", 2, 4, 1, kHalfF16);
  add16("blk.0.attn_output.weight", 4, 4, 1, kHalfF16);
  file.AddF32("blk.0.ffn_norm.weight", {4});
  add16("blk.0.ffn_gate.weight", 32, 4, 30, kHalfBf16);
  add16("blk.0.ffn_up.weight", 32, 4, 30, kHalfBf16);
  std::string blocks;
  for (int row = 0; row < 4; ++row) blocks += Raw(kHalfF16) + std::string(32, '\x01');
  file.AddTensor("blk.0.ffn_down.weight", {32, 4}, 8, blocks);
  if (arch == "qwen2") {
    file.AddF32("blk.0.attn_q.bias", {4});
    file.AddF32("blk.0.attn_k.bias", {2});
    file.AddF32("blk.0.attn_v.bias", {2});
  }
  if (arch == "qwen3") {
    file.AddF32("blk.0.attn_q_norm.weight", {2});
    file.AddF32("blk.0.attn_k_norm.weight", {2});
  }
  return file;
}

}  // namespace larder::model::gguf::testing
