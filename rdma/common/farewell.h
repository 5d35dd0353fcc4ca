// Farewell: what a process that has been told to end (SIGTERM) says to the peers of its links, so
// that they report a stop and not a crash. They lose the link either way.
#pragma once

#include <functional>

namespace larder::rdma::inline common {

class Farewell {
 public:
  // say runs on the thread that calls SayFarewells(), and may not wait; what it uses must outlive
  // this object.
  explicit Farewell(std::function<void()> say);
  ~Farewell();
  Farewell(const Farewell&) = delete;
  Farewell& operator=(const Farewell&) = delete;

 private:
  friend void SayFarewells();
  const std::function<void()> say_;
};

// Says the farewells of all links of this process. Any thread.
void SayFarewells();
// The same, for a process that is about to end. Its peers also see its connections close and might
// notice that first, so this waits 100 ms.
void SayFarewellsBeforeTheEnd();

}  // namespace larder::rdma::common
