<?php
// Callers that call a function and then loop for as long as that took, about 0.3, 1.3 and 9 µs. A loop of this kind stores no op, so the
// caller stays at the op of its call, and the frame of the ended call is still above it.
function shortCallee() { for ($i = 0; $i < 60; $i++); }
function middleCallee() { for ($i = 0; $i < 250; $i++); }
function longCallee() { for ($i = 0; $i < 1800; $i++); }
function shortCaller() { shortCallee(); for ($i = 0; $i < 60; $i++); }
function middleCaller() { middleCallee(); for ($i = 0; $i < 250; $i++); }
function longCaller() { longCallee(); for ($i = 0; $i < 1800; $i++); }
for (;;) {
    for ($n = 0; $n < 24; $n++) { shortCaller(); }
    for ($n = 0; $n < 6; $n++) { middleCaller(); }
    longCaller();
}
