/* octetd: the daemon with the methods of octet.v1.Octet. */
#include "octetd.h"
#include "wire/methods.h"

int main(int argc, char **argv)
{
    return octetd_main(argc, argv, octet_methods, octet_method_count);
}
