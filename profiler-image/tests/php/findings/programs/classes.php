<?php
// Loads 300 classes in each request, and does little or much with them.
const COUNT = 300;
if (!is_dir('classes')) {
    mkdir('classes.new/deep/deeper', 0777, true);
    for ($i = 0; $i < COUNT; $i++) {
        $methods = '';
        for ($j = 0; $j < 5; $j++) { $methods .= "public function m$j(\$a) { return [\$a, $j]; }\n"; }
        file_put_contents("classes.new/deep/deeper/C$i.php", "<?php class C$i { const I = $i;\n$methods }\n");
    }
    rename('classes.new', 'classes');
}
