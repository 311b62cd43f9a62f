<?php
// Generators that take about 35 ns, 0.4, 2 and 9 µs for a value: iterated, delegated to, and read by another generator.
function work($loops) { for ($sum = 0; $loops > 0; $loops--) { $sum += $loops * $loops; } return $sum; }
function tinyValues() { for ($i = 0; $i < 40; $i++) { yield $i * $i + 7; } }
function smallValues() { for ($i = 0; $i < 20; $i++) { for ($sum = 0, $n = 40; $n > 0; $n--) { $sum += $n * $n; } yield $sum; } }
function smallCalls() { for ($i = 0; $i < 20; $i++) { yield work(40); } }
function middleCalls() { for ($i = 0; $i < 4; $i++) { yield work(250); } }
function longCalls() { yield work(1000); yield work(1000); }
function delegating() { yield from smallCalls(); yield from middleCalls(); }
function pipeline($values) { foreach ($values as $value) { yield $value + 1; } }
function useTiny() { foreach (tinyValues() as $value) { $last = $value; } return $last; }
function useSmall() { foreach (smallValues() as $value) { $last = $value; } return $last; }
function useDelegating() { foreach (delegating() as $value) { $last = $value; } return $last; }
function usePipeline() { foreach (pipeline(smallCalls()) as $value) { $last = $value; } return $last; }
function useLong() { foreach (longCalls() as $value) { $last = $value; } return $last; }
for (;;) { useTiny(); useTiny(); useSmall(); useDelegating(); usePipeline(); useLong(); }
