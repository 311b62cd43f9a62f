<?php
// Includes 200 scripts in each request, half of which have no room in the smallest opcache.
$code = str_repeat("\$f[] = static function (\$a) { \$b = ['x' => \$a->b(1), 'y' => \$a->c(2)]; return \$b; };\n", 70);
for ($i = 0; $i < 200; $i++) {
    if (!is_file("small$i.php")) {
        file_put_contents('small.new', "<?php $code");
        rename('small.new', "small$i.php");
    }
}
function page() { for ($i = 0; $i < 200; $i++) { include "small$i.php"; } }
page();
