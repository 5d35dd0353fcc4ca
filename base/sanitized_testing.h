// Test support: LARDER_SANITIZED is 1 where a sanitizer makes code several times slower and has
// operators new and delete of its own. Included by tests only.
#pragma once

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define LARDER_SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define LARDER_SANITIZED 1
#endif
#ifndef LARDER_SANITIZED
#define LARDER_SANITIZED 0
#endif
