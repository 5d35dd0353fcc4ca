# Sourced by scripts/story, scripts/test and .ci/run, in the tree's root.

# ccache, npm, chromium, lintian and others keep files in the home folder: where it can't be written
# they get one in build/.
if [[ ! -w ${HOME:-/nonexistent} ]]; then
  export HOME=$PWD/build/home
  mkdir -p "$HOME"
fi
if command -v ccache >/dev/null; then
  # As precompiled headers need it
  export CMAKE_CXX_COMPILER_LAUNCHER=ccache CCACHE_SLOPPINESS=pch_defines,time_macros
fi
true
