//! When a token is renewed: before a request with it would come too late.

use jiff::{SignedDuration, Timestamp};

/// A token that ends within this time is renewed: golang.org/x/oauth2's `expiryDelta`.
const MARGIN: SignedDuration = SignedDuration::from_secs(10);

/// Whether a token that ends then is renewed now.
pub fn is_over(until: Timestamp, now: Timestamp) -> bool {
    now.checked_add(MARGIN).map_or(true, |soon| soon >= until)
}
