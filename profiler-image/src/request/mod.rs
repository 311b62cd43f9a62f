//! What a sample's labels and filters say of the request that its worker serves: pure, values in and values out.

pub mod asked;
pub mod route;
pub mod values;
