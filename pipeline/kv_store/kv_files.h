// KvFiles: KV chunks in the files of a folder. A chunk's keys and values are a function of the
// model and of all tokens up to its end, so a file has these tokens, and the chunk is used only
// where they are equal; the file's name is their hash, which finds it, and its format's number.
// A file that is not what it should be (another computation's, cut short, changed) is never used,
// and removed when its process meets it: then the tokens are computed. Those of other formats are
// removed at once.
//
// The folder belongs to one process at a time. Files are written under another name, synced and
// renamed; the ones unused for longest are removed as far as the limit demands. Other processes'
// folders can be read beside it: their files count for nothing here, and stay as they are, but for
// when they were last used, which their process sees before it removes one.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/own_folder.h"
#include "pipeline/kv_store/kv_tier.h"

namespace larder::pipeline::inline kv_store {

struct KvFilesOptions {
  std::string folder;  // made if it is not there
  // Of other processes of this user, for Read and Touch.
  std::vector<std::string> others = {};
  uint64_t most_bytes = 0;  // of all files together
  uint64_t model = 0;       // the computation's identity (pipeline/plan/identity.h)
  size_t chunk_positions = 0, chunk_bytes = 0;
};

class KvFiles {
 public:
  // Looks at the folder's files, and removes those beyond the limit and those of other formats.
  // Throws Error: it cannot be made, is another user's, is open to others, or is in use.
  explicit KvFiles(const KvFilesOptions&);

  const KvFilesOptions& options() const { return options_; }
  const KvFilesStatus& status() const { return status_; }

  // How many whole chunks from the beginning of the tokens there are, by name. Any thread.
  size_t Find(std::span<const int32_t> tokens, uint64_t tenant) const;

  // The following are one thread's.

  // Called between pieces of a file, with the bytes since the last call: may sleep.
  using Pace = std::function<void(size_t bytes)>;
  // Writes the last chunk of `tokens`, which are whole chunks. Does nothing if it is there or
  // larger than the limit. Throws Error; then there is no file of it.
  void Write(std::span<const int32_t> tokens, uint64_t tenant, std::span<const uint8_t> chunk,
             const Pace& pace = {});
  // Reads the last chunk of `tokens`, from the folder or another one. Returns false if it is not
  // there any more. Throws Error, which names the file and says what was wrong: it is removed, if
  // it is in this folder; or a folder in which it may be, and that is not there, another user's or
  // open to others. `chunk` has any bytes then. It is written past the caches, which are for
  // weights.
  bool Read(std::span<const int32_t> tokens, uint64_t tenant, std::span<uint8_t> chunk,
            const Pace& pace = {});
  // Removes the last chunk of `tokens`.
  void Forget(std::span<const int32_t> tokens, uint64_t tenant);
  // All chunks of `tokens` have been used, the first ones last: so these are removed last.
  void Touch(std::span<const int32_t> tokens, uint64_t tenant);

 private:
  using Key = std::array<uint64_t, 2>;
  struct KeyHash {
    size_t operator()(const Key& key) const { return key[0]; }
  };
  struct File {
    Key key;
    uint64_t bytes;
    int64_t used_ns;  // since the epoch, as the file's time of modification
  };
  class Keys;  // of a sequence's chunks, one after the other

  static std::string NameOf(const Key& key);
  std::string PathOf(const Key& key) const;
  bool Has(const Key& key) const;
  void Add(const Key& key, uint64_t bytes, int64_t used_ns);
  // Marks an own file as used then. Returns whether there is one.
  bool Use(const Key& key, int64_t when_ns);
  // Returns whether another process has used it since this one knew of it.
  bool UsedMeanwhile(const Key& key);
  void Remove(const Key& key);
  void MakeRoom(uint64_t bytes);
  void Scan();
  std::string Problem(int fd, std::span<const int32_t> tokens, uint64_t tenant,
                      std::span<uint8_t> chunk, const Pace& pace) const;

  const KvFilesOptions options_;
  KvFilesStatus status_;
  const OwnFolder folder_;
  mutable std::mutex mutex_;
  std::list<File> files_;  // the last used one first
  std::unordered_map<Key, std::list<File>::iterator, KeyHash> index_;
};

// For people: what KvFilesStatus::outdated says.
std::string OutdatedText(uint64_t files);

}  // namespace larder::pipeline::kv_store
