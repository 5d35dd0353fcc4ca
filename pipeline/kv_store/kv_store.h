// KvStore: what a process needs to keep KV chunks of ended sequences: the files of its folder, and
// the tier that moves chunks to them and back. If the chunks are in this process, the files have
// the chunks; otherwise they are an index, and orders go to the sockets that hold the chunks.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "pipeline/kv/kv_channel.h"
#include "pipeline/kv/kv_chunks.h"
#include "pipeline/kv_store/kv_files.h"
#include "pipeline/kv_store/kv_part.h"
#include "pipeline/kv_store/kv_tier.h"

namespace larder::pipeline::inline kv_store {

// [class of memory]: of a chunk; none, if they are not in this process.
std::vector<size_t> ChunkBytes(const KvChunksShape& shape, KvChannel& channel);

class KvStore {
 public:
  // For a chain the index is in options.folder/socket, a folder of this socket's name. identity: of
  // the computation (pipeline/plan/identity.h). channel: the engine's; must outlive the result.
  // Throws Error if the folder can't be used.
  KvStore(const KvPartOptions& options, const std::string& socket, uint64_t identity,
          const KvChunksShape& shape, KvChannel& channel);

  bool here() const { return here_; }  // whether the files have the chunks, not an index
  const KvFiles& files() const { return files_; }
  KvTier& tier() { return *tier_; }

 private:
  const bool here_;
  KvFiles files_;
  std::unique_ptr<KvTier> tier_;
};

}  // namespace larder::pipeline::kv_store
