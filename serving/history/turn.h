// A turn of a conversation that the server keeps: what a client sent to /v1/responses and what it
// was answered, so that a later request goes on from there (previous_response_id). A turn holds
// those before it, whether or not their responses can still be asked for. Immutable; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "serving/admission/api_keys.h"

namespace larder::serving::inline history {

class ResponseFiles;

// Keeps account of all existing turns: their bytes, their tenants, their files.
class TurnBooks {
 public:
  size_t bytes() const;
  size_t bytes(Tenant) const;
  void Add(Tenant, size_t bytes);
  void Left(const std::string& id, Tenant, size_t bytes);  // a turn is gone, and so is its file
  void SetFiles(ResponseFiles*);                           // null: there are no files (any longer)

 private:
  mutable std::mutex mutex_;
  size_t bytes_ = 0;
  std::map<Tenant, size_t> of_;
  ResponseFiles* files_ = nullptr;
};

// A limit, because turns are destroyed recursively; a conversation has at most 4096 messages.
inline constexpr size_t kMostTurns = 4096;

struct StoredTurn {
  StoredTurn(std::shared_ptr<TurnBooks> books, std::string id, Tenant tenant,
             std::shared_ptr<const StoredTurn> previous, std::string input, std::string output,
             int64_t created_ns);
  ~StoredTurn();
  StoredTurn(const StoredTurn&) = delete;
  StoredTurn& operator=(const StoredTurn&) = delete;

  const std::shared_ptr<TurnBooks> books;
  const std::string id;  // id of its response
  const Tenant tenant;
  const std::shared_ptr<const StoredTurn> previous;  // null: it is the first
  const std::string input, output;                   // JSON texts: arrays of items
  const int64_t created_ns;                          // since 1970
  const size_t depth;                                // turns up to this one
  const size_t all_bytes;                            // bytes of this turn and of all before it

  size_t bytes() const { return BytesOf(input.size() + output.size()); }
  static size_t BytesOf(size_t texts) { return texts + kAround; }

 private:
  static constexpr size_t kAround = 512;  // memory besides the texts, about
};

// Finds the turn of a response's id; null if there is none. Any thread.
using FindTurn = std::function<std::shared_ptr<const StoredTurn>(std::string_view id)>;

}  // namespace larder::serving::history
