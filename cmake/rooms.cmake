# tutti_room(NAME FOLDER [ROOMS folders] [LINKS other libraries] [EXCEPT sources] [ONLY sources])
#
# One static library of every .c file of a folder and of those of its folders that are named as its ROOMS
# (others below it are libraries of their own: a backend, for example), but EXCEPT those, or ONLY those.
# Which files a room may include, and which functions it may call, is checked by cmake/check_layers.py,
# not here.
function(tutti_room name folder)
  cmake_parse_arguments(ARG "" "" "ROOMS;LINKS;EXCEPT;ONLY" ${ARGN})
  set(patterns ${PROJECT_SOURCE_DIR}/${folder}/*.c)
  foreach(room ${ARG_ROOMS})
    list(APPEND patterns ${PROJECT_SOURCE_DIR}/${folder}/${room}/*.c)
  endforeach()
  file(GLOB sources CONFIGURE_DEPENDS ${patterns})
  foreach(source ${ARG_EXCEPT})
    list(REMOVE_ITEM sources ${PROJECT_SOURCE_DIR}/${folder}/${source})
  endforeach()
  if(ARG_ONLY)
    list(TRANSFORM ARG_ONLY PREPEND ${PROJECT_SOURCE_DIR}/${folder}/ OUTPUT_VARIABLE sources)
  endif()
  add_library(tutti_${name} STATIC ${sources})
  tutti_compile(tutti_${name} PUBLIC ${ARG_LINKS})
endfunction()

# tutti_program(NAME SOURCES ... LINKS ...): an executable under the same rules.
function(tutti_program name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINKS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  tutti_compile(${name} PRIVATE ${ARG_LINKS})
endfunction()

# tutti_compile(TARGET SCOPE LINKS ...): with the project's flags; links are rooms, or other targets and libraries.
function(tutti_compile target scope)
  target_compile_options(${target} PRIVATE ${TUTTI_WARNINGS})
  target_link_libraries(${target} ${scope} tutti_flags)
  foreach(link ${ARGN})
    if(TARGET tutti_${link})
      target_link_libraries(${target} ${scope} tutti_${link})
    else()
      target_link_libraries(${target} ${scope} ${link})
    endif()
  endforeach()
endfunction()
