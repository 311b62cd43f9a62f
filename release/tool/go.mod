module phpprof.dev/release/tool

go 1.26
