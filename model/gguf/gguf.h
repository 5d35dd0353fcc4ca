// GgufFile: a reader of GGUF v2 and v3 that does not trust the file. Open() checks the whole header
// (counts, lengths, products, offsets, alignment, duplicates, types, that all tensor data lies in
// the file) before it allocates memory by the header's numbers. Every failure is one larder::Error
// line that names the file, the field and what was expected. Data is read with pread, not mapped: a
// file that shrinks meanwhile is an Error, not a SIGBUS, and the page cache's copy does not count
// as this process's memory. After Open() the object is immutable; reads are thread-safe.
//
// A model may be in several files, as llama.cpp's gguf-split writes them: NAME-00001-of-00003.gguf
// with all of the metadata, and further parts of tensors. The first one's path opens all of them as
// one GgufFile.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/gguf/formats.h"

namespace larder::model::inline gguf {

// A weight tensor as a matrix: `rows` outputs of `cols` inputs, with a row's columns contiguous.
// GGUF's dimension 0 is cols. One-dimensional tensors (norms, biases) have rows == 1.
struct TensorInfo {
  std::string name;
  TensorType type = TensorType::kF32;  // one of TensorType's names only if
                                       // IsReadableType(gguf_type)
  uint32_t gguf_type = 0;  // the file's number of the type, which may be one that Larder lists but
                           // does not read
  size_t rows = 0;
  size_t cols = 0;
  size_t matrices = 1;  // of a third dimension: its rows are those of so many, one after another
  uint64_t file_offset_bytes = 0;  // absolute, in the part's file
  uint64_t size_bytes = 0;         // 0 if the type's layout is unknown
  uint32_t part = 0;               // index of GgufFile::parts()
};

// Types of GGUF metadata values, by GGUF's numbers.
enum class GgufValueType : uint32_t {
  kU8 = 0,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64
};

class GgufFile {
 public:
  // Throws Error. `path` is kept for messages; a descriptor N is opened as /proc/self/fd/N. Files
  // without tensors (vocabularies) can be opened, and so can files with tensors of types that
  // Larder does not read; only reading such a tensor throws. If split.count says that the model is
  // in several files, `path` must be the first one's, under the name that gguf-split gave it; the
  // others are opened from the same folder.
  static std::shared_ptr<const GgufFile> Open(const std::string& path);
  ~GgufFile();
  GgufFile(const GgufFile&) = delete;
  GgufFile& operator=(const GgufFile&) = delete;

  const std::string& path() const;  // the first part's
  uint32_t version() const;
  uint64_t file_bytes() const;         // of all parts together
  uint64_t data_offset_bytes() const;  // the first part's

  // The files of the model, in order; one unless it is split.
  struct Part {
    std::string path;
    uint64_t file_bytes = 0;
    size_t tensors = 0;
  };
  const std::vector<Part>& parts() const;
  // The file's name without folder, ".gguf" and, if the model is split, "-00001-of-00003".
  std::string stem() const;

  const std::vector<TensorInfo>& tensors() const;             // in file order
  const TensorInfo* FindTensor(std::string_view name) const;  // null if absent
  const TensorInfo& Tensor(std::string_view name) const;      // throws Error if absent

  // Metadata. Get* throws Error if the key is absent or of a wrong type ("file: key 'x' is a
  // string, expected an unsigned integer"). Find* returns nullopt if the key is absent, and throws
  // if its type is wrong. Unsigned accepts every integer type whose value is in range; Float
  // accepts F32 and F64.
  struct Entry {
    std::string key;
    GgufValueType type;
    GgufValueType element_type;
    uint64_t count;
  };
  const std::vector<Entry>& entries() const;  // in file order, for `inspect`
  // The value as one line of text. Arrays are cut after max_items, strings after 100 bytes; control
  // characters are escaped.
  std::string Describe(const Entry&, size_t max_items) const;
  // The bytes of the entry's type and value in the file.
  std::string_view RawValue(const Entry&) const;
  bool Has(std::string_view key) const;
  bool IsArray(std::string_view key) const;  // false if the key has a single value or is missing
  uint64_t GetUnsigned(std::string_view key) const;
  double GetFloat(std::string_view key) const;
  std::string_view GetString(std::string_view key) const;
  std::optional<uint64_t> FindUnsigned(std::string_view key) const;
  std::optional<int64_t> FindSigned(std::string_view key) const;
  std::optional<double> FindFloat(std::string_view key) const;
  std::optional<bool> FindBool(std::string_view key) const;
  std::optional<std::string_view> FindString(std::string_view key) const;
  std::optional<std::vector<std::string_view>> FindStrings(std::string_view key) const;
  // any integer type in range
  std::optional<std::vector<int32_t>> FindInts(std::string_view key) const;
  // bools, or integers that are 0 or 1
  std::optional<std::vector<bool>> FindFlags(std::string_view key) const;
  std::optional<std::vector<float>> FindFloats(std::string_view key) const;

  // Throws Error for a type that Larder does not read; it names tensor and type and says what to
  // convert to.
  void CheckReadable(const TensorInfo&) const;

  // Reads rows [row0, row0 + n) in the file's format: n * RowBytes(type, cols) bytes into `dst`.
  // Thread-safe. All four functions begin with CheckReadable.
  void ReadRows(const TensorInfo&, size_t row0, size_t n, void* dst) const;
  // The same as float32, n * cols floats. Throws Error on NaN and infinities (names tensor, row and
  // column).
  void ReadRowsF32(const TensorInfo&, size_t row0, size_t n, float* dst) const;
  // The same as Q8_0, n * ceil(cols / 32) blocks; other types are quantised. Throws Error on a
  // scale or weight that is NaN or infinite (names tensor, row and block).
  void ReadRowsQ8_0(const TensorInfo&, size_t row0, size_t n, Q8Block* dst) const;
  // The same in `type`, which is the tensor's or Q8_0: n * RowBytes(type, cols) bytes. Throws Error
  // on a scale that is NaN or infinite.
  void ReadRowsAs(TensorType type, const TensorInfo&, size_t row0, size_t n, void* dst) const;

 private:
  GgufFile();
  // The second step of Open: opens further parts, if there are any, and appends their tensors
  // (gguf_parts.cc).
  void OpenParts();
  friend class GgufHeaderParser;  // gguf_parse.cc
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Called with the bytes of a file written so far, and its final size. An exception from it ends the
// writing.
using WriteProgress = std::function<void(uint64_t done_bytes, uint64_t all_bytes)>;

// GgufWriter: writes v3 files, for synth, tests and the table of malformed files. Add metadata
// first, then tensors.
class GgufWriter {
 public:
  GgufWriter();
  GgufWriter(const GgufWriter&) = delete;
  GgufWriter& operator=(const GgufWriter&) = delete;
  ~GgufWriter();
  void Add(std::string key, uint32_t value);
  void Add(std::string key, uint64_t value);
  void Add(std::string key, float value);
  void Add(std::string key, bool value);
  void Add(std::string key, std::string value);
  void Add(std::string key, const char* value);
  void Add(std::string key, const std::vector<std::string>& values);
  void Add(std::string key, const std::vector<int32_t>& values);
  void Add(std::string key, const std::vector<float>& values);
  // Adds an unchanged entry of another file.
  void Copy(const GgufFile& file, const GgufFile::Entry& entry);
  // `fill(row0, n, dst)` is called in row order while Write() runs, so that a large file needs
  // little memory.
  using Fill = void (*)(void* context, size_t row0, size_t n, void* dst);
  // matrices: that many, one after another, in a tensor of three dimensions.
  void AddTensor(std::string name, TensorType type, size_t rows, size_t cols, Fill fill,
                 void* context, size_t matrices = 1);
  // Adds a one-dimensional F32 tensor; the values are copied.
  void AddVector(std::string name, std::vector<float> values, size_t rows = 1);
  // Writes `path`.tmp and renames it; removes an unfinished file.
  void Write(const std::string& path, const WriteProgress& progress = {}) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace larder::model::gguf
