<?php
// Raises deprecations that a handler looks at and drops: at each call, or at few.
class Errors {
    public $kept = [];
    function handle($level, $message, $file, $line) {
        $error = new ErrorException($message, 0, $level, $file, $line);
        $this->kept[$message] = md5($error->getTraceAsString());
        return true;
    }
}
function total($price) {
    // Deprecated with null since PHP 8.1.
    return str_replace(',', '.', $price);
}
function page($rounds, $nulls) {
    for ($i = 0; $i < $rounds; $i++) { md5((string) $i); total($i % $nulls === 0 ? null : '1,5'); }
}
set_error_handler([new Errors, 'handle']);
while (true) { page(1000, getenv('PROBLEM') === 'has' ? 2 : 1000); }
