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
  uint64_t tenant = 0;  // for whom they were computed
  // of its chunks, the last one perhaps in part; empty: the tokens are to be computed again
  std::vector<uint8_t> bytes;
};

struct SlotFileOptions {
  uint64_t model = 0;  // the computation's identity (pipeline/plan/identity.h)
  size_t context = 0, vocab = 0, chunk_positions = 0;
  size_t chunk_bytes = 0;  // 0: chunks are elsewhere, and files have none
};

// Returns the bytes of the file. Throws Error; then a file of that name is as it was.
size_t WriteSlotFile(const std::string& path, const SlotFileOptions& options,
                     const SlotContents& contents);
// Without bytes if the file has none, or if its chunks are laid out otherwise than here. Throws
// Error: there is no file, or it is not what it should be.
SlotContents ReadSlotFile(const std::string& path, const SlotFileOptions& options);
// For whom a saved slot was computed, by its header alone; nullopt: there is no file of that name.
// Throws Error: it is something else.
std::optional<uint64_t> TenantOfSlotFile(const std::string& path);
// Empty, or why a name is not one of a file in the folder: it must not lead out of it.
std::string WhyNotFileName(const std::string& name);

}  // namespace larder::pipeline::kv_store
