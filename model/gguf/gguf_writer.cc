#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/new_file.h"
#include "model/gguf/gguf.h"

namespace larder::model::inline gguf {
namespace {

constexpr size_t kAlignment = 32;       // GGUF's default: no general.alignment key needed
constexpr size_t kFillBytes = 1 << 20;  // bytes that one call of a tensor's Fill makes, at least
                                        // one row

template <typename T>
void Append(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}
void AppendType(std::string& out, GgufValueType type) { Append(out, static_cast<uint32_t>(type)); }
void AppendText(std::string& out, std::string_view text) {
  Append(out, static_cast<uint64_t>(text.size()));
  out += text;
}

}  // namespace

struct GgufWriter::Impl {
  struct Tensor {
    std::string name;
    TensorType type;
    size_t rows, cols;
    Fill fill;
    void* context;
    std::vector<float> values;  // AddVector's
    size_t matrices = 1;
    uint64_t Bytes() const { return rows * RowBytes(type, cols); }
  };
  std::string entries;
  uint64_t entry_count = 0;
  std::vector<Tensor> tensors;

  std::string& NewEntry(std::string_view key) {
    ++entry_count;
    AppendText(entries, key);
    return entries;
  }
  template <typename T>
  void AddScalar(std::string_view key, GgufValueType type, T value) {
    AppendType(NewEntry(key), type);
    Append(entries, value);
  }
  void AddArray(std::string_view key, GgufValueType element, size_t count) {
    AppendType(NewEntry(key), GgufValueType::kArray);
    AppendType(entries, element);
    Append(entries, static_cast<uint64_t>(count));
  }

  std::string Header() const {
    std::string out = "GGUF";
    Append(out, uint32_t{3});
    Append(out, static_cast<uint64_t>(tensors.size()));
    Append(out, entry_count);
    out += entries;
    uint64_t offset = 0;
    for (const Tensor& tensor : tensors) {
      AppendText(out, tensor.name);
      const bool is_vector = tensor.rows == 1;
      Append(out, uint32_t{is_vector ? 1u : tensor.matrices == 1 ? 2u : 3u});
      Append(out, static_cast<uint64_t>(tensor.cols));
      if (!is_vector) Append(out, static_cast<uint64_t>(tensor.rows / tensor.matrices));
      if (tensor.matrices != 1) Append(out, static_cast<uint64_t>(tensor.matrices));
      Append(out, static_cast<uint32_t>(tensor.type));
      Append(out, offset);
      offset = RoundUp(offset + tensor.Bytes(), kAlignment);
    }
    out.resize(RoundUp(out.size(), kAlignment), '\0');
    return out;
  }
};

GgufWriter::GgufWriter() : impl_(std::make_unique<Impl>()) {}
GgufWriter::~GgufWriter() = default;

void GgufWriter::Add(std::string key, uint32_t value) {
  impl_->AddScalar(key, GgufValueType::kU32, value);
}
void GgufWriter::Add(std::string key, uint64_t value) {
  impl_->AddScalar(key, GgufValueType::kU64, value);
}
void GgufWriter::Add(std::string key, float value) {
  impl_->AddScalar(key, GgufValueType::kF32, value);
}
void GgufWriter::Add(std::string key, bool value) {
  impl_->AddScalar(key, GgufValueType::kBool, static_cast<uint8_t>(value));
}
void GgufWriter::Add(std::string key, std::string value) {
  AppendType(impl_->NewEntry(key), GgufValueType::kString);
  AppendText(impl_->entries, value);
}
void GgufWriter::Add(std::string key, const char* value) {
  Add(std::move(key), std::string(value));
}
void GgufWriter::Add(std::string key, const std::vector<std::string>& values) {
  impl_->AddArray(key, GgufValueType::kString, values.size());
  for (const std::string& value : values) AppendText(impl_->entries, value);
}
void GgufWriter::Add(std::string key, const std::vector<int32_t>& values) {
  impl_->AddArray(key, GgufValueType::kI32, values.size());
  for (const int32_t value : values) Append(impl_->entries, value);
}
void GgufWriter::Add(std::string key, const std::vector<float>& values) {
  impl_->AddArray(key, GgufValueType::kF32, values.size());
  for (const float value : values) Append(impl_->entries, value);
}

void GgufWriter::Copy(const GgufFile& file, const GgufFile::Entry& entry) {
  impl_->NewEntry(entry.key) += file.RawValue(entry);
}

void GgufWriter::AddTensor(std::string name, TensorType type, size_t rows, size_t cols, Fill fill,
                           void* context, size_t matrices) {
  LARDER_CHECK(rows > 0 && cols > 0 && rows % matrices == 0 && fill != nullptr, "tensor {}", name);
  RowBytes(type, cols);  // checks that rows are whole blocks
  impl_->tensors.push_back({std::move(name), type, rows, cols, fill, context, {}, matrices});
}

void GgufWriter::AddVector(std::string name, std::vector<float> values, size_t rows) {
  LARDER_CHECK(!values.empty() && values.size() % rows == 0, "tensor {}", name);
  const size_t cols = values.size() / rows;
  impl_->tensors.push_back(
      {std::move(name), TensorType::kF32, rows, cols, nullptr, nullptr, std::move(values)});
}

void GgufWriter::Write(const std::string& path, const WriteProgress& progress) const {
  uint64_t all_bytes = 0, done_bytes = 0;
  for (const Impl::Tensor& tensor : impl_->tensors)
    all_bytes += RoundUp(tensor.Bytes(), kAlignment);
  NewFile file(path);
  const std::string header = impl_->Header();
  file.Write(header.data(), header.size());
  std::vector<char> chunk;
  for (const Impl::Tensor& tensor : impl_->tensors) {
    const size_t row_bytes = RowBytes(tensor.type, tensor.cols);
    const size_t chunk_rows = std::clamp<size_t>(kFillBytes / row_bytes, 1, tensor.rows);
    for (size_t row0 = 0; row0 < tensor.rows; row0 += chunk_rows) {
      const size_t rows = std::min(chunk_rows, tensor.rows - row0);
      chunk.resize(rows * row_bytes);
      if (tensor.fill != nullptr) {
        tensor.fill(tensor.context, row0, rows, chunk.data());
      } else {
        std::memcpy(chunk.data(), tensor.values.data(), chunk.size());
      }
      if (row0 + rows == tensor.rows) {  // pad the tensor's end
        const uint64_t bytes = tensor.Bytes();
        chunk.resize(chunk.size() + RoundUp(bytes, kAlignment) - bytes, '\0');
      }
      file.Write(chunk.data(), chunk.size());
      done_bytes += chunk.size();
      if (progress) progress(done_bytes, all_bytes);
    }
  }
  file.Commit();
}

}  // namespace larder::model::gguf
