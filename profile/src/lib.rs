//! pprof messages: build, decode within bounds, merge, summarise.
