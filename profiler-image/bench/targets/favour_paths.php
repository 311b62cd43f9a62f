<?php
// 5,000 call paths of equal weight: one of 10 functions calls one of 20 by its name, which calls one of 25, which works.
$code = "<?php\n";
for ($i = 0; $i < 10; $i++) {
    $code .= "function a$i(\$j, \$k) { B[\$j](\$k); }\n";
}
for ($j = 0; $j < 20; $j++) {
    $code .= "function b$j(\$k) { switch (\$k) {" . implode(array_map(fn ($k) => " case $k: c$k(); break;", range(0, 24))) . " } }\n";
}
for ($k = 0; $k < 25; $k++) {
    $code .= "function c$k() { for (\$i = 0; \$i < 250; \$i++); }\n";
}
const B = ['b0', 'b1', 'b2', 'b3', 'b4', 'b5', 'b6', 'b7', 'b8', 'b9', 'b10', 'b11', 'b12', 'b13', 'b14', 'b15', 'b16', 'b17', 'b18', 'b19'];
// Functions of a file, as most are.
$file = tempnam(sys_get_temp_dir(), 'favour');
file_put_contents($file, $code);
require $file;
unlink($file);
for ($n = 0; ; $n = ($n + 1237) % 5000) {
    ('a' . $n % 10)(intdiv($n, 10) % 20, intdiv($n, 200));
}
