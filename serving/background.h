// Background: one thread for what takes long and has no socket: reading a large request and cutting its
// prompt into tokens would keep the I/O thread from everybody's next token. Any thread may post; jobs run in
// order; those not begun at the end are dropped.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace larder::serving {

class Background {
 public:
  Background();
  ~Background();
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;
  void Post(std::function<void()> job);
  void Close();  // when the job at hand is done; the thread that made it, any number of times

 private:
  void Run();
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> jobs_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace larder::serving
