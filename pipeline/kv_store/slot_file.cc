#include "pipeline/kv_store/slot_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#define XXH_INLINE_ALL  // no library to link
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "base/descriptor.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/new_file.h"
#include "pipeline/kv_store/read_all.h"

namespace larder::pipeline::inline kv_store {
namespace {

// The version of the file's layout and of pages. The arithmetic is part of the computation's
// identity. Since version 2 `model` is that identity (in version 1, a hash of the weights).
constexpr uint32_t kSlotVersion = 2;
constexpr size_t kMostNameBytes = 200;
constexpr size_t kSlotPieceBytes = 1 << 20;  // read at once

struct SlotHeader {
  char magic[8] = {'L', 'A', 'R', 'D', 'E', 'R', 'S', 'L'};
  uint32_t version = kSlotVersion;
  uint32_t chunk_positions = 0;
  uint64_t model = 0, tenant = 0;
  uint64_t tokens = 0, chunk_bytes = 0;  // chunk_bytes 0: it has no chunks
  uint64_t checksum = 0;                 // XXH3 of what is before it, the tokens and the chunks
};
static_assert(sizeof(SlotHeader) == 56);

// The chunks' checksum begins with that of what is before them.
uint64_t SlotSeedOf(const SlotHeader& header, const std::vector<int32_t>& tokens) {
  const uint64_t sum = XXH3_64bits(&header, offsetof(SlotHeader, checksum));
  return XXH3_64bits_withSeed(tokens.data(), tokens.size() * sizeof(int32_t), sum);
}

class OpenSlotFile {
 public:
  // O_NONBLOCK: to open a pipe must not wait for its writer.
  explicit OpenSlotFile(const std::string& path)
      : path_(path),
        file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)),
        error_(file_ ? 0 : errno) {
    if (file_ && ::fstat(file_.get(), &about_) != 0) error_ = errno;
  }
  bool is_missing() const { return error_ == ENOENT; }
  uint64_t bytes() const { return static_cast<uint64_t>(about_.st_size); }
  void Read(void* to, size_t bytes) const {
    if (!ReadAll(file_.get(), to, bytes)) throw Error("{}: it is too short", path_);
  }
  // Once, before anything else is read.
  SlotHeader Header() const {
    if (error_ != 0) throw Error("{}: {}", path_, std::strerror(error_));
    if (!S_ISREG(about_.st_mode)) throw Error("{}: it is no file", path_);
    SlotHeader header, expected;
    Read(&header, sizeof header);
    if (std::memcmp(header.magic, expected.magic, sizeof header.magic) != 0)
      throw Error("{}: it is no saved slot", path_);
    return header;
  }

 private:
  const std::string& path_;
  const Descriptor file_;
  int error_;
  struct stat about_ {};
};

}  // namespace

std::string WhyNotFileName(const std::string& name) {
  const bool good = !name.empty() && name.size() <= kMostNameBytes && name.front() != '.' &&
                    std::ranges::all_of(name, [](char c) {
                      return c > ' ' && c < 0x7f && c != '/' && c != '\\' && c != ':';
                    });
  if (good) return "";
  return fmt::format(
      "expected 1 to {} printable ASCII characters without spaces, slashes and colons, the first "
      "no dot",
      kMostNameBytes);
}

size_t WriteSlotFile(const std::string& path, const SlotFileOptions& options,
                     const SlotContents& contents) {
  const uint64_t chunk_bytes = contents.bytes.empty() ? 0 : options.chunk_bytes;
  LARDER_CHECK(contents.bytes.size() ==
               CeilDiv(contents.tokens.size(), options.chunk_positions) * chunk_bytes);
  SlotHeader header = {.chunk_positions = static_cast<uint32_t>(options.chunk_positions),
                       .model = options.model,
                       .tenant = contents.tenant,
                       .tokens = contents.tokens.size(),
                       .chunk_bytes = chunk_bytes};
  header.checksum = XXH3_64bits_withSeed(contents.bytes.data(), contents.bytes.size(),
                                         SlotSeedOf(header, contents.tokens));
  const size_t token_bytes = contents.tokens.size() * sizeof(int32_t);
  NewFile file(path, FileReaders::kOwner);
  file.Write(reinterpret_cast<const char*>(&header), sizeof header);
  file.Write(reinterpret_cast<const char*>(contents.tokens.data()), token_bytes);
  file.Write(reinterpret_cast<const char*>(contents.bytes.data()), contents.bytes.size());
  file.Commit();
  return sizeof header + token_bytes + contents.bytes.size();
}

std::optional<uint64_t> TenantOfSlotFile(const std::string& path) {
  const OpenSlotFile file(path);
  if (file.is_missing()) return std::nullopt;
  return file.Header().tenant;
}

SlotContents ReadSlotFile(const std::string& path, const SlotFileOptions& options) {
  const OpenSlotFile file(path);
  const SlotHeader header = file.Header();
  const auto read_all = [&](void* to, size_t bytes) { file.Read(to, bytes); };
  if (header.version != kSlotVersion)
    throw Error("{}: it is of format {}; this larder reads {}: save the slot again", path,
                header.version, kSlotVersion);
  if (header.model != options.model) {
    throw Error(
        "{}: it is of another model, of other settings of it (such as rope.freq_base), or of "
        "another arithmetic: save the slot again",
        path);
  }
  if (header.tokens == 0 || header.tokens > options.context)
    throw Error("{}: its {} tokens do not fit the context of {} tokens", path, header.tokens,
                options.context);
  // Before memory is taken for what it says that it has.
  const uint64_t file_bytes = file.bytes();
  const uint64_t chunks =
      header.chunk_positions == 0 ? 0 : CeilDiv(header.tokens, uint64_t{header.chunk_positions});
  if (chunks == 0 || header.chunk_bytes > file_bytes / chunks ||
      file_bytes != sizeof header + header.tokens * sizeof(int32_t) + chunks * header.chunk_bytes)
    throw Error("{}: its length is wrong", path);
  SlotContents contents;
  contents.tenant = header.tenant;
  contents.tokens.resize(header.tokens);
  read_all(contents.tokens.data(), header.tokens * sizeof(int32_t));
  // What is laid out otherwise is not kept, however much it is.
  const bool keeps = header.chunk_positions == options.chunk_positions &&
                     header.chunk_bytes == options.chunk_bytes;
  contents.bytes.resize(keeps ? chunks * header.chunk_bytes : kSlotPieceBytes);
  XXH3_state_t checksum;
  XXH3_64bits_reset_withSeed(&checksum, SlotSeedOf(header, contents.tokens));
  for (uint64_t at = 0; at < chunks * header.chunk_bytes; at += kSlotPieceBytes) {
    const size_t bytes = std::min<uint64_t>(kSlotPieceBytes, chunks * header.chunk_bytes - at);
    uint8_t* piece = contents.bytes.data() + (keeps ? at : 0);
    read_all(piece, bytes);
    XXH3_64bits_update(&checksum, piece, bytes);
  }
  if (!keeps) contents.bytes.clear();
  if (header.checksum != XXH3_64bits_digest(&checksum))
    throw Error("{}: its checksum is wrong", path);
  for (const int32_t token : contents.tokens) {
    if (token < 0 || static_cast<size_t>(token) >= options.vocab)
      throw Error("{}: its token {} is not one of the vocabulary's {}", path, token, options.vocab);
  }
  return contents;
}

}  // namespace larder::pipeline::kv_store
