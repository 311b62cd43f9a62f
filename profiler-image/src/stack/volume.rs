//! Paths as users know them: without the folder that the kubelet makes for each version of a
//! ConfigMap's or Secret's volume, `..2026_11_25_03_36_07.1502734181` (`Write` in
//! pkg/volume/util/atomic_writer.go of Kubernetes).
//!
//! PHP resolves the link that leads there, so without this a function would have another name after
//! each change of the volume.
//! Invariant: the path without the folder leads to the same file in the pod, as long as its volume
//! has that version.

use std::borrow::Cow;

/// A path, or a name with one, without such folders.
#[must_use]
pub fn without_versions(text: &str) -> Cow<'_, str> {
    if !text.contains("/..") {
        return text.into();
    }
    let parts = text.split('/').enumerate();
    let kept = parts.filter(|&(at, part)| at == 0 || !is_version(part));
    kept.map(|(_, part)| part)
        .collect::<Vec<_>>()
        .join("/")
        .into()
}

fn is_version(folder: &str) -> bool {
    const TIME: &str = "YYYY_MM_DD_hh_mm_ss";
    let are_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let parts = folder.strip_prefix("..").and_then(|it| it.split_once('.'));
    parts.is_some_and(|(time, number)| {
        let lengths = TIME.split('_').map(str::len);
        lengths.eq(time.split('_').map(str::len))
            && are_digits(&time.replace('_', ""))
            && !number.is_empty()
            && are_digits(number)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volume_version_is_no_part_of_a_path() {
        let check = |text: &str, expected: &str| assert_eq!(without_versions(text), expected);
        check(
            "/srv/..2026_11_25_03_36_07.1502734181/Listing.php",
            "/srv/Listing.php",
        );
        check(
            "include /srv/..2026_11_25_03_36_07.15/a.php",
            "include /srv/a.php",
        );
        for unchanged in [
            "/srv/..data/a.php",
            "/srv/..2026_11_25_03_36.15/a.php",
            "/srv/..2026_11_25_03_36_07/a.php",
            "/srv/..2026_11_25_03_36_07.x/a.php",
            "/srv/2026_11_25_03_36_07.15/a.php",
            "..2026_11_25_03_36_07.15",
            "Cart::total",
            "",
        ] {
            check(unchanged, unchanged);
        }
    }
}
