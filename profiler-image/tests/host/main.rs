//! phpprof as people use it on a host, as a program, against this machine's PHP 8.2. It takes root, cgi-fcgi, and `script` for
//! a terminal.

mod choose;
mod dump;
mod dump_many;
mod formats;
mod program;
mod scene;
mod stops;
mod top;
