// The contents of an open GgufFile. gguf_parse.cc fills it, gguf_values.cc and gguf_read.cc read
// it. Private to model/. Metadata values stay as the file's bytes in one buffer: a vocabulary of
// 128k tokens is one allocation, not 128k.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "base/descriptor.h"
#include "model/gguf/gguf.h"

namespace larder::model::inline gguf {

struct GgufFile::Impl {
  Impl() = default;
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  std::string path;
  Descriptor fd;
  uint32_t version = 0;
  uint64_t file_bytes = 0;  // bytes of this file, without further parts
  uint64_t data_offset_bytes = 0;

  std::vector<char> header;  // the file's first bytes, at least up to the last metadata value
  std::vector<Entry> entries;
  // payloads[i]: where in `header` the value of entries[i] starts (arrays: the first element).
  std::vector<uint64_t> payloads;
  std::vector<uint64_t> ends;    // ends[i]: where in `header` the value of entries[i] ends
  std::vector<uint32_t> by_key;  // indices of entries in order of key
  std::vector<TensorInfo> tensors;
  std::vector<uint32_t> by_name;  // indices of tensors in order of name
  std::vector<Part> parts;
  std::vector<Descriptor> further;  // further[i]: the file of parts[i + 1]

  // Index into entries, or -1.
  ptrdiff_t FindEntry(std::string_view key) const;

  int fd_of(const TensorInfo& tensor) const {
    return tensor.part == 0 ? fd.get() : further[tensor.part - 1].get();
  }
  const std::string& path_of(const TensorInfo& tensor) const { return parts[tensor.part].path; }

  // Opens and parses the file `path`, without further parts (gguf_parse.cc). `why` ends the message
  // if it can't be opened.
  void OpenFile(const std::string& path, std::string_view why = {});

  // Steps of OpenFile (gguf_place.cc), after `tensors` is parsed with offsets relative to the data.
  // They throw Error for duplicate names and for tensors that are not aligned, not wholly in the
  // file, or overlapping. Afterwards offsets are absolute.
  void IndexTensors();
  void PlaceTensors(uint64_t header_bytes, uint64_t alignment);
};

// The most tensors of a model: each takes some 100 bytes of memory for its 33 bytes or more in the
// file. Real files have some thousand.
constexpr uint64_t kMaxTensors = 1 << 20;

// Bytes of one value; 0 for strings and arrays, whose length is in the file.
size_t GgufValueBytes(GgufValueType type);
std::string_view GgufValueTypeName(GgufValueType type);  // "string", "u32" ...

// Whether gguf-split wrote the key, to say which part of a model the file is.
bool IsPartsKey(std::string_view key);

// Quotes text from a file for an error line: in single quotes, cut after max_bytes, control
// characters escaped.
std::string Quoted(std::string_view text, size_t max_bytes = 80);

// A little-endian load from any place in the header, whose bytes are not aligned.
template <typename T>
T LoadAt(const char* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// Reads exactly `bytes` at `offset` into `dst`, or throws Error naming `what`.
void ReadExactly(int fd, const std::string& path, std::string_view what, uint64_t offset,
                 uint64_t bytes, void* dst);

}  // namespace larder::model::gguf
