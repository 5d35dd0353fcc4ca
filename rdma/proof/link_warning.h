// What links have to say that is no Error: who came and was not let in. At most a line of each sort every few
// seconds, however many come.
#pragma once

#include <string>

namespace larder::rdma {

// How it is said; before the first link. Any thread calls it. Not set: "larder: warning: LINE" on stderr.
using SayLinkWarning = void (*)(const std::string& line);
void SetSayLinkWarning(SayLinkWarning say);

namespace internal {

enum class LinkWarning {
  kStranger,      // somebody who does not prove that he belongs here
  kDisagreement,  // a socket of this cluster that runs something else
};
void WarnOfLink(LinkWarning sort, const std::string& line);

}  // namespace internal
}  // namespace larder::rdma
