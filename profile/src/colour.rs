//! The colours of frames. They are the same in the SVG and on the page (`assets/page/profile.js`
//! repeats the rules).
//!
//! The hue shows the kind of function, and the lightness distinguishes neighbours. Nearly everybody
//! can distinguish red from blue.
//!
//! Invariant: a name has the same colour in every picture, and black text on it is readable.

use crate::stacks::FunctionRef;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Colour {
    pub red: u8,
    pub green: u8,
    pub blue: u8,
}

impl Colour {
    pub fn hex(self) -> String {
        format!("#{:02x}{:02x}{:02x}", self.red, self.green, self.blue)
    }
}

/// Hue, saturation and lightness of PHP code, of internal functions, and of what the engine does.
const USER: (f64, f64, f64) = (28.0, 0.85, 0.66);
const INTERNAL: (f64, f64, f64) = (205.0, 0.55, 0.70);
const PHASE: (f64, f64, f64) = (90.0, 0.06, 0.74);
const ROOT: (f64, f64, f64) = (30.0, 0.10, 0.86);

pub(crate) fn of_function(function: Option<&FunctionRef<'_>>) -> Colour {
    let Some(function) = function else {
        return hsl(ROOT.0, ROOT.1, ROOT.2);
    };
    let (hue, saturation, lightness) = match function {
        function if function.name.starts_with('[') => PHASE,
        function if function.file.is_empty() || function.file.starts_with("<internal") => INTERNAL,
        _ => USER,
    };
    let spread = spread(function.name);
    hsl(
        hue + 34.0 * (spread - 0.5),
        saturation,
        lightness + 0.12 * (fraction(spread * 7.0) - 0.5),
    )
}

/// What differs by no more than chance between two profiles.
pub(crate) const NOISE: Colour = Colour {
    red: 0xcc,
    green: 0xcc,
    blue: 0xcc,
};

/// From blue (smaller) over grey (the same) to red (larger).
pub(crate) fn of_change(before: f64, after: f64) -> Colour {
    let largest = before.max(after);
    let change = if largest > 0.0 {
        (after - before) / largest
    } else {
        0.0
    };
    let hue = if change > 0.0 { 8.0 } else { 212.0 };
    let strength = change.abs().sqrt();
    hsl(hue, 0.08 + 0.77 * strength, 0.86 - 0.22 * strength)
}

pub(crate) fn share(value: i64, total: i64) -> f64 {
    if total > 0 {
        value as f64 / total as f64
    } else {
        0.0
    }
}

/// A number from 0 to 1 that depends mostly on the namespace or class, so that related functions
/// look alike.
fn spread(name: &str) -> f64 {
    let family = name.split("::").next().unwrap_or(name);
    0.75 * hash(family) + 0.25 * hash(name)
}

/// FNV-1a of the first letters, as a fraction.
fn hash(text: &str) -> f64 {
    let mut sum: u32 = 0x811c_9dc5;
    for unit in text.encode_utf16().take(256) {
        sum = (sum ^ u32::from(unit)).wrapping_mul(0x0100_0193);
    }
    f64::from(sum >> 8) / f64::from(1 << 24)
}

fn fraction(number: f64) -> f64 {
    number - number.floor()
}

fn hsl(hue: f64, saturation: f64, lightness: f64) -> Colour {
    let chroma = saturation * lightness.min(1.0 - lightness);
    let channel = |offset: f64| {
        let k = (offset + hue / 30.0).rem_euclid(12.0);
        let value = lightness - chroma * (k - 3.0).min(9.0 - k).clamp(-1.0, 1.0);
        (value * 255.0).round().clamp(0.0, 255.0) as u8
    };
    Colour {
        red: channel(0.0),
        green: channel(8.0),
        blue: channel(4.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_extensions_have_the_colour_of_builtins() {
        let of = |file| {
            let name = "PDO::exec";
            of_function(Some(&FunctionRef {
                name,
                file,
                start_line: 0,
            }))
        };
        assert_eq!(of("<internal:PDO>"), of(""));
        assert_ne!(of("/srv/app/PDO.php"), of(""));
    }
}
