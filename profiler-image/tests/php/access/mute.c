/* PHP as far as its read-only data say, and nothing of an engine: what a static build without .dynsym looks like. */
#include <unistd.h>

const char version[] = "X-Powered-By: PHP/8.2.29";

int main(void)
{
	volatile const char *used = version;
	for (unsigned n = 0;; n++)
		if (*used == 0 || n == 4000000000u)
			return 0;
}
