# octet_suite(NAME SOURCES a.c ... [LIBS t ...] [ARGS ...]): one Check suite, one CTest entry.
# The suite finds data through OCTET_SOURCE_DIR; OCTET_GOLDEN may name the full reference data.
function(octet_suite name)
  cmake_parse_arguments(S "" "" "SOURCES;LIBS;ARGS" ${ARGN})
  add_executable(test_${name} ${S_SOURCES})
  target_link_libraries(test_${name} PRIVATE octet_flags octet PkgConfig::CHECK ${S_LIBS})
  target_include_directories(test_${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests ${CMAKE_SOURCE_DIR}/lib)
  target_compile_definitions(test_${name} PRIVATE OCTET_SOURCE_DIR="${CMAKE_SOURCE_DIR}"
    $<$<BOOL:${CMAKE_CROSSCOMPILING}>:OCTET_EMULATED>)
  add_test(NAME ${name} COMMAND test_${name} ${S_ARGS})
  set_tests_properties(${name} PROPERTIES TIMEOUT 300 ENVIRONMENT "CK_FORK=no")
endfunction()
