// Test support: the ways of waiting that tests go through.
#pragma once

#include "sync/wait.h"

namespace larder::sync {

inline constexpr WaitPolicy kSpin{WaitPolicy::Mode::kSpin, 0};
inline constexpr WaitPolicy kShortSpin{WaitPolicy::Mode::kAdaptive, 20};
inline constexpr WaitPolicy kSleepAtOnce{WaitPolicy::Mode::kAdaptive, 0};

}  // namespace larder::sync
