// GgufFile: tensors and their data.
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"
#include "model/gguf/gguf_impl.h"
#include "model/gguf/quants.h"

namespace larder::model::inline gguf {
namespace {

// Bytes that are read and then checked or converted at once; they stay in a core's L2 (1 MB and up)
// meanwhile.
constexpr size_t kChunkBytes = 256 << 10;

size_t RowsPerChunk(size_t row_bytes, size_t rows) {
  return std::clamp<size_t>(kChunkBytes / row_bytes, 1, std::max<size_t>(rows, 1));
}

bool IsFiniteScale(uint16_t d) { return (d & 0x7c00) != 0x7c00; }

bool AllScalesFinite(const Q8Block* blocks, size_t n) {
  uint32_t bad = 0;
  for (size_t i = 0; i < n; ++i) bad |= static_cast<uint32_t>(!IsFiniteScale(blocks[i].d));
  return bad == 0;
}

// `blocks` are the rows from row0 on of `tensor`, row_blocks blocks per row.
void CheckScales(const std::string& path, const TensorInfo& tensor, size_t row0,
                 const Q8Block* blocks, size_t rows, size_t row_blocks) {
  const size_t n = rows * row_blocks;
  if (AllScalesFinite(blocks, n)) return;
  for (size_t i = 0; i < n; ++i) {
    if (IsFiniteScale(blocks[i].d)) continue;
    throw Error(
        "{}: tensor {}: the scale of block {} of row {} is {}, expected a finite number: the file "
        "is damaged or its weights overflow",
        path, Quoted(tensor.name), i % row_blocks, row0 + i / row_blocks,
        (blocks[i].d & 0x3ff) != 0 ? "NaN" : "infinite");
  }
}

// The same for rows of any type, as the file stores them.
void CheckBlockScales(const std::string& path, const TensorInfo& tensor, size_t row0,
                      const char* bytes, size_t rows) {
  const size_t at = FindBadScale(tensor.type, bytes, rows * RowBytes(tensor.type, tensor.cols));
  if (at == SIZE_MAX) return;
  const size_t row_blocks = tensor.cols / LayoutOfGgufType(tensor.gguf_type).elements;
  throw Error(
      "{}: tensor {}: a scale of block {} of row {} is not a finite number: the file is damaged or "
      "its weights overflow",
      path, Quoted(tensor.name), at % row_blocks, row0 + at / row_blocks);
}

void CheckFinite(const std::string& path, const TensorInfo& tensor, size_t row0,
                 std::span<const float> values) {
  if (AllFinite(values)) return;
  for (size_t i = 0; i < values.size(); ++i) {
    if (AllFinite(values.subspan(i, 1))) continue;
    throw Error(
        "{}: tensor {}: the weight at row {}, column {} is {}, expected a finite number: the file "
        "is damaged",
        path, Quoted(tensor.name), row0 + i / tensor.cols, i % tensor.cols,
        values[i] != values[i] ? "NaN" : "infinite");
  }
}

void CheckRange(const TensorInfo& tensor, size_t row0, size_t n) {
  LARDER_CHECK(row0 <= tensor.rows && n <= tensor.rows - row0,
               "rows {} + {} of tensor {}, which has {}", row0, n, tensor.name, tensor.rows);
}

// Converts rows in the file's format to float32. `raw` has the alignment of heap memory.
void ToF32(TensorType type, const char* raw, std::span<float> values) {
  switch (type) {
    case TensorType::kF32:
      std::memcpy(values.data(), raw, values.size_bytes());
      return;
    case TensorType::kF16:
      F16ToF32({reinterpret_cast<const uint16_t*>(raw), values.size()}, values.data());
      return;
    case TensorType::kBF16:
      for (size_t i = 0; i < values.size(); ++i)
        values[i] = Bf16ToF32(LoadAt<uint16_t>(raw + 2 * i));
      return;
    case TensorType::kQ8_0:
      DequantizeQ8_0(reinterpret_cast<const Q8Block*>(raw), values);
      return;
    default:
      DequantizeQuants(type, raw, values);
  }
}

}  // namespace

GgufFile::GgufFile() : impl_(std::make_unique<Impl>()) {}
GgufFile::~GgufFile() = default;

void ReadExactly(int fd, const std::string& path, std::string_view what, uint64_t offset,
                 uint64_t bytes, void* dst) {
  auto* out = static_cast<char*>(dst);
  while (bytes > 0) {
    const ssize_t got = ::pread(fd, out, bytes, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      throw Error("{}: can't read {} at byte {}: {}", path, what, offset, std::strerror(errno));
    if (got == 0) {
      throw Error(
          "{}: {} ends at byte {}, expected {} more bytes: the file has shrunk since it was opened",
          path, what, offset, bytes);
    }
    out += got;
    offset += static_cast<uint64_t>(got);
    bytes -= static_cast<uint64_t>(got);
  }
}

const std::string& GgufFile::path() const { return impl_->path; }
uint32_t GgufFile::version() const { return impl_->version; }
uint64_t GgufFile::file_bytes() const {
  uint64_t bytes = 0;
  for (const Part& part : impl_->parts) bytes += part.file_bytes;
  return bytes;
}
uint64_t GgufFile::data_offset_bytes() const { return impl_->data_offset_bytes; }
const std::vector<GgufFile::Part>& GgufFile::parts() const { return impl_->parts; }
const std::vector<TensorInfo>& GgufFile::tensors() const { return impl_->tensors; }
const std::vector<GgufFile::Entry>& GgufFile::entries() const { return impl_->entries; }

const TensorInfo* GgufFile::FindTensor(std::string_view name) const {
  const auto name_of = [this](uint32_t i) -> std::string_view { return impl_->tensors[i].name; };
  const auto it = std::ranges::lower_bound(impl_->by_name, name, {}, name_of);
  return it != impl_->by_name.end() && name_of(*it) == name ? &impl_->tensors[*it] : nullptr;
}

const TensorInfo& GgufFile::Tensor(std::string_view name) const {
  if (const TensorInfo* tensor = FindTensor(name)) return *tensor;
  throw Error("{}: tensor {} is missing{}", impl_->path, Quoted(name),
              Has("larder.split.part")
                  ? ": the file is a part of a model (larder inspect says which)"
                  : "");
}

void GgufFile::CheckReadable(const TensorInfo& tensor) const {
  if (IsReadableType(tensor.gguf_type)) return;
  throw Error("{}: tensor {} is {} (type {}), expected {}: convert the model to one of these",
              impl_->path_of(tensor), Quoted(tensor.name), GgufTypeName(tensor.gguf_type),
              tensor.gguf_type, kReadableTypes);
}

void GgufFile::ReadRows(const TensorInfo& tensor, size_t row0, size_t n, void* dst) const {
  CheckReadable(tensor);
  CheckRange(tensor, row0, n);
  const size_t row_bytes = RowBytes(tensor.type, tensor.cols);
  ReadExactly(impl_->fd_of(tensor), impl_->path_of(tensor), tensor.name,
              tensor.file_offset_bytes + row0 * row_bytes, n * row_bytes, dst);
}

void GgufFile::ReadRowsF32(const TensorInfo& tensor, size_t row0, size_t n, float* dst) const {
  CheckReadable(tensor);
  CheckRange(tensor, row0, n);
  const size_t row_bytes = RowBytes(tensor.type, tensor.cols);
  const size_t chunk_rows = RowsPerChunk(row_bytes, n);
  std::vector<char> raw(chunk_rows * row_bytes);
  for (size_t done = 0; done < n; done += chunk_rows) {
    const size_t rows = std::min(chunk_rows, n - done);
    ReadRows(tensor, row0 + done, rows, raw.data());
    const std::span<float> values(dst + done * tensor.cols, rows * tensor.cols);
    // Rows are whole blocks, so consecutive rows convert like one.
    ToF32(tensor.type, raw.data(), values);
    CheckFinite(impl_->path_of(tensor), tensor, row0 + done, values);
  }
}

void GgufFile::ReadRowsAs(TensorType type, const TensorInfo& tensor, size_t row0, size_t n,
                          void* dst) const {
  if (type == TensorType::kQ8_0) return ReadRowsQ8_0(tensor, row0, n, static_cast<Q8Block*>(dst));
  CheckReadable(tensor);
  LARDER_CHECK(type == tensor.type, "tensor {} of type {} as type {}", tensor.name,
               static_cast<uint32_t>(tensor.type), static_cast<uint32_t>(type));
  CheckRange(tensor, row0, n);
  const size_t row_bytes = RowBytes(type, tensor.cols);
  const size_t chunk_rows = RowsPerChunk(row_bytes, n);
  for (size_t done = 0; done < n; done += chunk_rows) {
    const size_t rows = std::min(chunk_rows, n - done);
    char* at = static_cast<char*>(dst) + done * row_bytes;
    ReadRows(tensor, row0 + done, rows, at);
    CheckBlockScales(impl_->path_of(tensor), tensor, row0 + done, at, rows);
  }
}

void GgufFile::ReadRowsQ8_0(const TensorInfo& tensor, size_t row0, size_t n, Q8Block* dst) const {
  CheckReadable(tensor);
  CheckRange(tensor, row0, n);
  const size_t row_blocks = CeilDiv(tensor.cols, kBlock);
  if (tensor.type == TensorType::kQ8_0) {
    // Read directly into place; the scales are checked while the chunk is still in L2.
    const size_t chunk_rows = RowsPerChunk(row_blocks * sizeof(Q8Block), n);
    for (size_t done = 0; done < n; done += chunk_rows) {
      const size_t rows = std::min(chunk_rows, n - done);
      Q8Block* blocks = dst + done * row_blocks;
      ReadRows(tensor, row0 + done, rows, blocks);
      CheckScales(impl_->path_of(tensor), tensor, row0 + done, blocks, rows, row_blocks);
    }
    return;
  }
  const size_t chunk_rows = RowsPerChunk(tensor.cols * sizeof(float), n);
  if (IsExpandable(tensor.type)) {
    std::vector<char> raw(chunk_rows * RowBytes(tensor.type, tensor.cols));
    for (size_t done = 0; done < n; done += chunk_rows) {
      const size_t rows = std::min(chunk_rows, n - done);
      Q8Block* blocks = dst + done * row_blocks;
      ReadRows(tensor, row0 + done, rows, raw.data());
      ExpandToQ8_0(tensor.type, raw.data(), rows * row_blocks, blocks);
      CheckScales(impl_->path_of(tensor), tensor, row0 + done, blocks, rows, row_blocks);
    }
    return;
  }
  std::vector<float> values(chunk_rows * tensor.cols);
  for (size_t done = 0; done < n; done += chunk_rows) {
    const size_t rows = std::min(chunk_rows, n - done);
    Q8Block* blocks = dst + done * row_blocks;
    ReadRowsF32(tensor, row0 + done, rows, values.data());
    for (size_t r = 0; r < rows; ++r) {
      QuantizeQ8_0({values.data() + r * tensor.cols, tensor.cols}, blocks + r * row_blocks);
    }
    CheckScales(impl_->path_of(tensor), tensor, row0 + done, blocks, rows, row_blocks);
  }
}

}  // namespace larder::model::gguf
