// Warnings of links that are not Errors: connections that were not admitted. Each kind is reported
// at most once every few seconds, however many connections come.
#pragma once

#include <string>

namespace larder::rdma::inline proof {

// Sets where warnings go; called before the first link is made. Any thread may call `say`. By
// default "larder: warning: LINE" goes to stderr.
using SayLinkWarning = void (*)(const std::string& line);
void SetSayLinkWarning(SayLinkWarning say);

enum class LinkWarning {
  kStranger,      // a peer that does not prove that it knows the key
  kDisagreement,  // a socket of this cluster that runs another Plan or version
};
void WarnOfLink(LinkWarning sort, const std::string& line);

}  // namespace larder::rdma::proof
