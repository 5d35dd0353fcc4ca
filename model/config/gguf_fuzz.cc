// libFuzzer target: any bytes as a model file, opened and read as a program does. Built by
// -DLARDER_FUZZ=ON with clang; the corpus is fuzz/gguf/ (written by fuzz/make_gguf_corpus.py).
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"
#include "model/config/config.h"
#include "model/config/split.h"
#include "model/gguf/gguf.h"

namespace {

using namespace larder::model;

void ReadEverything(const std::string& path) {
  const auto file = GgufFile::Open(path);
  for (const GgufFile::Entry& entry : file->entries()) {
    file->Describe(entry, 3);
    try {
      file->FindStrings(entry.key);
    } catch (const larder::Error&) {
    }
    try {
      file->FindInts(entry.key);
    } catch (const larder::Error&) {
    }
    try {
      file->FindFloats(entry.key);
    } catch (const larder::Error&) {
    }
  }
  for (const TensorInfo& tensor : file->tensors()) {
    const size_t rows = std::min<size_t>(tensor.rows, 4);
    std::vector<Q8Block> blocks(
        rows * larder::CeilDiv(std::min<size_t>(tensor.cols, file->file_bytes()), kBlock));
    if (!IsReadableType(tensor.gguf_type)) continue;
    try {
      std::vector<char> raw(rows * RowBytes(tensor.type, tensor.cols));
      file->ReadRowsAs(tensor.type, tensor, 0, rows, raw.data());
    } catch (const larder::Error&) {
    }
    try {
      file->ReadRowsQ8_0(tensor, tensor.rows - rows, rows, blocks.data());
    } catch (const larder::Error&) {
    }
  }
  const ModelConfig config = ReadModelConfig(*file);
  LARDER_CHECK(config.kind_of.size() == config.layers, "kinds");
  for (const LayerSpec& kind : config.kinds)
    LARDER_CHECK(
        kind.sizes.heads % kind.sizes.kv_heads == 0 && kind.rotary.dim <= kind.sizes.head_size,
        "config");
  LARDER_CHECK(config.part.first_layer + config.part.layers <= config.layers, "part");
  Describe(config.part);
  Fingerprint(*file);
  RopeTable(config.kinds[0].rotary, 3);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const int fd = ::memfd_create("gguf_fuzz", MFD_CLOEXEC);
  static const std::string path = "/proc/self/fd/" + std::to_string(fd);
  LARDER_CHECK(::ftruncate(fd, 0) == 0 && ::pwrite(fd, data, size, 0) == static_cast<ssize_t>(size),
               "memfd");
  try {
    ReadEverything(path);
  } catch (const larder::Error&) {  // the expected reaction to a bad file; anything else is a
                                    // finding
  }
  return 0;
}
