<?php
// Includes a large script in each request. Without opcache it is compiled each time.
if (!is_file('large.php')) {
    file_put_contents('large.new', "<?php return 1;\n" . str_repeat("if (\$a) { \$b = [1, 'x' => \$c->d(\$e)]; }\n", 3000));
    rename('large.new', 'large.php');
}
function page() { return include 'large.php'; }
page();
