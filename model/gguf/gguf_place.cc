// The second half of GgufFile::Open: checks the tensors that the header describes against the file.
#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/memory.h"
#include "model/gguf/gguf_impl.h"

namespace larder::model::inline gguf {

void GgufFile::Impl::IndexTensors() {
  by_name.resize(tensors.size());
  std::iota(by_name.begin(), by_name.end(), 0u);
  const auto name = [&](uint32_t i) -> const std::string& { return tensors[i].name; };
  std::ranges::sort(by_name, {}, name);
  const auto twin = std::ranges::adjacent_find(by_name, {}, name);
  if (twin == by_name.end()) return;
  const auto [first, second] = std::minmax(tensors[twin[0]].part, tensors[twin[1]].part);
  if (first == second) throw Error("{}: duplicate tensor {}", path, Quoted(name(*twin)));
  throw Error("{}: tensor {} is also in {}, expected every tensor in one part", parts[second].path,
              Quoted(name(*twin)), parts[first].path);
}

void GgufFile::Impl::PlaceTensors(uint64_t header_bytes, uint64_t alignment) {
  data_offset_bytes = RoundUp(header_bytes, alignment);
  if (tensors.empty()) return;
  const uint64_t data_bytes = file_bytes > data_offset_bytes ? file_bytes - data_offset_bytes : 0;
  for (TensorInfo& tensor : tensors) {
    const uint64_t offset = tensor.file_offset_bytes;
    if (offset % alignment != 0) {
      throw Error("{}: tensor {}: offset {} is not a multiple of the alignment {}", path,
                  Quoted(tensor.name), offset, alignment);
    }
    if (offset > data_bytes || tensor.size_bytes > data_bytes - offset) {
      throw Error(
          "{}: tensor {}: {} bytes at offset {} lie beyond the file's {} bytes of data: it is cut "
          "short or damaged",
          path, Quoted(tensor.name), tensor.size_bytes, offset, data_bytes);
    }
    tensor.file_offset_bytes += data_offset_bytes;
  }
  std::vector<uint32_t> by_offset(by_name);
  std::ranges::sort(by_offset, {}, [&](uint32_t i) { return tensors[i].file_offset_bytes; });
  const TensorInfo* last = nullptr;  // the previous tensor whose size is known
  for (const uint32_t i : by_offset) {
    const TensorInfo& tensor = tensors[i];
    if (tensor.size_bytes == 0) continue;
    if (last != nullptr && tensor.file_offset_bytes < last->file_offset_bytes + last->size_bytes) {
      throw Error("{}: tensor {} overlaps tensor {}", path, Quoted(tensor.name),
                  Quoted(last->name));
    }
    last = &tensor;
  }
}

}  // namespace larder::model::gguf
