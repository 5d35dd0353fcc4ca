#include "pipeline/kv_store/slot_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#define XXH_INLINE_ALL  // no library to link
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <span>

#include "base/check.h"
#include "base/descriptor.h"
#include "base/error.h"
#include "base/new_file.h"
#include "base/range.h"
#include "pipeline/kv_store/read_all.h"

namespace larder::pipeline::inline kv_store {
namespace {

// The version of the file's layout and of pages. The arithmetic is part of the computation's
// identity. Since version 2 `model` is that identity (in version 1, a hash of the weights); since
// version 3 there are pieces of classes of memory.
constexpr uint32_t kSlotVersion = 3;
constexpr size_t kMostNameBytes = 200;
constexpr size_t kSlotReadBytes = 1 << 20;  // at once

struct SlotHeader {
  char magic[8] = {'L', 'A', 'R', 'D', 'E', 'R', 'S', 'L'};
  uint32_t version = kSlotVersion;
  uint32_t chunk_positions = 0;
  uint64_t model = 0, tenant = 0;
  uint64_t layout = 0;  // LayoutOf
  uint64_t tokens = 0, pieces = 0, piece_bytes = 0;
  uint64_t checksum = 0;  // XXH3 of what is before it, the tokens, the pieces' places and bytes
};
static_assert(sizeof(SlotHeader) == 72);

// Of a piece; behind all of these are the pieces' bytes.
struct SlotPlace {
  uint32_t of_class = 0, place = 0;
};
static_assert(sizeof(SlotPlace) == 8);

// The checksum of the pieces' bytes begins with that of what is before them.
uint64_t SlotSeedOf(const SlotHeader& header, std::span<const int32_t> tokens,
                    std::span<const SlotPlace> places) {
  uint64_t sum = XXH3_64bits(&header, offsetof(SlotHeader, checksum));
  sum = XXH3_64bits_withSeed(tokens.data(), tokens.size_bytes(), sum);
  return XXH3_64bits_withSeed(places.data(), places.size_bytes(), sum);
}

// Pieces are of use where chunks have this layout.
uint64_t LayoutOf(const SlotFileOptions& options) {
  std::vector<uint64_t> of = {options.chunk_positions};
  for (size_t c = 0; c < options.chunk_bytes.size(); ++c)
    of.insert(of.end(), {options.chunk_bytes[c], options.classes[c].window,
                         options.classes[c].states ? uint64_t{1} : 0});
  return XXH3_64bits(of.data(), of.size() * sizeof of[0]);
}

// Whether they are the last chunks of the tokens, at least those needed to go on behind them, or
// states of which the last ones are the tokens'.
bool AreEnough(const model::KvClass& of, std::span<const SlotPlace> places, size_t tokens,
               size_t chunk_positions) {
  if (of.states) {
    return !places.empty() && places.front().place > 0 && places.back().place == tokens &&
           std::ranges::is_sorted(places, std::less_equal(), &SlotPlace::place);
  }
  const Range<size_t> needed = NeededAt(of, tokens, chunk_positions);
  if (places.size() < needed.count() || places.size() > needed.end) return false;
  for (size_t i = 0; i < places.size(); ++i) {
    if (places[i].place != needed.end - places.size() + i) return false;
  }
  return true;
}

// Throws Error unless a sequence can go on behind the tokens with the pieces.
void CheckPlaces(const std::string& path, const SlotFileOptions& options,
                 std::span<const SlotPlace> places, size_t tokens) {
  for (size_t c = 0; c < options.classes.size(); ++c) {
    const auto end =
        std::ranges::find_if(places, [&](const SlotPlace& p) { return p.of_class != c; });
    const auto count = static_cast<size_t>(end - places.begin());
    if (!AreEnough(options.classes[c], places.first(count), tokens, options.chunk_positions)) {
      throw Error("{}: its {} {} of memory class {} don't fit its {} tokens: save the slot again",
                  path, count, options.classes[c].states ? "states" : "chunks", c, tokens);
    }
    places = places.subspan(count);
  }
  if (!places.empty()) {
    throw Error("{}: its pieces are of memory class {}, or in another order; there are {} classes",
                path, places.front().of_class, options.classes.size());
  }
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

size_t SlotContents::bytes() const {
  size_t sum = 0;
  for (const SlotPiece& piece : pieces) sum += piece.bytes.size();
  return sum;
}

size_t WriteSlotFile(const std::string& path, const SlotFileOptions& options,
                     const SlotContents& contents) {
  std::vector<SlotPlace> places;
  for (const SlotPiece& piece : contents.pieces) {
    LARDER_CHECK(piece.bytes.size() == options.chunk_bytes.at(piece.of_class));
    places.push_back({piece.of_class, piece.place});
  }
  SlotHeader header = {.chunk_positions = static_cast<uint32_t>(options.chunk_positions),
                       .model = options.model,
                       .tenant = contents.tenant,
                       .layout = LayoutOf(options),
                       .tokens = contents.tokens.size(),
                       .pieces = places.size(),
                       .piece_bytes = contents.bytes()};
  XXH3_state_t checksum;
  XXH3_64bits_reset_withSeed(&checksum, SlotSeedOf(header, contents.tokens, places));
  for (const SlotPiece& piece : contents.pieces)
    XXH3_64bits_update(&checksum, piece.bytes.data(), piece.bytes.size());
  header.checksum = XXH3_64bits_digest(&checksum);
  const size_t token_bytes = contents.tokens.size() * sizeof(int32_t);
  const size_t place_bytes = places.size() * sizeof(SlotPlace);
  NewFile file(path, FileReaders::kOwner);
  file.Write(reinterpret_cast<const char*>(&header), sizeof header);
  file.Write(reinterpret_cast<const char*>(contents.tokens.data()), token_bytes);
  file.Write(reinterpret_cast<const char*>(places.data()), place_bytes);
  for (const SlotPiece& piece : contents.pieces)
    file.Write(reinterpret_cast<const char*>(piece.bytes.data()), piece.bytes.size());
  file.Commit();
  return sizeof header + token_bytes + place_bytes + header.piece_bytes;
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
  if (header.pieces > file_bytes / sizeof(SlotPlace) || header.piece_bytes > file_bytes ||
      file_bytes != sizeof header + header.tokens * sizeof(int32_t) +
                        header.pieces * sizeof(SlotPlace) + header.piece_bytes)
    throw Error("{}: its length is wrong", path);
  SlotContents contents;
  contents.tenant = header.tenant;
  contents.tokens.resize(header.tokens);
  read_all(contents.tokens.data(), header.tokens * sizeof(int32_t));
  std::vector<SlotPlace> places(header.pieces);
  read_all(places.data(), header.pieces * sizeof(SlotPlace));
  XXH3_state_t checksum;
  XXH3_64bits_reset_withSeed(&checksum, SlotSeedOf(header, contents.tokens, places));
  const auto read_bytes = [&](std::span<uint8_t> to) {
    read_all(to.data(), to.size());
    XXH3_64bits_update(&checksum, to.data(), to.size());
  };
  if (header.pieces > 0 && header.layout == LayoutOf(options)) {
    CheckPlaces(path, options, places, header.tokens);
    uint64_t left = header.piece_bytes;
    for (const SlotPlace& of : places) {
      SlotPiece& piece = contents.pieces.emplace_back(SlotPiece{of.of_class, of.place});
      const uint64_t bytes = options.chunk_bytes[of.of_class];
      if (bytes > left) throw Error("{}: its length is wrong", path);
      left -= bytes;
      piece.bytes.resize(bytes);
      read_bytes(piece.bytes);
    }
    if (left > 0) throw Error("{}: its length is wrong", path);
  } else {  // what is laid out otherwise is not kept, however much it is
    std::vector<uint8_t> some(kSlotReadBytes);
    for (uint64_t left = header.piece_bytes; left > 0;) {
      const size_t bytes = std::min<uint64_t>(some.size(), left);
      read_bytes(std::span(some).first(bytes));
      left -= bytes;
    }
  }
  if (header.checksum != XXH3_64bits_digest(&checksum))
    throw Error("{}: its checksum is wrong", path);
  for (const int32_t token : contents.tokens) {
    if (token < 0 || static_cast<size_t>(token) >= options.vocab)
      throw Error("{}: its token {} is not one of the vocabulary's {}", path, token, options.vocab);
  }
  return contents;
}

}  // namespace larder::pipeline::kv_store
