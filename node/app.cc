#include "node/app.h"

namespace larder::node {

int Main(int, char**) { return 2; }

}  // namespace larder::node
