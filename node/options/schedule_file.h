// The file that keeps what `larder tune` found: schedules of matrix products and tunings of
// attention, for one CPU and one version of the code that generates kernels. It is untrusted input:
// a file that does not fit changes nothing but speed, and every kernel is checked against the
// reference before use anyway.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kernels/formats/isa.h"
#include "kernels/formats/tuning.h"

namespace larder::node::inline options {

// Limit for one file.
inline constexpr size_t kMaxScheduleTables = 64, kMaxAttentionTunings = 16;

struct ScheduleFile {
  // What the schedules are for: CPU with family, model and stepping, caches of a core, instruction
  // set, and the versions of arithmetic and generator.
  std::string machine;
  std::string tuned_at;  // "2026-11-23T02:00:00Z"
  std::vector<kernels::KernelTuning::Tuned> products;
  std::vector<kernels::KernelTuning::TunedAttention> attention;
};

// ScheduleFile::machine of this CPU, with the caches of the given core. (Tests describe a core; all
// others pass the one that they run on.)
std::string ScheduleMachine(kernels::Isa, const kernels::CoreShape& = kernels::HostCore());

std::string FormatSchedules(const ScheduleFile&);
// Throws Error if the text is not what FormatSchedules writes, or does not fit `isa`. `name`: for
// messages.
ScheduleFile ParseSchedules(std::string_view text, kernels::Isa isa, const std::string& name,
                            const kernels::CoreShape& = kernels::HostCore());

// Where schedules are kept if nobody names a file: larder/schedules.json in $XDG_CACHE_HOME or
// ~/.cache; empty if there is no such folder's name. Services, which have no home, read
// kSystemSchedules.
std::string UserSchedules();
inline constexpr std::string_view kSystemSchedules = "/var/cache/larder/schedules.json";

// Which file a process uses: `given` (--schedules), else the user's if it exists, else the system's
// if it exists, else none (empty). A `given` of "none" means none.
std::string ChooseSchedules(const std::string& given);
// Throws Error if it can't be read or is too large, and like ParseSchedules.
ScheduleFile ReadSchedules(const std::string& path, kernels::Isa isa,
                           const kernels::CoreShape& = kernels::HostCore());
// Replaces the file as a whole; makes its folder. Throws Error.
void WriteSchedules(const std::string& path, const ScheduleFile&);

// DefaultTuning with the contents of the file that ChooseSchedules names. If that file is invalid
// or from another machine, it is ignored with one warning; if it was named with --schedules, that
// is an Error.
kernels::KernelTuning TuningWith(kernels::Isa isa, const std::string& given,
                                 const kernels::CoreShape& = kernels::HostCore());

}  // namespace larder::node::options
