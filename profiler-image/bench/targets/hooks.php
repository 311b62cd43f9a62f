<?php
// Property hooks: get and set, of a property with a value of its own and of a virtual one, and a parent's.
function lower($text) { return strtolower($text); }
function upper($text) { return strtoupper($text); }
class Shelf {
    public string $title = 'ab' { get => upper($this->title); set { $this->title = lower($value); } }
    public string $twice { get { return $this->title . repeated($this->title); } }
}
class Front extends Shelf { public string $title = 'cd' { get { return trimmed(parent::$title::get()); } } }
function repeated($text) { return str_repeat($text, 2); }
function trimmed($text) { return trim($text); }
function read($shelf) { return $shelf->title; }
function write($shelf) { $shelf->title = 'Red Coat'; }
function virtual($shelf) { return $shelf->twice; }
$shelf = new Shelf; $front = new Front;
for (;;) { read($shelf); write($shelf); virtual($shelf); read($front); }
