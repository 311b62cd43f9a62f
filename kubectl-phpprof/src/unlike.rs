//! Refuses to compare profiles that were not recorded alike, unless it is forced.
//!
//! It is pure: `phpprof_profile::alike` says what differs.
//!
//! Invariant: what differs, and what could not be checked, is never silent.

use phpprof_profile::alike::{Likeness, Unlikeness};
use phpprof_profile::{ComparedSide, ComparedSides, Prefix, View};

use crate::failure::{Exit, Failure};
use crate::table::printable;

/// Both sides, made comparable. `view` chooses the sample type, and `prefixes` are left out of
/// paths.
///
/// # Errors
/// The profiles were not recorded alike, and the comparison is not forced.
pub fn compared_sides(
    before: ComparedSide,
    after: ComparedSide,
    view: &View,
    prefixes: &[Prefix],
    is_forced: bool,
) -> Result<ComparedSides, Failure> {
    let sides = ComparedSides::of(before, after, view, prefixes);
    accept(&sides.likeness, is_forced)?;
    Ok(sides)
}

/// Whether profiles that were recorded like this are compared.
///
/// # Errors
/// A failure that says what differs and what to take instead, unless the comparison is forced.
fn accept(likeness: &Likeness, is_forced: bool) -> Result<(), Failure> {
    if is_forced || likeness.unlike.is_empty() {
        return Ok(());
    }
    let phrases = |of: fn(&Unlikeness) -> &str| {
        let all: Vec<String> = likeness.unlike.iter().map(|it| printable(of(it))).collect();
        all.join("; ")
    };
    Err(Failure::new(
        Exit::Usage,
        format!(
            "the profiles cannot be compared: {}",
            phrases(|it| &it.what)
        ),
        format!(
            "{}; or compare all the same with --force",
            phrases(|it| &it.instead)
        ),
    ))
}

/// What readers of a comparison have to know about it, as lines.
pub fn warnings(likeness: &Likeness) -> Vec<String> {
    let unlike = likeness.unlike.iter().map(|it| {
        format!(
            "warning: the profiles are unlike, and compared all the same: {}",
            printable(&it.what)
        )
    });
    let unchecked = likeness.unchecked_words().map(|words| {
        format!(
            "note: a profile does not say everything about how it was recorded, so these were not compared: {words}"
        )
    });
    unlike.chain(unchecked).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use phpprof_profile::alike::alike;
    use phpprof_profile::{Builder, Profile, Settings};

    fn checked(
        before: &Profile,
        after: &Profile,
        view: &View,
        is_forced: bool,
    ) -> Result<Likeness, Failure> {
        let likeness = alike(before, after, view);
        accept(&likeness, is_forced).map(|()| likeness)
    }

    fn profile(period: i64, asked: &str) -> Profile {
        let mut builder = Builder::new(Settings {
            period,
            ..Settings::default()
        });
        builder.comment(format!(r#"{{"phpprof":"0.1.0"{asked}}}"#));
        builder.finish()
    }

    #[test]
    fn unlike_profiles_are_refused_unless_forced() {
        let before = profile(10_000_000, r#","asked":{"labels":["route"]}"#);
        let after = profile(100_000_000, r#","asked":{}"#);
        let view = View::default();
        let refused = checked(&before, &after, &view, false).unwrap_err();
        assert_eq!(refused.exit, Exit::Usage);
        for part in [
            "10.0 times a second after",
            "labels of requests: route before",
        ] {
            assert!(refused.message.contains(part), "{}", refused.message);
        }
        for part in ["same rate", "--labels", "--force"] {
            assert!(refused.hint.contains(part), "{}", refused.hint);
        }
        let forced = warnings(&checked(&before, &after, &view, true).unwrap());
        assert_eq!(forced.len(), 2, "{forced:?}");
        assert!(forced.iter().all(|it| it.starts_with("warning: ")));
    }

    #[test]
    fn older_profiles_are_compared_with_a_note() {
        let (older, newer) = (profile(10, ""), profile(10, r#","asked":{}"#));
        let likeness = checked(&older, &newer, &View::default(), false).unwrap();
        let lines = warnings(&likeness);
        let [line] = &lines[..] else {
            panic!("{lines:?}");
        };
        assert!(line.ends_with("not compared: labels, filters"), "{line}");
        let likeness = checked(&newer, &newer, &View::default(), false).unwrap();
        assert_eq!(warnings(&likeness), Vec::<String>::new());
    }

    /// A label may have the letters of a terminal's commands.
    #[test]
    fn texts_of_profiles_cannot_move_cursors() {
        let after = profile(10, r#","asked":{"labels":["\u001b[2J"]}"#);
        let refused = checked(
            &profile(10, r#","asked":{}"#),
            &after,
            &View::default(),
            false,
        );
        assert!(!refused.unwrap_err().message.contains('\u{1b}'));
    }
}
