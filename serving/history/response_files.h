// ResponseFiles: the stored responses of a process in files, so that the next one has them. A
// thread of its own writes them behind the answers: a process that is killed loses those of its
// last moments, and no file is torn. Any thread.
//
//   resp_ID.json  a response, with the items that were sent for it
//   turn_ID.json  items only: of one that was deleted or had to go, but that others go on from
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
  std::string body;  // StoredResponse::body; empty: it can't be asked for
  int64_t created_ns = 0;
};

class ResponseFiles {
 public:
  explicit ResponseFiles(ResponseFilesOptions);  // takes the folder. Throws Error
  ~ResponseFiles();

  // All that is there, the oldest first; what can't be read is left out with a line in the log.
  std::vector<KeptTurn> Load() const;
  // What is gone when it has its turn is not written.
  void Write(std::weak_ptr<const StoredTurn>, std::weak_ptr<const std::string> body);
  void Hide(std::weak_ptr<const StoredTurn>, std::string id);  // others go on from it
  void Remove(std::string id);
  void Close();  // writes what is left to do, and ends the thread; any number of times

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
