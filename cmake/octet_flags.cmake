# Every target of ours links octet_flags (PRIVATE): warnings, floating-point contract, sanitizers.
add_library(octet_flags INTERFACE)
target_compile_options(octet_flags INTERFACE
  -Wall -Wextra -Wconversion -Wstrict-prototypes -Wmissing-prototypes -Wshadow -Wvla
  -ffp-contract=off -fvisibility=hidden -fno-omit-frame-pointer)
target_compile_definitions(octet_flags INTERFACE _GNU_SOURCE)
if(OCTET_WERROR)
  target_compile_options(octet_flags INTERFACE -Werror)
endif()
if(OCTET_SANITIZE)
  target_compile_options(octet_flags INTERFACE -fsanitize=${OCTET_SANITIZE})
  target_link_options(octet_flags INTERFACE -fsanitize=${OCTET_SANITIZE})
  if(OCTET_SANITIZE MATCHES "undefined")
    target_compile_options(octet_flags INTERFACE -fno-sanitize-recover=undefined)
  endif()
endif()
if(OCTET_FUZZ) # coverage for libFuzzer in everything of ours; tests/fuzz links the fuzzer itself
  target_compile_options(octet_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()
