<?php
// Rewrites a script for each request, like caches of templates. Its earlier compilations are garbage, which soon fills the smallest
// opcache, so that it restarts; a large one has room.
$time = (int) @file_get_contents('time') ?: time() - 1_000_000;
file_put_contents('time', $time + 2);
$code = str_repeat("\$f[] = static function (\$a) { \$b = ['x' => \$a->b(1), 'y' => \$a->c(2)]; return \$b; };\n", 700);
file_put_contents('large.php', "<?php $code");
touch('large.php', $time);
clearstatcache();
function page() { include 'large.php'; }
page();
