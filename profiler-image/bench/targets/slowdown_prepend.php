<?php
// Before each page of an application: profiles the request if its cookie asks for that, as services do. Of Excimer, it is the rate.
if (($_COOKIE['profiled'] ?? 0) > 0) {
    if (class_exists('ExcimerProfiler', false)) {
        $profiler = new ExcimerProfiler();
        $profiler->setPeriod(1 / $_COOKIE['profiled']);
        $profiler->setEventType(EXCIMER_REAL);
        // Nothing is kept, like in a service, which sends it away.
        $profiler->setFlushCallback(function ($log) {}, 1000);
        $profiler->start();
    } elseif (function_exists('tideways_xhprof_enable')) {
        tideways_xhprof_enable();
    }
}
