# cmake -D INPUT=file -D OUTPUT=stem -D NAME=symbol -P embed.cmake: a file as a C array, and the
# header that declares it: NAME[] and NAME_size.
file(READ ${INPUT} hex HEX)
file(SIZE ${INPUT} size)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
string(REGEX REPLACE "(0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,)"
       "\\1\n" bytes "${bytes}")
get_filename_component(header ${OUTPUT} NAME)
string(TOUPPER ${NAME} guard)
file(WRITE ${OUTPUT}.h "/* Generated: a file. */
#ifndef ${guard}_H
#define ${guard}_H

#include <stddef.h>

#ifdef __cplusplus
extern \"C\" {
#endif

extern const unsigned char ${NAME}[];
extern const size_t ${NAME}_size;

#ifdef __cplusplus
}
#endif

#endif
")
file(WRITE ${OUTPUT}.c "#include \"${header}.h\"

const unsigned char ${NAME}[] = {
${bytes}};
const size_t ${NAME}_size = ${size};
")
