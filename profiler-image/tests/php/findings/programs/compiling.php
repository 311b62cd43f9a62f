<?php
// Compiles a large text in each request, which opcache does not keep, or includes it as a file.
$code = "return 1;\n" . str_repeat("if (\$a) { \$b = [1, 'x' => \$c->d(\$e)]; }\n", 3000);
if (!is_file('large.php')) {
    file_put_contents('large.new', "<?php $code");
    rename('large.new', 'large.php');
}
function page($code) { return getenv('PROBLEM') === 'has' ? eval($code) : include 'large.php'; }
page($code);
