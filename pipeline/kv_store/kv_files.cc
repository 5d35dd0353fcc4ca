#include "pipeline/kv_store/kv_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#define XXH_INLINE_ALL  // no library to link
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <tuple>

#include "base/check.h"
#include "base/descriptor.h"
#include "base/error.h"
#include "base/new_file.h"
#include "kernels/rows/stream_copy.h"
#include "pipeline/kv_store/read_all.h"

namespace larder::pipeline::inline kv_store {
namespace {

// The version of the file's layout and of pages. The arithmetic is part of the computation's
// identity. Since version 2 `model` is that identity (in version 1, a hash of the weights).
constexpr uint32_t kVersion = 2;
constexpr char kExtension[] = ".kv";
constexpr size_t kNameBytes = 32;  // hexadecimal digits
constexpr int kRead = O_RDONLY | O_CLOEXEC | O_NOFOLLOW;
constexpr size_t kPieceBytes = 1 << 20;  // written between two calls of Pace
constexpr size_t kReadBytes = 64 << 10;  // the same, read: through a buffer that stays in L2

// What follows a name's hash: ".2.kv".
const std::string& Suffix() {
  static const std::string suffix = fmt::format(".{}{}", kVersion, kExtension);
  return suffix;
}

// What a name in the folder says.
enum class NameKind { kNotOurs, kChunk, kRest, kOutdated };
NameKind KindOf(std::string_view name) {
  if (name.find_first_not_of("0123456789abcdef") != kNameBytes) return NameKind::kNotOurs;
  const std::string_view rest = name.substr(kNameBytes);
  if (rest == Suffix()) return NameKind::kChunk;
  if (rest.front() != '.') return NameKind::kNotOurs;
  if (rest.ends_with(".kv.tmp")) return NameKind::kRest;
  return rest.ends_with(kExtension) ? NameKind::kOutdated : NameKind::kNotOurs;
}

struct Header {
  char magic[8] = {'L', 'A', 'R', 'D', 'E', 'R', 'K', 'V'};
  uint32_t version = kVersion;
  uint32_t chunk_positions = 0;
  uint64_t model = 0, tenant = 0;
  uint64_t tokens = 0, chunk_bytes = 0;
  uint64_t checksum = 0;  // XXH3 of the tokens and of the chunk
};
static_assert(sizeof(Header) == 56);

uint64_t SeedOf(std::span<const int32_t> tokens, size_t of_class) {
  return XXH3_64bits(tokens.data(), tokens.size_bytes()) + of_class;
}
// Of the tokens; the chunk's bytes are to follow.
XXH3_state_t ChecksumOf(std::span<const int32_t> tokens, size_t of_class) {
  XXH3_state_t checksum;
  XXH3_INITSTATE(&checksum);
  XXH3_64bits_reset_withSeed(&checksum, SeedOf(tokens, of_class));
  return checksum;
}

uint64_t ChecksumOf(std::span<const int32_t> tokens, size_t of_class,
                    const topology::ScatteredBytes& chunk) {
  XXH3_state_t checksum = ChecksumOf(tokens, of_class);
  for (const std::span<uint8_t> piece : chunk.pieces())
    XXH3_64bits_update(&checksum, piece.data(), piece.size());
  return XXH3_64bits_digest(&checksum);
}

int64_t NsOf(const timespec& time) { return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec; }

timespec Now() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return now;
}

// Another process's folder; null: `why`.
Descriptor OpenFolderOfOther(const std::string& path, std::string& why) {
  try {
    return OpenOwnFolder(path);
  } catch (const Error& error) {
    why = error.what();
    return Descriptor();
  }
}

// A file of it; null if there is none, or no regular file.
Descriptor OpenFileOfOther(const Descriptor& folder, const std::string& name) {
  Descriptor file(::openat(folder.get(), name.c_str(), kRead | O_NONBLOCK));
  struct stat about {};
  if (file && (::fstat(file.get(), &about) != 0 || !S_ISREG(about.st_mode))) return Descriptor();
  return file;
}

}  // namespace

class KvFiles::Keys {
 public:
  Keys(const KvFilesOptions& options, std::span<const int32_t> tokens, uint64_t tenant)
      : options_(options), tokens_(tokens) {
    const uint64_t of[] = {kVersion, options.model, tenant, options.chunk_positions,
                           options.chunk_bytes.front()};
    XXH3_128bits_reset(&state_);
    XXH3_128bits_update(&state_, of, sizeof of);
  }
  // Goes on to the next chunk; false: no whole one is left.
  bool Next() {
    const size_t positions = options_.chunk_positions;
    if (tokens_.size() < positions) return false;
    XXH3_128bits_update(&state_, tokens_.data(), positions * sizeof(int32_t));
    tokens_ = tokens_.subspan(positions);
    return true;
  }
  // The key of what a class has in that chunk.
  Key Of(size_t of_class) const {
    XXH3_state_t state = state_;
    const uint64_t of[] = {of_class, options_.chunk_bytes[of_class]};
    if (of_class > 0) XXH3_128bits_update(&state, of, sizeof of);
    const XXH128_hash_t hash = XXH3_128bits_digest(&state);
    return {hash.high64, hash.low64};
  }
  Key Last(size_t of_class) {
    while (Next()) {
    }
    return Of(of_class);
  }

 private:
  const KvFilesOptions& options_;
  std::span<const int32_t> tokens_;
  XXH3_state_t state_;
};

std::string OutdatedText(uint64_t files) {
  return fmt::format(
      "{} KV file{} of another version of larder removed; this one has format {}: their tokens are "
      "computed again",
      files, files == 1 ? "" : "s", kVersion);
}

KvFiles::KvFiles(const KvFilesOptions& options) : options_(options), folder_(options_.folder) {
  LARDER_CHECK(options_.chunk_positions > 0 && !options_.chunk_bytes.empty());
  Scan();
}

// Fills the index with the files that are there, in the order of their last uses.
void KvFiles::Scan() {
  std::vector<File> found;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(options_.folder.c_str()), &::closedir);
  if (folder == nullptr)
    throw Error("{}: can't read the folder: {}", options_.folder, std::strerror(errno));
  while (const dirent* entry = ::readdir(folder.get())) {
    const std::string name = entry->d_name;
    const NameKind kind = KindOf(name);
    if (kind == NameKind::kNotOurs) continue;
    if (kind != NameKind::kChunk) {
      const bool gone = ::unlinkat(::dirfd(folder.get()), name.c_str(), 0) == 0;
      if (gone && kind == NameKind::kOutdated)
        status_.outdated.fetch_add(1, std::memory_order_relaxed);
      continue;
    }
    struct stat about {};
    if (::fstatat(::dirfd(folder.get()), name.c_str(), &about, AT_SYMLINK_NOFOLLOW) != 0) continue;
    if (!S_ISREG(about.st_mode)) continue;
    const Key key = {std::stoull(name.substr(0, 16), nullptr, 16),
                     std::stoull(name.substr(16, 16), nullptr, 16)};
    found.push_back({key, static_cast<uint64_t>(about.st_size), NsOf(about.st_mtim)});
  }
  // Among files used at the same time the longer come first, which are later parts of a sequence:
  // they are removed first.
  std::ranges::sort(found, {},
                    [](const File& of) { return std::tuple(of.used_ns, ~of.bytes, of.key); });
  for (const File& of : found) Add(of.key, of.bytes, of.used_ns);
  MakeRoom(0);
}

std::string KvFiles::NameOf(const Key& key) {
  return fmt::format("{:016x}{:016x}{}", key[0], key[1], Suffix());
}

std::string KvFiles::PathOf(const Key& key) const { return options_.folder + "/" + NameOf(key); }

bool KvFiles::Has(const Key& key) const {
  const std::lock_guard lock(mutex_);
  return index_.contains(key);
}

size_t KvFiles::Find(std::span<const int32_t> tokens, uint64_t tenant) const {
  Keys keys(options_, tokens, tenant);
  std::vector<std::vector<bool>> has(options_.classes.size());
  // Without the chunks of all positions no later ones are of use.
  for (size_t chunks = 0; keys.Next(); ++chunks) {
    for (size_t c = 0; c < has.size(); ++c) has[c].push_back(Has(keys.Of(c)));
    const model::KvClass& first = options_.classes.front();
    if (!first.states && first.window == 0 && !has.front().back()) break;
  }
  size_t chunks = has.front().size();
  while (chunks > 0 && !CanGoOn(chunks, has)) --chunks;
  return chunks;
}

bool KvFiles::CanGoOn(size_t chunks, const std::vector<std::vector<bool>>& has) const {
  const size_t positions = options_.chunk_positions;
  for (size_t c = 0; c < has.size(); ++c) {
    const Range<size_t> needed = NeededBehind(options_.classes[c], chunks, positions);
    for (size_t i = needed.begin; i < needed.end; ++i) {
      if (!has[c][i]) return false;
    }
  }
  return true;
}

void KvFiles::FindPieces(KvJob& job) const {
  Keys keys(options_, job.tokens, job.tenant);
  size_t chunks = 0;
  for (KvPiece& piece : job.pieces) {
    for (; chunks <= piece.index; ++chunks) LARDER_CHECK(keys.Next());
    piece.moves = piece.moves && !Has(keys.Of(piece.of_class));
  }
}

void KvFiles::Add(const Key& key, uint64_t bytes, int64_t used_ns) {
  const std::lock_guard lock(mutex_);
  files_.push_front({key, bytes, used_ns});
  index_[key] = files_.begin();
  status_.bytes.fetch_add(bytes, std::memory_order_relaxed);
  status_.files.fetch_add(1, std::memory_order_relaxed);
}

void KvFiles::Remove(const Key& key) {
  ::unlink(PathOf(key).c_str());
  const std::lock_guard lock(mutex_);
  const auto at = index_.find(key);
  if (at == index_.end()) return;
  status_.bytes.fetch_sub(at->second->bytes, std::memory_order_relaxed);
  status_.files.fetch_sub(1, std::memory_order_relaxed);
  files_.erase(at->second);
  index_.erase(at);
}

// Removes files until there is room for so many bytes more.
void KvFiles::MakeRoom(uint64_t bytes) {
  while (status_.bytes.load(std::memory_order_relaxed) + bytes > options_.most_bytes) {
    Key oldest;
    {
      const std::lock_guard lock(mutex_);
      if (files_.empty()) return;
      oldest = files_.back().key;
    }
    if (!UsedMeanwhile(oldest)) Remove(oldest);
  }
}

void KvFiles::Write(std::span<const int32_t> tokens, uint64_t tenant, size_t of_class,
                    const topology::ScatteredBytes& chunk, const Pace& pace) {
  LARDER_CHECK(!tokens.empty() && tokens.size() % options_.chunk_positions == 0 &&
               chunk.size() == options_.chunk_bytes.at(of_class));
  const Key key = Keys(options_, tokens, tenant).Last(of_class);
  const Header header = {.chunk_positions = static_cast<uint32_t>(options_.chunk_positions),
                         .model = options_.model,
                         .tenant = tenant,
                         .tokens = tokens.size(),
                         .chunk_bytes = chunk.size(),
                         .checksum = ChecksumOf(tokens, of_class, chunk)};
  const uint64_t bytes = sizeof header + tokens.size_bytes() + chunk.size();
  if (Has(key) || bytes > options_.most_bytes) return;
  MakeRoom(bytes);
  try {
    NewFile file(PathOf(key), FileReaders::kOwner);
    file.Write(reinterpret_cast<const char*>(&header), sizeof header);
    file.Write(reinterpret_cast<const char*>(tokens.data()), tokens.size_bytes());
    chunk.ForEach(kPieceBytes, [&](std::span<uint8_t> piece) {
      file.Write(reinterpret_cast<const char*>(piece.data()), piece.size());
      if (pace) pace(piece.size());
    });
    file.Commit();
  } catch (const Error&) {
    status_.failed.fetch_add(1, std::memory_order_relaxed);
    throw;
  }
  Add(key, bytes, NsOf(Now()));
  status_.written.fetch_add(1, std::memory_order_relaxed);
}

// What is wrong with the file; empty: `chunk` has been read.
std::string KvFiles::Problem(int fd, std::span<const int32_t> tokens, uint64_t tenant,
                             size_t of_class, const topology::ScatteredBytes& chunk,
                             const Pace& pace) const {
  Header header, expected;
  if (!ReadAll(fd, &header, sizeof header)) return "it is too short";
  if (std::memcmp(header.magic, expected.magic, sizeof header.magic) != 0)
    return "it is no KV chunk";
  if (header.version != kVersion)
    return fmt::format("it is of format {}; this larder reads {}", header.version, kVersion);
  if (header.model != options_.model)
    return "it is of another model, of other settings of it, or of another arithmetic";
  if (header.tenant != tenant || header.tokens != tokens.size() ||
      header.chunk_bytes != chunk.size() || header.chunk_positions != options_.chunk_positions)
    return "it is another sequence's";
  std::vector<int32_t> of(tokens.size());
  if (!ReadAll(fd, of.data(), tokens.size_bytes())) return "it is too short";
  if (!std::ranges::equal(of, tokens)) return "it has other tokens";
  XXH3_state_t checksum = ChecksumOf(tokens, of_class);
  std::vector<uint8_t> read(kReadBytes);
  bool too_short = false;
  chunk.ForEach(kReadBytes, [&](std::span<uint8_t> piece) {
    too_short = too_short || !ReadAll(fd, read.data(), piece.size());
    if (too_short) return;
    XXH3_64bits_update(&checksum, read.data(), piece.size());
    kernels::StreamCopy(piece.data(), read.data(), piece.size());
    if (pace) pace(piece.size());
  });
  if (too_short) return "it is too short";
  char more;
  if (ReadAll(fd, &more, 1)) return "it is too long";
  if (header.checksum != XXH3_64bits_digest(&checksum)) return "its checksum is wrong";
  return "";
}

bool KvFiles::Read(std::span<const int32_t> tokens, uint64_t tenant, size_t of_class,
                   const topology::ScatteredBytes& chunk, const Pace& pace) {
  LARDER_CHECK(!tokens.empty() && tokens.size() % options_.chunk_positions == 0 &&
               chunk.size() == options_.chunk_bytes.at(of_class));
  const Key key = Keys(options_, tokens, tenant).Last(of_class);
  const bool own = Has(key);
  std::string path = PathOf(key);
  Descriptor file;
  if (own) {
    file = Descriptor(::open(path.c_str(), kRead));
  } else {
    std::string why;
    for (auto other = options_.others.begin(); !file && other != options_.others.end(); ++other) {
      path = *other + "/" + NameOf(key);
      if (const Descriptor folder = OpenFolderOfOther(*other, why))
        file = OpenFileOfOther(folder, NameOf(key));
    }
    if (!file && !why.empty()) {
      status_.refused.fetch_add(1, std::memory_order_relaxed);
      throw Error(
          "{}; what its socket has stored is computed again here. The sockets that hold KV of the "
          "same layers need one cache_dir",
          why);
    }
    if (!file) return false;
  }
  const std::string problem = file ? Problem(file.get(), tokens, tenant, of_class, chunk, pace)
                                   : std::string(std::strerror(errno));
  if (!problem.empty()) {
    if (own) Remove(key);
    status_.refused.fetch_add(1, std::memory_order_relaxed);
    throw Error("{}: {}; {}its tokens are computed again", path, problem,
                own ? "removed, and " : "");
  }
  status_.read.fetch_add(1, std::memory_order_relaxed);
  return true;
}

void KvFiles::Forget(std::span<const int32_t> tokens, uint64_t tenant, size_t of_class) {
  Remove(Keys(options_, tokens, tenant).Last(of_class));
}

void KvFiles::Touch(const KvJob& job) {
  std::vector<Key> used;
  Keys keys(options_, job.tokens, job.tenant);
  size_t chunks = 0;
  for (const KvPiece& piece : job.pieces) {
    for (; chunks <= piece.index; ++chunks) LARDER_CHECK(keys.Next());
    used.push_back(keys.Of(piece.of_class));
  }
  const timespec now = Now(), times[] = {now, now};
  std::string ignored;
  for (auto key = used.rbegin(); key != used.rend(); ++key) {
    if (Use(*key, NsOf(now))) {
      ::utimensat(AT_FDCWD, PathOf(*key).c_str(), times, AT_SYMLINK_NOFOLLOW);
      continue;
    }
    for (const std::string& other : options_.others) {
      if (const Descriptor folder = OpenFolderOfOther(other, ignored))
        ::utimensat(folder.get(), NameOf(*key).c_str(), times, AT_SYMLINK_NOFOLLOW);
    }
  }
}

bool KvFiles::Use(const Key& key, int64_t when_ns) {
  const std::lock_guard lock(mutex_);
  const auto at = index_.find(key);
  if (at == index_.end()) return false;
  at->second->used_ns = when_ns;
  const auto before = std::ranges::find_if(
      files_, [&](int64_t used_ns) { return used_ns <= when_ns; }, &File::used_ns);
  files_.splice(before, files_, at->second);
  return true;
}

bool KvFiles::UsedMeanwhile(const Key& key) {
  struct stat about {};
  if (::lstat(PathOf(key).c_str(), &about) != 0) return false;
  const int64_t used_ns = NsOf(about.st_mtim);
  {
    const std::lock_guard lock(mutex_);
    if (used_ns <= index_.at(key)->used_ns) return false;
  }
  return Use(key, used_ns);
}

}  // namespace larder::pipeline::kv_store
