<?php
// Autoloaders, called by an internal function and by `new`.
function load($class) { return find($class); }
function find($class) { return strlen($class) > 100; }
function ask() { return class_exists('Missing\Asked'); }
function create() { try { return new Missing\Created; } catch (Error $error) { return null; } }
spl_autoload_register('load');
for (;;) { ask(); create(); }
