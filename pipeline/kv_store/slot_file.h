// One sequence's KV cache in a file of a name that a user gives: its tokens and, where the KV cache
// is in this process, what its chunks have: keys and values of each class of memory, and states.
// Useless to another model, refused when it is damaged,
// complete or not there. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "pipeline/kv/kv_needs.h"

namespace larder::pipeline::inline kv_store {

// What a chunk has (KvChunks::PiecesAt).
struct SlotPiece {
  uint32_t of_class = 0;  // of memory
  uint32_t place = 0;     // the chunk's index in the sequence; of states, their position
  std::vector<uint8_t> bytes = {};
  bool operator==(const SlotPiece&) const = default;
};

struct SlotContents {
  std::vector<int32_t> tokens;
  uint64_t tenant = 0;  // the tenant for whom they were computed
  // All that it needs to go on behind its tokens, by class and place; empty: the tokens are to be
  // computed again.
  std::vector<SlotPiece> pieces;
  size_t bytes() const;  // of these
};

struct SlotFileOptions {
  uint64_t model = 0;  // the computation's identity (pipeline/plan/identity.h)
  size_t context = 0, vocab = 0, chunk_positions = 0;
  std::vector<size_t> chunk_bytes = {};  // [class of memory]; none: chunks are elsewhere, and files
                                         // have no pieces
  std::vector<model::KvClass> classes = {model::KvClass{}};
};

// Returns the size of the file in bytes. Throws Error; then a file of that name is unchanged.
size_t WriteSlotFile(const std::string& path, const SlotFileOptions& options,
                     const SlotContents& contents);
// The result has no pieces if the file has none, or if its chunks have another layout than here.
// Throws Error if the file is missing or wrong, or its pieces are not all that its tokens need.
SlotContents ReadSlotFile(const std::string& path, const SlotFileOptions& options);
// The tenant for whom a saved slot was computed, from the header alone; nullopt if there is no such
// file. Throws Error if the file is something else.
std::optional<uint64_t> TenantOfSlotFile(const std::string& path);
// Empty, or why the name cannot be used for a file in the folder: it must not lead out of the
// folder.
std::string WhyNotFileName(const std::string& name);

}  // namespace larder::pipeline::kv_store
