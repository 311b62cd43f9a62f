<?php
// Internal functions that 8.4 and later call without a frame: one that takes long, and one that calls back.
class Title { public $text = ''; function __toString(): string { return text($this); } }
function text($title) { return $title->text; }
function found($text, $word) { return strpos($text, $word); }
function joined($titles) { return implode(',', $titles); }
$text = str_repeat('x', 20_000);
$titles = [new Title, new Title];
for (;;) { found($text, 'xy'); joined($titles); }
