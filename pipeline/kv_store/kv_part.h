// KvPart: a socket's part of the KV chunks of a chain, and its own files of them. A chunk's keys
// and values lie in as many parts as the chain has stages; each part does what the serving socket
// orders (pipeline/kv/kv_order.h), under a ticket that says nothing about tokens, and reports how
// it ended. The thread that computes the socket's micro-batches gives it orders between two of
// them; files are read and written by a thread of low priority.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "pipeline/kv/kv_order.h"
#include "pipeline/kv_store/kv_files.h"
#include "pipeline/kv_store/kv_mover.h"
#include "topology/scattered_bytes.h"

namespace larder::pipeline::inline kv_store {

struct KvPartOptions {
  std::string folder;       // each socket has a folder of its name in it; empty: no files, and all
                            // orders fail
  uint64_t most_bytes = 0;  // limit for a socket's files
  // Called on another thread with a line for people.
  std::function<void(const std::string&)> on_problem = [](const std::string&) {};
  std::vector<CpuId> cpus;  // KvMover::Options::cpus
  int stuck_ms = 10'000;    // how long a file may delay the next chain
};

class KvPart {
 public:
  // Other sockets of this server that hold the same layers for other sequences. Their files are
  // loaded, too, since a sequence may move from there to here.
  using Siblings = std::vector<std::string>;
  // A socket's chunks: pools as KvShape's (attention_node/kv_region.h), those of each class of one
  // size.
  struct Chunks {
    std::vector<size_t> pools;
    size_t classes = 1;
    std::function<topology::ScatteredBytes(uint32_t chunk)> memory;
  };

  // model: StagePlan::identity(), everything that the bytes of chunks depend on besides tokens.
  // Throws Error if the folder can't be used.
  KvPart(const KvPartOptions& options, const std::string& socket, uint64_t model, Chunks chunks,
         const Siblings& siblings = {});

  // Begins the orders, loads first, otherwise in their sequence. They must have been checked. An
  // order whose place is still in use is ignored.
  void Take(std::span<const KvOrder> orders);
  // Updates the report.
  void Collect();
  const KvReport& report() const { return report_; }
  // Forgets all orders. When it returns, nothing writes to a chunk. If a read or write of a file
  // does not end within stuck_ms, the process ends (status 75, with a line): as long as it lives,
  // the chunk is not safe.
  void Abandon();

 private:
  void End(uint32_t place, bool failed);
  size_t ClassOf(uint32_t chunk) const;

  const KvPartOptions options_;
  const Chunks chunks_;
  std::unique_ptr<KvFiles> files_;
  std::unique_ptr<KvMover> mover_;  // null: no files
  KvReport report_{.done = ~uint64_t{0}};
};

}  // namespace larder::pipeline::kv_store
