//! Laws that hold for every profile, and for every sequence of bytes.

use phpprof_profile::{
    Builder, DecodeLimits, FrameRef, Profile, SampleTag, Settings, decode, encode_gzip, merge, top,
    total,
};
use proptest::collection::vec;
use proptest::prelude::*;
use prost::Message;

type DrawnEntry = (Vec<(u8, i8)>, Vec<i32>, Vec<(u8, i64)>);

fn entries() -> impl Strategy<Value = Vec<DrawnEntry>> {
    vec(
        (
            vec(any::<(u8, i8)>(), 0..12),
            vec(any::<i32>(), 0..5),
            vec(any::<(u8, i64)>(), 0..4),
        ),
        0..12,
    )
}

fn build(entries: &[DrawnEntry]) -> Profile {
    let mut builder = Builder::new(Settings::default());
    for (stack, values, labels) in entries {
        let names: Vec<_> = stack
            .iter()
            .map(|(name, _)| format!("f{}", name % 9))
            .collect();
        let frames: Vec<_> = names
            .iter()
            .zip(stack)
            .map(|(name, (_, line))| FrameRef {
                name,
                file: "/a.php",
                start_line: 0,
                line: i64::from(*line),
            })
            .collect();
        let keys: Vec<_> = labels.iter().map(|(key, _)| key.to_string()).collect();
        let labels: Vec<_> = keys
            .iter()
            .zip(labels)
            .map(|(key, (_, num))| SampleTag::Num(key, *num, ""))
            .collect();
        let values: Vec<_> = values.iter().map(|value| i64::from(*value)).collect();
        builder.add(&frames, &values, &labels);
    }
    builder.finish()
}

fn totals(profile: &Profile) -> [i64; 3] {
    ["samples", "cpu", "wall"].map(|sample_type| total(profile, sample_type))
}

proptest! {
    #[test]
    fn decoding_never_panics_on_any_bytes(bytes in vec(any::<u8>(), 0..2000)) {
        let _ = decode(&bytes, &DecodeLimits::default());
    }

    #[test]
    fn decoding_never_panics_on_a_mutated_profile(
        entries in entries(),
        mutations in vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut bytes = build(&entries).encode_to_vec();
        for (position, byte) in mutations {
            let position = position.index(bytes.len());
            bytes[position] = byte;
        }
        if let Ok(profile) = decode(&bytes, &DecodeLimits::default()) {
            let _ = (top(&profile, "wall"), merge(&[profile.clone(), profile]));
        }
    }

    #[test]
    fn decoding_gives_back_what_was_encoded(entries in entries()) {
        let profile = build(&entries);
        prop_assert_eq!(decode(&encode_gzip(&profile), &DecodeLimits::default()).unwrap(), profile);
    }

    #[test]
    fn merging_in_any_order_gives_the_same_rows(a in entries(), b in entries()) {
        let (a, b) = (build(&a), build(&b));
        let (ab, ba) = (merge(&[a.clone(), b.clone()]).unwrap(), merge(&[b.clone(), a.clone()]).unwrap());
        prop_assert_eq!(totals(&ab), totals(&ba));
        let sum: Vec<_> = totals(&a).iter().zip(totals(&b)).map(|(a, b)| a + b).collect();
        prop_assert_eq!(totals(&ab).to_vec(), sum);
        prop_assert_eq!(top(&ab, "wall"), top(&ba, "wall"));
    }

    #[test]
    fn merging_one_profile_changes_nothing(entries in entries()) {
        let profile = build(&entries);
        let merged = merge(std::slice::from_ref(&profile)).unwrap();
        prop_assert_eq!(merged.sample.len(), profile.sample.len());
        prop_assert_eq!(top(&merged, "cpu"), top(&profile, "cpu"));
        prop_assert!(decode(&merged.encode_to_vec(), &DecodeLimits::default()).is_ok());
    }

    #[test]
    fn flat_values_add_up_to_the_total(entries in entries()) {
        let with_a_frame: Vec<_> = entries.into_iter().filter(|(stack, ..)| !stack.is_empty()).collect();
        let profile = build(&with_a_frame);
        prop_assert_eq!(top(&profile, "wall").iter().map(|row| row.flat).sum::<i64>(), total(&profile, "wall"));
    }
}
