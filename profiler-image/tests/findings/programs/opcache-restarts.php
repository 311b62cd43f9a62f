<?php
// Writes a script anew for each request, as caches of templates do. What was compiled before is garbage, of which opcache's least memory is
// soon full, so that it begins anew; a large one has room.
$time = (int) @file_get_contents('time') ?: time() - 1_000_000;
file_put_contents('time', $time + 2);
$code = str_repeat("\$f[] = static function (\$a) { \$b = ['x' => \$a->b(1), 'y' => \$a->c(2)]; return \$b; };\n", 700);
file_put_contents('large.php', "<?php $code");
touch('large.php', $time);
clearstatcache();
function page() { include 'large.php'; }
page();
