#include "rdma/common/farewell.h"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace larder::rdma::inline common {
namespace {

struct Farewells {
  std::mutex mutex;
  std::vector<const Farewell*> all;
};

// Never freed: links may end while the process does.
Farewells& ThisProcess() {
  static auto* const farewells = new Farewells;
  return *farewells;
}

}  // namespace

Farewell::Farewell(std::function<void()> say) : say_(std::move(say)) {
  const std::lock_guard lock(ThisProcess().mutex);
  ThisProcess().all.push_back(this);
}

Farewell::~Farewell() {
  const std::lock_guard lock(ThisProcess().mutex);
  std::erase(ThisProcess().all, this);
}

void SayFarewells() {
  const std::lock_guard lock(ThisProcess().mutex);
  for (const Farewell* farewell : ThisProcess().all) farewell->say_();
}

void SayFarewellsBeforeTheEnd() {
  SayFarewells();
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
}

}  // namespace larder::rdma::common
