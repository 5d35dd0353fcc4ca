// The address of a server as a user gives it.
#pragma once

#include <string>
#include <string_view>

#include "node/loadgen/serve_wire.h"

namespace larder::node::inline remote {

bool IsUrl(std::string_view text);  // whether it is a URL, not the name of a server in a manifest
// "http://host:8080", "http://[::1]", "http://host/behind/a/proxy/": the path goes before all
// routes. Throws Error. The key is left empty.
ServeTarget ParseServerUrl(const std::string& url);

}  // namespace larder::node::remote
