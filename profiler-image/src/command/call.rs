//! `phpprof call`: makes one call of the relay, which a resident sampler orders on the standard
//! input.

use std::io::Write as _;

use phpprof::failure::{Reason, SamplerFailure};
use phpprof::resident::call::Order;

use super::behave;

/// Makes the call, and returns its result for the standard output. There is no receipt.
pub fn run() -> Result<String, SamplerFailure> {
    // This precedes the order, because the order holds a grant.
    behave();
    let said = Order::read(std::io::stdin().lock())?.make();
    let written = std::io::stdout().write_all(said.as_bytes());
    let failed = |error: std::io::Error| {
        SamplerFailure::new(Reason::Internal, "call", format!("nobody listens: {error}"))
    };
    written.map(|()| String::new()).map_err(failed)
}
