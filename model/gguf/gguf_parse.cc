// GgufFile::Open: reads and checks one file's header. A number in the file determines an allocation
// only after it has been checked against the bytes that the file really has.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <numeric>

#include "base/error.h"
#include "model/gguf/gguf_impl.h"

namespace larder::model::inline gguf {
namespace {

constexpr std::string_view kMagic = "GGUF";
constexpr size_t kFirstReadBytes = 64 << 10;
// The most bytes of a header that are kept in memory, whatever a (sparse) file claims. A vocabulary
// of 256,000 tokens with its merges and a chat template takes some 20 MB.
constexpr uint64_t kMaxHeaderBytes = uint64_t{512} << 20;
// Each takes some 100 bytes of memory for its 14 bytes or more in the file. Real files have a
// hundred keys.
constexpr uint64_t kMaxEntries = 1 << 16;
constexpr uint64_t kMaxKeyBytes = 65535;       // the format's own limit
constexpr uint64_t kMaxTensorNameBytes = 255;  // the format says 64
constexpr uint64_t kMaxAlignment = 1 << 20;
constexpr uint32_t kMaxTensorTypes = 256;  // room for future types, which are listed but never read
constexpr int kMaxArrayDepth = 4;
// The fewest bytes that an item takes in the file, for checks of counts.
constexpr uint64_t kMinEntryBytes = 8 + 1 + 4 + 1;  // name length, name, type, value
// name length, name, dims, one dim, type, offset
constexpr uint64_t kMinTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;

}  // namespace

class GgufHeaderParser {
 public:
  explicit GgufHeaderParser(GgufFile::Impl& file) : file_(file) {}

  void Parse() {
    ParsePreamble();
    for (uint64_t i = 0; i < entry_count_; ++i) ParseEntry(i);
    IndexEntries();
    ReadAlignment();
    for (uint64_t i = 0; i < tensor_count_; ++i) ParseTensor(i);
    file_.IndexTensors();
    file_.PlaceTensors(at_, alignment_);
    file_.header.resize(std::min<uint64_t>(at_, file_.header.size()));
    file_.header.shrink_to_fit();
  }

 private:
  using Type = GgufValueType;

  // Reads the file until its next `bytes` bytes are in the buffer.
  void Need(uint64_t bytes, std::string_view what) {
    if (bytes > file_.file_bytes - at_) {
      throw Error(
          "{}: {} at byte {} needs {} bytes, but the file ends after {} bytes: it is cut short or "
          "damaged",
          file_.path, what, at_, bytes, file_.file_bytes);
    }
    const uint64_t have = file_.header.size();
    if (at_ + bytes <= have) return;
    if (bytes > kMaxHeaderBytes - at_) {
      throw Error(
          "{}: {} at byte {} needs {} bytes: keys and tensor names take more than {} MB in all, "
          "which no real model's do; the file is damaged or malicious",
          file_.path, what, at_, bytes, kMaxHeaderBytes >> 20);
    }
    const uint64_t want = std::min({file_.file_bytes, kMaxHeaderBytes,
                                    std::max<uint64_t>({at_ + bytes, 2 * have, kFirstReadBytes})});
    file_.header.resize(want);
    ReadExactly(file_.fd.get(), file_.path, "the header", have, want - have,
                file_.header.data() + have);
  }

  template <typename T>
  T Take(std::string_view what) {
    Need(sizeof(T), what);
    const T value = LoadAt<T>(file_.header.data() + at_);
    at_ += sizeof(T);
    return value;
  }

  // The view is valid until the next Need().
  std::string_view TakeString(std::string_view what, uint64_t max_bytes) {
    const uint64_t bytes = Take<uint64_t>(what);
    if (bytes > max_bytes) {
      throw Error("{}: {} at byte {} is a string of {} bytes, expected at most {}", file_.path,
                  what, at_ - 8, bytes, max_bytes);
    }
    Need(bytes, what);
    const std::string_view text(file_.header.data() + at_, bytes);
    at_ += bytes;
    return text;
  }

  void ParsePreamble() {
    if (file_.file_bytes < 24) {
      throw Error(
          "{}: is {} bytes long, too short for a GGUF file (its header alone is 24): the download "
          "is incomplete or this is another kind of file",
          file_.path, file_.file_bytes);
    }
    Need(24, "the file header");
    const std::string magic(file_.header.data(), 4);
    if (magic != kMagic) {
      throw Error(
          "{}: starts with the magic {}, expected 'GGUF': this is another kind of file (convert "
          "the model to GGUF)",
          file_.path, Quoted(magic));
    }
    at_ = 4;
    file_.version = Take<uint32_t>("the version");
    if (file_.version != 0 && (file_.version & 0xffff) == 0) {
      throw Error(
          "{}: version {:#x} is that of a big-endian GGUF file; convert it to little-endian",
          file_.path, file_.version);
    }
    if (file_.version == 1) {
      throw Error(
          "{}: version is 1, expected 2 or 3; convert the model again with a current converter",
          file_.path);
    }
    if (file_.version != 2 && file_.version != 3) {
      throw Error("{}: version is {}, expected 2 or 3", file_.path, file_.version);
    }
    tensor_count_ = Take<uint64_t>("the tensor count");
    entry_count_ = Take<uint64_t>("the key count");
    const uint64_t rest = file_.file_bytes - at_;
    CheckCount("tensor count", tensor_count_, kMinTensorBytes, kMaxTensors, rest);
    CheckCount("key count", entry_count_, kMinEntryBytes, kMaxEntries, rest);
  }

  void CheckCount(std::string_view what, uint64_t count, uint64_t min_bytes, uint64_t most,
                  uint64_t rest) const {
    if (count > rest / min_bytes) {
      throw Error(
          "{}: {} is {}, but the {} bytes that follow hold at most {}: the file is cut short or "
          "damaged",
          file_.path, what, count, rest, rest / min_bytes);
    }
    if (count > most)
      throw Error("{}: {} is {}, expected at most {}", file_.path, what, count, most);
  }

  Type CheckedType(uint32_t number, std::string_view what) const {
    if (number > static_cast<uint32_t>(Type::kF64)) {
      throw Error("{}: {} has value type {}, expected 0 to {}", file_.path, what, number,
                  static_cast<uint32_t>(Type::kF64));
    }
    return static_cast<Type>(number);
  }

  void ParseEntry(uint64_t index) {
    GgufFile::Entry entry;
    what_ = fmt::format("the name of key {}", index);
    entry.key = TakeString(what_, kMaxKeyBytes);
    if (entry.key.empty()) throw Error("{}: the name of key {} is empty", file_.path, index);
    what_ = fmt::format("key {}", Quoted(entry.key));
    entry.type = CheckedType(Take<uint32_t>(what_), what_);
    entry.element_type = entry.type;
    entry.count = 1;
    if (entry.type == Type::kArray) {
      entry.element_type = CheckedType(Take<uint32_t>(what_), what_);
      entry.count = Take<uint64_t>(what_);
      file_.payloads.push_back(at_);
      SkipElements(entry.element_type, entry.count, 1);
    } else {
      file_.payloads.push_back(at_);
      SkipElements(entry.type, 1, 0);
    }
    file_.ends.push_back(at_);
    file_.entries.push_back(std::move(entry));
  }

  // Skips `count` values of key what_ and checks them. Every iteration consumes bytes of the file,
  // so the time is bounded by the file's size, whatever `count` says.
  void SkipElements(Type type, uint64_t count, int depth) {
    const uint64_t rest = file_.file_bytes - at_;
    const size_t fixed = GgufValueBytes(type);
    const uint64_t min_bytes = fixed != 0 ? fixed : type == Type::kString ? 8 : 12;
    if (count > rest / min_bytes) {
      throw Error(
          "{}: {}: length {} of {} values, but the {} bytes that follow hold at most {}: the file "
          "is cut short or damaged",
          file_.path, what_, count, GgufValueTypeName(type), rest, rest / min_bytes);
    }
    if (type == Type::kString) {
      for (uint64_t i = 0; i < count; ++i) TakeString(what_, file_.file_bytes);
      return;
    }
    if (type == Type::kArray) {
      if (depth >= kMaxArrayDepth) {
        throw Error("{}: {}: arrays nested more than {} deep", file_.path, what_, kMaxArrayDepth);
      }
      for (uint64_t i = 0; i < count; ++i) {
        const Type element = CheckedType(Take<uint32_t>(what_), what_);
        const uint64_t elements = Take<uint64_t>(what_);
        SkipElements(element, elements, depth + 1);
      }
      return;
    }
    Need(count * fixed, what_);
    if (type == Type::kBool) {
      for (uint64_t i = 0; i < count; ++i) {
        const auto value = static_cast<unsigned char>(file_.header[at_ + i]);
        if (value > 1)
          throw Error("{}: {}: a bool holds {}, expected 0 or 1", file_.path, what_, value);
      }
    }
    at_ += count * fixed;
  }

  // Sorted indices rather than a hash map, because no input makes them slow.
  void IndexEntries() {
    file_.by_key.resize(file_.entries.size());
    std::iota(file_.by_key.begin(), file_.by_key.end(), 0u);
    const auto key = [&](uint32_t i) -> const std::string& { return file_.entries[i].key; };
    std::ranges::sort(file_.by_key, {}, key);
    const auto twin = std::ranges::adjacent_find(file_.by_key, {}, key);
    if (twin != file_.by_key.end())
      throw Error("{}: duplicate key {}", file_.path, Quoted(key(*twin)));
  }

  void ReadAlignment() {
    const ptrdiff_t index = file_.FindEntry("general.alignment");
    if (index < 0) return;
    const auto i = static_cast<size_t>(index);
    if (file_.entries[i].type != Type::kU32) {
      throw Error("{}: key 'general.alignment' is a {}, expected a u32", file_.path,
                  GgufValueTypeName(file_.entries[i].type));
    }
    alignment_ = LoadAt<uint32_t>(file_.header.data() + file_.payloads[i]);
    if (!std::has_single_bit(alignment_) || alignment_ > kMaxAlignment) {
      throw Error("{}: key 'general.alignment' is {}, expected a power of two up to {}", file_.path,
                  alignment_, kMaxAlignment);
    }
  }

  void ParseTensor(uint64_t index) {
    TensorInfo tensor;
    what_ = fmt::format("the name of tensor {}", index);
    tensor.name = TakeString(what_, kMaxTensorNameBytes);
    if (tensor.name.empty()) throw Error("{}: the name of tensor {} is empty", file_.path, index);
    what_ = fmt::format("tensor {}", Quoted(tensor.name));
    const auto dimensions = Take<uint32_t>(what_);
    if (dimensions < 1 || dimensions > 4) {
      throw Error("{}: {} has {} dimensions, expected 1 to 4", file_.path, what_, dimensions);
    }
    uint64_t shape[4] = {1, 1, 1, 1};
    for (uint32_t d = 0; d < dimensions; ++d) {
      shape[d] = Take<uint64_t>(what_);
      if (shape[d] == 0) throw Error("{}: {}: dimension {} is 0", file_.path, what_, d);
    }
    tensor.gguf_type = Take<uint32_t>(what_);
    tensor.type = static_cast<TensorType>(tensor.gguf_type);
    if (tensor.gguf_type >= kMaxTensorTypes) {
      throw Error("{}: {} has type {}, which is no GGUF tensor type", file_.path, what_,
                  tensor.gguf_type);
    }
    tensor.file_offset_bytes = Take<uint64_t>(what_);  // relative to the data until PlaceTensors
    SetSize(tensor, shape);
    file_.tensors.push_back(std::move(tensor));
  }

  void SetSize(TensorInfo& tensor, const uint64_t (&shape)[4]) const {
    const GgufTypeLayout layout = LayoutOfGgufType(tensor.gguf_type);
    uint64_t rows = 1, elements = 0, bytes = 0;
    bool overflow = false;
    for (int d = 1; d < 4; ++d) overflow |= __builtin_mul_overflow(rows, shape[d], &rows);
    overflow |= __builtin_mul_overflow(rows, shape[0], &elements);
    if (layout.elements != 0) {
      if (shape[0] % layout.elements != 0) {
        throw Error("{}: {} is {} with rows of {} elements, expected a multiple of {}", file_.path,
                    what_, GgufTypeName(tensor.gguf_type), shape[0], layout.elements);
      }
      overflow |= __builtin_mul_overflow(elements / layout.elements, layout.bytes, &bytes);
    }
    if (overflow) {
      throw Error("{}: {}: dimensions {} x {} x {} x {} overflow 64 bits", file_.path, what_,
                  shape[0], shape[1], shape[2], shape[3]);
    }
    tensor.rows = rows;
    tensor.cols = shape[0];
    tensor.matrices = shape[2] * shape[3];
    tensor.size_bytes = bytes;
  }

  GgufFile::Impl& file_;
  uint64_t at_ = 0;
  uint64_t tensor_count_ = 0;
  uint64_t entry_count_ = 0;
  uint64_t alignment_ = 32;
  std::string what_;  // what is being parsed, for messages
};

void GgufFile::Impl::OpenFile(const std::string& file_path, std::string_view why) {
  path = file_path;
  // NONBLOCK: a FIFO must not hang us
  fd = Descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) throw Error("{}: can't open: {}{}", path, std::strerror(errno), why);
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0)
    throw Error("{}: can't stat: {}", path, std::strerror(errno));
  if (!S_ISREG(status.st_mode))
    throw Error("{}: is not a regular file, expected a GGUF file", path);
  file_bytes = static_cast<uint64_t>(status.st_size);
  GgufHeaderParser(*this).Parse();
  parts = {{path, file_bytes, tensors.size()}};
}

std::shared_ptr<const GgufFile> GgufFile::Open(const std::string& path) {
  std::shared_ptr<GgufFile> file(new GgufFile);
  file->impl_->OpenFile(path);
  file->OpenParts();
  return file;
}

}  // namespace larder::model::gguf
