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

// Says those of all links of this process. Any thread. Peers that also see their connections close
// may notice that first: a process that ends afterwards gives them kFarewellMs.
void SayFarewells();
inline constexpr int kFarewellMs = 100;

}  // namespace larder::rdma::common
