#include "pipeline/kv_store/kv_store.h"

#include "pipeline/kv_store/chain_kv_tier.h"
#include "pipeline/kv_store/kv_mover.h"

namespace larder::pipeline::inline kv_store {
namespace {

constexpr uint64_t kIndexPart = 16;  // tickets and tokens are small beside chunks

}  // namespace

std::vector<size_t> ChunkBytes(const KvChunksShape& shape, KvChannel& channel) {
  std::vector<size_t> bytes;
  for (size_t c = 0; c < shape.classes.size() && !channel.Memory(0).empty(); ++c) {
    const size_t first = c == 0 ? 0 : shape.chunk_ends[c - 1];
    bytes.push_back(channel.Memory(static_cast<uint32_t>(first)).size());
  }
  return bytes;
}

KvStore::KvStore(const KvPartOptions& options, const std::string& socket, uint64_t identity,
                 const KvChunksShape& shape, KvChannel& channel)
    : here_(channel.orders() == nullptr),
      files_({.folder = here_ ? options.folder : options.folder + "/" + socket,
              .most_bytes = here_ ? options.most_bytes : options.most_bytes / kIndexPart,
              .model = identity,
              .chunk_positions = shape.chunk_positions,
              .chunk_bytes = here_ ? ChunkBytes(shape, channel)
                                   : std::vector(shape.classes.size(), sizeof(KvTicket)),
              .classes = shape.classes}) {
  KvMover::Options mover = {.on_problem = options.on_problem};
  if (here_) mover.cpus = options.cpus;
  tier_ = std::make_unique<KvMover>(files_, std::move(mover));
  if (!here_) {
    tier_ = std::make_unique<ChainKvTier>(channel, files_, std::move(tier_), options.on_problem);
  }
}

}  // namespace larder::pipeline::kv_store
