# The Debian package: `cpack -G DEB` in the build folder writes larder_VERSION_ARCH.deb. What it may
# not lack, and that lintian finds nothing in it, is tested by test/deploy/package_test.py (ctest:
# deploy.package).
include(GNUInstallDirs)
set(doc share/doc/larder)
set(root ${PROJECT_SOURCE_DIR})

install(TARGETS larder RUNTIME DESTINATION bin)
# All symbols are bound at start, so that their table can be read-only: it reads files and frames of
# others.
target_link_options(larder PRIVATE LINKER:-z,relro,-z,now)
install(PROGRAMS ${root}/deploy/larder-cluster DESTINATION bin)
install(FILES ${root}/deploy/larder@.service ${root}/deploy/larder.target
    DESTINATION lib/systemd/system)
install(FILES ${root}/deploy/larder.sysusers DESTINATION lib/sysusers.d RENAME larder.conf)
install(FILES ${root}/deploy/larder.tmpfiles DESTINATION lib/tmpfiles.d RENAME larder.conf)
install(FILES ${root}/README.md ${root}/DESIGN.md ${root}/docs/cluster.md ${root}/docs/decisions.md
    ${root}/deploy/debian/copyright DESTINATION ${doc})
install(FILES ${root}/deploy/README.md DESTINATION ${doc} RENAME manifest.md)
install(DIRECTORY ${root}/deploy/examples DESTINATION ${doc} FILES_MATCHING PATTERN "*.toml")
install(FILES ${root}/deploy/debian/lintian-overrides DESTINATION share/lintian/overrides
    RENAME larder)

# Policy wants these compressed; -n: without a time of their own, so that equal sources give equal
# packages.
foreach(page larder larder-cluster)
  set(compressed ${PROJECT_BINARY_DIR}/deploy/${page}.1.gz)
  add_custom_command(OUTPUT ${compressed} DEPENDS ${root}/deploy/man/${page}.1 VERBATIM
    COMMAND sh -c "mkdir -p \"$(dirname \"$2\")\" && gzip -9nc \"$1\" >\"$2\"" gzip
            ${root}/deploy/man/${page}.1 ${compressed})
  list(APPEND compressed_files ${compressed})
  install(FILES ${compressed} DESTINATION share/man/man1)
endforeach()
set(compressed ${PROJECT_BINARY_DIR}/deploy/changelog.gz)
add_custom_command(OUTPUT ${compressed} DEPENDS ${root}/deploy/debian/changelog VERBATIM
  COMMAND sh -c "mkdir -p \"$(dirname \"$2\")\" && gzip -9nc \"$1\" >\"$2\"" gzip
          ${root}/deploy/debian/changelog ${compressed})
install(FILES ${compressed} DESTINATION ${doc})
add_custom_target(larder_package_files ALL DEPENDS ${compressed_files} ${compressed})

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME larder)
set(CPACK_PACKAGE_CONTACT "The Larder developers <larder@example.org>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "language models from the last-level caches of CPUs")
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION
"Larder packs the INT8 weights of a GGUF model so that each core streams its
own share from the last-level cache that it shares with a few others. It runs
a model on one machine, or as one systemd unit for each set of cores on
several servers.
.
The package starts nothing by itself: larder-cluster does, from a manifest.")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_HOMEPAGE "https://example.org/larder")
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# systemd: the units, sysusers and tmpfiles. python3: larder-cluster (tomllib).
set(CPACK_DEBIAN_PACKAGE_DEPENDS "python3 (>= 3.11), systemd")
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "openssh-client")
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${root}/deploy/debian/postinst ${root}/deploy/debian/prerm
    ${root}/deploy/debian/postrm)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
include(CPack)
