#include "serving/page/page.h"

namespace larder::serving::inline page {

const PageFile* FindPageFile(std::string_view path) {
  for (const PageFile& file : PageFiles()) {
    if (file.path == path) return &file;
  }
  return nullptr;
}

}  // namespace larder::serving::page
