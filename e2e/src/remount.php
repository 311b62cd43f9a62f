// Mounts a folder of another mount namespace again with other flags: php -r … PID FOLDER FLAGS. MS_REMOUNT and MS_BIND are 32 and 4096, MS_RDONLY is 1.
[, $pid, $folder, $flags] = $argv;
$kernel = FFI::cdef("int open(const char *, int); int setns(int, int); int mount(const char *, const char *, const char *, unsigned long, const void *);");
if ($kernel->setns($kernel->open("/proc/$pid/ns/mnt", 0), 0) !== 0 || $kernel->mount("none", $folder, "none", (int) $flags, null) !== 0) {
    exit(1);
}
