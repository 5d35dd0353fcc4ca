#include "pipeline/kv_store/kv_store.h"

#include "pipeline/kv_store/chain_kv_tier.h"
#include "pipeline/kv_store/kv_mover.h"

namespace larder::pipeline::inline kv_store {
namespace {

constexpr uint64_t kIndexPart = 16;  // tickets and tokens are small beside chunks

}  // namespace

KvStore::KvStore(const KvPartOptions& options, const std::string& socket, uint64_t identity,
                 const KvChunksShape& shape, KvChannel& channel)
    : here_(channel.orders() == nullptr),
      files_({.folder = here_ ? options.folder : options.folder + "/" + socket,
              .most_bytes = here_ ? options.most_bytes : options.most_bytes / kIndexPart,
              .model = identity,
              .chunk_positions = shape.chunk_positions,
              .chunk_bytes = here_ ? channel.Memory(0).size() : sizeof(KvTicket)}) {
  if (here_) {
    tier_ = std::make_unique<KvMover>(
        files_, KvMover::Options{.cpus = options.cpus, .on_problem = options.on_problem});
  } else {
    tier_ = std::make_unique<ChainKvTier>(channel, files_, options.on_problem);
  }
}

}  // namespace larder::pipeline::kv_store
