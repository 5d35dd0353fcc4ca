#include "rdma/common/farewell.h"

#include <algorithm>
#include <mutex>
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

}  // namespace larder::rdma::common
