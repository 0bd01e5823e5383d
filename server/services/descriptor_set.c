/* The bytes of the descriptor set, put into the program by the assembler. DESCRIPTOR_SET is its
 * path. */
__asm__(".section .rodata, \"a\"\n"
        ".global octetd_descriptor_set\n"
        ".balign 16\n"
        "octetd_descriptor_set:\n"
        ".incbin \"" DESCRIPTOR_SET "\"\n"
        ".global octetd_descriptor_set_end\n"
        "octetd_descriptor_set_end:\n"
        ".byte 0\n"
        ".previous\n");
