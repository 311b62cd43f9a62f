//! `phpprof call`: one call of the relay, as a resident sampler orders it on the standard input.

use std::io::Write as _;

use phpprof::failure::{Failure, Reason};
use phpprof::resident::call::Order;

use super::behave;

/// Makes the call. What came of it is said on the standard output; there is no receipt.
pub fn run() -> Result<String, Failure> {
    // Before the order, which holds a grant, is read.
    behave();
    let said = Order::read(std::io::stdin().lock())?.make();
    let written = std::io::stdout().write_all(said.as_bytes());
    let failed = |error: std::io::Error| {
        Failure::new(Reason::Internal, "call", format!("nobody listens: {error}"))
    };
    written.map(|()| String::new()).map_err(failed)
}
