// ResponseStore: the responses that a server keeps for its clients (/v1/responses with `store`),
// each a key's. Their number and bytes are bounded, in all and a tenant's; those unused for longest
// go first. A turn that others go on from is held by these, and its bytes count, until they are
// gone. They end with the process, unless there are files. Any thread; a lock is held for the
// moment of a look-up, never while something is read, written or copied.
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
  size_t responses = 1000;             // 0: none are kept
  size_t bytes = size_t{64} << 20;     // of texts, about
  size_t tenant_responses = SIZE_MAX;  // of a tenant's; all are as much a tenant's if there is
  size_t tenant_bytes = SIZE_MAX;      // only one
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

  // Takes what the files of a folder have, and keeps it there from now on. Throws Error.
  void Open(ResponseFilesOptions);
  void Close();  // writes what is to be written; from now on files stay as they are

  // nullopt: there is none of that id, or it is another tenant's. It is then the one used last.
  std::optional<StoredResponse> Find(std::string_view id, Tenant);
  bool Has(std::string_view id) const;  // whoever's it is
  // Whether a turn with so many bytes of texts can be kept behind that one, which may be null.
  bool Fits(const StoredTurn* previous, size_t texts) const;
  // A new one. Does nothing if it does not fit, or there is one of that id.
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
    std::list<Entry> entries;  // the one unused for longest first; never empty
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
