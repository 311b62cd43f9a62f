//! Durations in the usual form: 30s, 2m, 1h30m, or a number of seconds.
//!
//! It does not check whether the API allows one: the rules of the CRD do.
//!
//! Invariant: what [`text`] writes, [`parse`] reads as the same number.

/// The seconds of a text.
pub fn parse(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is not a duration; use for instance 30s, 2m or 1h30m");
    if let Ok(seconds) = text.parse::<u64>() {
        return Ok(seconds);
    }
    let mut seconds: u64 = 0;
    let mut digits = String::new();
    for letter in text.chars() {
        if letter.is_ascii_digit() {
            digits.push(letter);
            continue;
        }
        let size = match letter {
            's' => 1,
            'm' => 60,
            'h' => 3600,
            _ => return Err(wrong()),
        };
        let number: u64 = digits.parse().map_err(|_| wrong())?;
        seconds = number
            .checked_mul(size)
            .and_then(|part| seconds.checked_add(part))
            .ok_or_else(wrong)?;
        digits.clear();
    }
    if digits.is_empty() && !text.is_empty() {
        Ok(seconds)
    } else {
        Err(wrong())
    }
}

/// The milliseconds of a text: as in [`parse`], or a number with ms.
pub fn milliseconds(text: &str) -> Result<u64, String> {
    match text.strip_suffix("ms") {
        Some(number) => number
            .parse()
            .map_err(|_| format!("{text:?} is not a duration; use for instance 500ms or 2s")),
        None => Ok(parse(text)?.saturating_mul(1000)),
    }
}

/// Formats 90 seconds as 1m30s.
pub fn text(seconds: u64) -> String {
    let (hours, minutes, rest) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let mut text = String::new();
    for (number, unit) in [(hours, 'h'), (minutes, 'm'), (rest, 's')] {
        if number > 0 {
            text.push_str(&format!("{number}{unit}"));
        }
    }
    if text.is_empty() {
        text.push_str("0s");
    }
    text
}

/// As kubectl shows an age: in the largest unit, and also in the next one if the number is small.
pub fn age(seconds: i64) -> String {
    let seconds = seconds.max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    if seconds < 120 {
        format!("{seconds}s")
    } else if minutes < 10 {
        format!("{minutes}m{}s", seconds % 60)
    } else if hours < 3 {
        format!("{minutes}m")
    } else if hours < 48 {
        format!("{hours}h")
    } else {
        format!("{days}d")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(written: &str, expected: Option<u64>) {
        assert_eq!(parse(written).ok(), expected, "{written}");
    }

    #[test]
    fn durations_are_read_as_people_write_them() {
        check("30", Some(30));
        check("30s", Some(30));
        check("2m", Some(120));
        check("1h30m5s", Some(5405));
        check("0s", Some(0));
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        for wrong in [
            "",
            "s",
            "m30",
            "30d",
            "-5s",
            "1.5m",
            "30s5",
            "99999999999999999999h",
        ] {
            check(wrong, None);
        }
        check("9999999999999999999h", None);
    }

    #[test]
    fn what_is_written_is_read_again() {
        for seconds in [0, 1, 59, 60, 61, 3599, 3600, 86_399] {
            check(&text(seconds), Some(seconds));
        }
    }

    #[test]
    fn ages_read_as_those_of_kubectl() {
        let ages = [5, 119, 120, 599, 600, 10_799, 10_800, 172_799, 172_800];
        let expected = [
            "5s", "119s", "2m0s", "9m59s", "10m", "179m", "3h", "47h", "2d",
        ];
        assert_eq!(ages.map(age), expected);
    }

    #[test]
    fn milliseconds_are_written_with_ms() {
        assert_eq!(milliseconds("500ms"), Ok(500));
        assert_eq!(milliseconds("2s"), Ok(2000));
        assert!(milliseconds("ms").is_err());
        assert!(milliseconds("0.5s").is_err());
    }
}
