//! API types of phpprof.dev: ProfileRequest, its conditions, reasons and label keys.
