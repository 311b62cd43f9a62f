<?php
require __DIR__ . '/classes.php';
if (getenv('PROBLEM') === 'has') {
    function find(string $class) {
        foreach (['src', 'lib', 'app', 'classes', 'classes/deep', 'classes/deep/deeper'] as $folder) {
            if (file_exists("$folder/$class.php")) { return include "$folder/$class.php"; }
        }
    }
} else {
    function find(string $class) { include "classes/deep/deeper/$class.php"; }
}
spl_autoload_register('find');
for ($i = 0; $i < COUNT; $i++) { $class = "C$i"; new $class(); }
