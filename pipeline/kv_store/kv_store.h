// KvStore: the KV chunks that a process keeps of ended sequences: the files of its folder, and who
// moves chunks to them and back: the chunks themselves, if they are in this process, otherwise
// orders to the sockets that hold them, and an index.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "pipeline/kv/kv_channel.h"
#include "pipeline/kv/kv_chunks.h"
#include "pipeline/kv_store/kv_files.h"
#include "pipeline/kv_store/kv_part.h"
#include "pipeline/kv_store/kv_tier.h"

namespace larder::pipeline::inline kv_store {

class KvStore {
 public:
  // Of a chain the index is in options.folder/socket, a folder of this socket's name. identity: of
  // the computation (pipeline/plan/identity.h). channel: of the engine; must outlive the result.
  // Throws Error: the folder can't be used.
  KvStore(const KvPartOptions& options, const std::string& socket, uint64_t identity,
          const KvChunksShape& shape, KvChannel& channel);

  bool here() const { return here_; }  // whether the files have the chunks
  const KvFiles& files() const { return files_; }
  KvTier& tier() { return *tier_; }

 private:
  const bool here_;
  KvFiles files_;
  std::unique_ptr<KvTier> tier_;
};

}  // namespace larder::pipeline::kv_store
