# cmake -DOUT=x.c -DNAME=symbol -DIN=a,b,c -P embed.cmake: the files, one behind the other, as
# `const unsigned char symbol[]` and `const size_t symbol_bytes`.
string(REPLACE "," ";" files "${IN}")
set(hex "")
foreach(file ${files})
  file(READ ${file} text HEX)
  string(APPEND hex "${text}")
endforeach()
string(LENGTH "${hex}" digits)
math(EXPR bytes "${digits} / 2")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes_text "${hex}")
file(WRITE ${OUT} "#include <stddef.h>
extern const unsigned char ${NAME}[];
extern const size_t ${NAME}_bytes;
const unsigned char ${NAME}[] = {${bytes_text}};
const size_t ${NAME}_bytes = ${bytes};
")
