// One sequence's KV cache in a file of a name that a user gives: its tokens and, where the KV cache
// is in this process, all of its chunks. Useless to another model, refused when it is damaged,
// complete or not there. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace larder::pipeline::inline kv_store {

struct SlotContents {
  std::vector<int32_t> tokens;
  uint64_t tenant = 0;  // the tenant for whom they were computed
  // bytes of its chunks, the last one perhaps in part; empty: the tokens are to be computed again
  std::vector<uint8_t> bytes;
};

struct SlotFileOptions {
  uint64_t model = 0;  // the computation's identity (pipeline/plan/identity.h)
  size_t context = 0, vocab = 0, chunk_positions = 0;
  size_t chunk_bytes = 0;  // 0: chunks are elsewhere, and files have none
};

// Returns the size of the file in bytes. Throws Error; then a file of that name is unchanged.
size_t WriteSlotFile(const std::string& path, const SlotFileOptions& options,
                     const SlotContents& contents);
// The result has no bytes if the file has none, or if its chunks have another layout than here.
// Throws Error if the file is missing or wrong.
SlotContents ReadSlotFile(const std::string& path, const SlotFileOptions& options);
// The tenant for whom a saved slot was computed, from the header alone; nullopt if there is no such
// file. Throws Error if the file is something else.
std::optional<uint64_t> TenantOfSlotFile(const std::string& path);
// Empty, or why the name cannot be used for a file in the folder: it must not lead out of the
// folder.
std::string WhyNotFileName(const std::string& name);

}  // namespace larder::pipeline::kv_store
