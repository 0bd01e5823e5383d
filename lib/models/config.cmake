# The config half of this room: keys, values, known models. The models' YAML is embedded when it is built.
file(GLOB model_files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/configs/models/*.yml)
add_custom_command(OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/known_models_data.c
  COMMAND ${CMAKE_COMMAND} -DDIRECTORY=${CMAKE_SOURCE_DIR}/configs/models
    -DOUTPUT=${CMAKE_CURRENT_BINARY_DIR}/known_models_data.c
    -P ${CMAKE_CURRENT_SOURCE_DIR}/embed_models.cmake
  DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/embed_models.cmake ${model_files}
  COMMENT "Embedding the known models")
target_sources(octet PRIVATE config.c config_check.c derive.c keys.c known_models.c settings.c value.c
  value_text.c ${CMAKE_CURRENT_BINARY_DIR}/known_models_data.c)
# `octet` belongs to the folder above, which does not see this folder's commands: a target orders them.
add_custom_target(octet_known_models DEPENDS ${CMAKE_CURRENT_BINARY_DIR}/known_models_data.c)
add_dependencies(octet octet_known_models)
