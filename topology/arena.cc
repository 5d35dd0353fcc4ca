#include "topology/arena.h"

namespace larder::topology {

const char* BackingName(Backing backing) {
  switch (backing) {
    case Backing::kHugeTlb: return "reserved 2 MB pages";
    case Backing::kTransparent: return "transparent huge pages";
    case Backing::kPlain: return "4 KB pages";
  }
  return "unknown";
}

}  // namespace larder::topology
