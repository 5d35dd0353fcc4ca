// ResponseFiles: the stored responses of a process in files, so that the next one has them. A
// thread of its own writes them after the answers are sent: a process that is killed loses the last
// ones, but no file is torn. Any thread.
//
//   resp_ID.json a response, with the items that were sent for it turn_ID.json items only: of a
//   response that was deleted or dropped, but that others continue
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/own_folder.h"
#include "serving/history/turn.h"

namespace larder::serving::inline history {

struct ResponseFilesOptions {
  std::string folder;
  std::function<void(const std::string&)> log;  // gets a line about each file that can't be read
  std::function<void(const char*)> failed;  // what() of a file that can't be written; any thread
  std::function<void()> pin;                // called on the thread of files; may be empty
};

// What a file says.
struct KeptTurn {
  std::string id, previous;  // previous: an id, or empty
  Tenant tenant = kEverybody;
  std::string input, output;
  std::string body;  // StoredResponse::body; empty: clients can't ask for it
  int64_t created_ns = 0;
};

class ResponseFiles {
 public:
  explicit ResponseFiles(ResponseFilesOptions);  // takes the folder. Throws Error
  ~ResponseFiles();

  // All turns in the folder, the oldest first. Files that can't be read are left out, with a line
  // in the log.
  std::vector<KeptTurn> Load() const;
  // A turn that is gone before it is written is not written.
  void Write(std::weak_ptr<const StoredTurn>, std::weak_ptr<const std::string> body);
  void Hide(std::weak_ptr<const StoredTurn>, std::string id);  // the response is deleted, but other
                                                               // turns continue it
  void Remove(std::string id);
  void Close();  // writes what is left and ends the thread; may be called any number of times

 private:
  void Post(std::function<void()>);
  void Run();
  std::string PathOf(const char* kind, const std::string& id) const;
  void WriteNow(const StoredTurn&, const std::string* body) const;
  void RemoveNow(const std::string& id) const;

  const ResponseFilesOptions options_;
  const OwnFolder own_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> jobs_;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace larder::serving::history
