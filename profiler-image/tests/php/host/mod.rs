//! phpprof as users run it on a host, as a program, with this machine's PHP 8.2. It requires root,
//! cgi-fcgi, and `script` for a terminal.

mod choose;
mod classes;
mod disk;
mod dump;
mod dump_many;
mod files;
mod formats;
mod heap;
mod holders;
mod memory;
mod program;
mod scene;
mod stops;
mod top;
mod wide;
