// KvFiles: KV chunks in the files of a folder. A chunk's keys and values, or states, are a function
// of the model and of all tokens up to its end. So a file contains these tokens, and its chunk is
// used only for equal ones. The file's name is the hash of the tokens, by which it is found, and
// the number of the format. A file that is wrong (of another computation, cut short, changed) is
// never used; the process that owns the folder removes it when it meets it, and the tokens are
// computed. Files of other formats are removed at the start.
//
// The folder belongs to one process at a time. Files are written under another name, synced and
// renamed; at the limit the ones unused for longest are removed. Folders of other processes can be
// read too. Their files do not count towards the limit and are not changed, except for the time of
// last use, which their process looks at before it removes one.
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
#include "pipeline/kv/kv_needs.h"
#include "pipeline/kv_store/kv_tier.h"
#include "topology/scattered_bytes.h"

namespace larder::pipeline::inline kv_store {

struct KvFilesOptions {
  std::string folder;  // made if it is missing
  // Folders of other processes of this user, for Read and Touch.
  std::vector<std::string> others = {};
  uint64_t most_bytes = 0;  // limit for all files together
  uint64_t model = 0;       // the computation's identity (pipeline/plan/identity.h)
  size_t chunk_positions = 0;
  std::vector<size_t> chunk_bytes = {};                      // [class of memory]
  std::vector<model::KvClass> classes = {model::KvClass{}};  // which Find needs
};

class KvFiles {
 public:
  // Reads the list of files, and removes those beyond the limit and those of other formats. Throws
  // Error if the folder cannot be made, belongs to another user, is open to others, or is in use.
  explicit KvFiles(const KvFilesOptions&);

  const KvFilesOptions& options() const { return options_; }
  const KvFilesStatus& status() const { return status_; }

  // KvTier::Find and FindPieces, by the names of files. Any thread.
  size_t Find(std::span<const int32_t> tokens, uint64_t tenant) const;
  void FindPieces(KvJob& job) const;

  // The following functions are for one thread.

  // Called between pieces of a file, with the bytes since the last call. It may sleep.
  using Pace = std::function<void(size_t bytes)>;
  // Writes the last chunk of `tokens`, which are whole chunks, of a class. Does nothing if the file
  // exists or would exceed the limit. Throws Error; then there is no file.
  void Write(std::span<const int32_t> tokens, uint64_t tenant, size_t of_class,
             const topology::ScatteredBytes& chunk, const Pace& pace = {});
  // Reads the last chunk of `tokens`, from this folder or another one. Returns false if it is gone.
  // Throws an Error that names the file and says what was wrong with it (in this folder the file is
  // then removed), or names a folder that is missing, belongs to another user or is open to others.
  // After an Error the contents of `chunk` are undefined. Stores to `chunk` bypass the caches,
  // which are for weights.
  bool Read(std::span<const int32_t> tokens, uint64_t tenant, size_t of_class,
            const topology::ScatteredBytes& chunk, const Pace& pace = {});
  // Removes the last chunk of `tokens`.
  void Forget(std::span<const int32_t> tokens, uint64_t tenant, size_t of_class);
  // Marks the job's pieces as used, the first ones last, so that those are removed last.
  void Touch(const KvJob& job);

 private:
  using Key = std::array<uint64_t, 2>;
  struct KeyHash {
    size_t operator()(const Key& key) const { return key[0]; }
  };
  struct File {
    Key key;
    uint64_t bytes;
    int64_t used_ns;  // ns since the epoch, the file's time of modification
  };
  class Keys;  // makes the keys of a sequence's chunks, one after the other

  static std::string NameOf(const Key& key);
  std::string PathOf(const Key& key) const;
  bool Has(const Key& key) const;
  void Add(const Key& key, uint64_t bytes, int64_t used_ns);
  // Marks a file of this folder as used at that time. Returns whether it exists.
  bool Use(const Key& key, int64_t when_ns);
  // Returns whether another process has used the file since this one last looked.
  bool UsedMeanwhile(const Key& key);
  void Remove(const Key& key);
  void MakeRoom(uint64_t bytes);
  void Scan();
  std::string Problem(int fd, std::span<const int32_t> tokens, uint64_t tenant, size_t of_class,
                      const topology::ScatteredBytes& chunk, const Pace& pace) const;
  // Whether a sequence can go on behind `chunks` chunks; has: [class][chunk].
  bool CanGoOn(size_t chunks, const std::vector<std::vector<bool>>& has) const;

  const KvFilesOptions options_;
  KvFilesStatus status_;
  const OwnFolder folder_;
  mutable std::mutex mutex_;
  std::list<File> files_;  // the last used one first
  std::unordered_map<Key, std::list<File>::iterator, KeyHash> index_;
};

// A sentence for people about KvFilesStatus::outdated.
std::string OutdatedText(uint64_t files);

}  // namespace larder::pipeline::kv_store
