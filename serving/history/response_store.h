// ResponseStore: the responses that a server keeps for its clients (/v1/responses with `store`), by
// tenant. Their number and bytes are bounded, in all and per tenant; those unused for longest are
// dropped first. A turn that others continue is held by them, and its bytes count, until they are
// gone. All are lost at the end of the process, unless there are files. Any thread; a lock is held
// for the moment of a look-up, never while something is read, written or copied.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "serving/history/response_files.h"
#include "serving/history/turn.h"

namespace larder::serving::inline history {

struct ResponseQuota {
  size_t responses = 1000;          // 0: none are kept
  size_t bytes = size_t{64} << 20;  // bytes of texts, about
  // Limits per tenant; a single tenant may use the whole.
  size_t tenant_responses = SIZE_MAX;
  size_t tenant_bytes = SIZE_MAX;
  size_t most_bytes() const { return tenant_bytes < bytes ? tenant_bytes : bytes; }
};

struct StoredResponse {
  std::shared_ptr<const StoredTurn> turn;
  std::shared_ptr<const std::string> body;  // the JSON text of the response without its output

  std::string Text() const;  // with its output
};

class ResponseStore {
 public:
  explicit ResponseStore(const ResponseQuota& quota) : quota_(quota) {}
  ~ResponseStore();
  ResponseStore(const ResponseStore&) = delete;
  ResponseStore& operator=(const ResponseStore&) = delete;

  // Reads the files of a folder, and keeps responses there from now on. Throws Error.
  void Open(ResponseFilesOptions);
  void Close();  // writes what is to be written; from now on files stay as they are

  // The response, which then counts as the last one used. nullopt: no such id, or another tenant's.
  std::optional<StoredResponse> Find(std::string_view id, Tenant);
  bool Has(std::string_view id) const;  // of any tenant
  // Whether a turn with that many bytes of texts can be kept after `previous`, which may be null.
  bool Fits(const StoredTurn* previous, size_t texts) const;
  // Adds a response. Does nothing if it does not fit, or the id exists.
  void Add(std::string id, Tenant, std::shared_ptr<const StoredTurn> previous, std::string input,
           std::string output, std::string body);
  bool Remove(std::string_view id, Tenant);  // false as Find

  const ResponseQuota& quota() const { return quota_; }
  size_t size() const;
  size_t bytes() const;

 private:
  struct Entry {
    StoredResponse response;
    uint64_t used;  // a number that grows
  };
  struct Owner {
    std::list<Entry> entries;  // the one that was unused for longest comes first; never empty
    size_t body_bytes = 0;
  };

  void Take(StoredResponse);
  void MakeRoom(Tenant);
  void Erase(Tenant, std::list<Entry>::iterator);
  std::list<Entry>::iterator* FindEntry(std::string_view id, Tenant);

  const ResponseQuota quota_;
  const std::shared_ptr<TurnBooks> books_ = std::make_shared<TurnBooks>();
  mutable std::mutex mutex_;
  std::map<Tenant, Owner> owners_;
  std::map<std::string, std::list<Entry>::iterator, std::less<>> by_id_;
  size_t body_bytes_ = 0;
  uint64_t uses_ = 0;
  std::unique_ptr<ResponseFiles> files_;
};

}  // namespace larder::serving::history
