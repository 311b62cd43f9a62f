// A program with PHP inside, as an application embeds it: `embed SCRIPT ARGUMENT...` runs SCRIPT on its main thread.
#include <sapi/embed/php_embed.h>

int main(int argc, char **argv)
{
	zend_file_handle file;
	if (argc < 2) return 2;
	// The arguments of the script begin with its own name.
	PHP_EMBED_START_BLOCK(argc - 1, argv + 1)
	zend_stream_init_filename(&file, argv[1]);
	php_execute_script(&file);
	zend_destroy_file_handle(&file);
	PHP_EMBED_END_BLOCK()
	return 0;
}
