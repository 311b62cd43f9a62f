//! What answers of real stores mean, by the table that operator and sampler share.

use serde::Deserialize;

use super::*;

#[derive(Deserialize)]
struct AnswerRow {
    status: u16,
    code: String,
    operator: String,
}

fn xml(code: &str, more: &str) -> String {
    format!("<?xml version=\"1.0\"?>\n<Error><Code>{code}</Code>{more}</Error>")
}

#[test]
fn meaning_is_that_of_the_contract() {
    let table = include_str!("../../../../contract/store_answers.json");
    let rows: Vec<AnswerRow> = serde_json::from_str(table).unwrap();
    assert!(rows.len() > 30);
    for row in rows {
        let answer = StoreAnswer::new(row.status, &xml(&row.code, ""));
        let meaning = format!("{:?}", answer.meaning());
        assert_eq!(meaning, row.operator, "{} {}", row.status, row.code);
    }
}

#[test]
fn meaning_is_total_and_errors_are_never_stored() {
    for status in 0..=999 {
        for code in ["", "ConditionalRequestConflict", "Unknown"] {
            let answer = StoreAnswer::new(status, &xml(code, ""));
            let is_stored = answer.meaning() == Meaning::Stored;
            assert_eq!(is_stored, [200, 201].contains(&status), "{status} {code}");
            assert!(!answer.words().is_empty());
        }
    }
}

#[track_caller]
fn check(status: u16, code: &str, more: &str, expected: &str) {
    let words = StoreAnswer::new(status, &xml(code, more)).words();
    assert!(words.starts_with(expected), "{words}");
    assert!(words.contains(&format!("HTTP {status}")), "{words}");
    assert!(words.contains(code), "{words}");
}

#[test]
fn words_name_the_cause() {
    let kms = "<Message>User is not authorized to perform: kms:GenerateDataKey</Message>";
    let late = "<Message>Request has expired</Message>";
    let region = "<Region>eu-west-1</Region>";
    check(
        403,
        "ExpiredToken",
        "",
        "the session token of the operator's credentials has expired",
    );
    check(
        403,
        "RequestTimeTooSkewed",
        "",
        "the clocks of the operator's node and of the store",
    );
    check(403, "SignatureDoesNotMatch", "", "the secret key is wrong");
    check(
        403,
        "AccessDenied",
        "",
        "the store denies access; check the permissions",
    );
    check(
        403,
        "AccessDenied",
        kms,
        "the credentials may not use the KMS key",
    );
    check(
        403,
        "AccessDenied",
        late,
        "the grant is not valid at this time",
    );
    check(
        400,
        "KMS.DisabledException",
        "",
        "the store cannot use the KMS key",
    );
    check(
        301,
        "PermanentRedirect",
        "",
        "the bucket is in another region, or has another endpoint",
    );
    check(
        400,
        "AuthorizationHeaderMalformed",
        region,
        "the bucket is in region eu-west-1; set store.region",
    );
    check(
        404,
        "NoSuchBucket",
        "",
        "there is no such bucket; check store.url, and store.pathStyle",
    );
    check(
        405,
        "MethodNotAllowed",
        "",
        "this is not an address of the bucket",
    );
    check(
        501,
        "NotImplemented",
        "",
        "the store has no create-only writes",
    );
    check(400, "BadDigest", "", "the store received other bytes than");
    check(
        400,
        "InvalidDigest",
        "",
        "the store does not accept the checksum",
    );
    let locked = "<Message>Content-MD5 OR x-amz-checksum- HTTP header is required for Put Object requests with Object Lock parameters</Message>";
    let wants = "the store does not accept the upload as it is; a bucket with Object Lock requires checksums";
    check(400, "InvalidRequest", locked, wants);
    check(400, "InvalidRequest", "", wants);
    let other = "<Message>Something else</Message>";
    check(400, "InvalidRequest", other, "the store answers HTTP 400");
    check(
        409,
        "OperationAborted",
        "",
        "another write of the key was under way",
    );
    check(418, "Teapot", "", "the store answers HTTP 418 Teapot");
}

#[test]
fn words_repeat_no_deceptive_text_of_a_store() {
    for code in ["a\nb", "\u{1b}[31m", "<b>", &"x".repeat(99)] {
        let words = StoreAnswer::new(418, &xml(code, "")).words();
        assert_eq!(words, "the store answers HTTP 418");
    }
    let cut = StoreAnswer::new(418, &"ü".repeat(9999));
    assert_eq!(cut.words(), "the store answers HTTP 418");
}

#[test]
fn in_message_reads_what_object_store_says() {
    let message = format!(
        "Server returned non-2xx status code: 403 Forbidden: {}",
        xml("ExpiredToken", "")
    );
    let answer = in_message(&message).unwrap();
    assert_eq!((answer.status, answer.code.as_str()), (403, "ExpiredToken"));
    let redirect = "Received redirect without LOCATION, this normally indicates an incorrectly configured region";
    assert_eq!(in_message(redirect).map(|it| it.status), Some(301));
    assert_eq!(in_message("error sending request"), None);
    assert_eq!(in_message("Server returned non-2xx status code: x"), None);
}

#[test]
fn certificate_in_message_names_the_property() {
    let of = |message: &str| certificate_in_message(message).unwrap_or("unknown");
    assert!(
        of("invalid peer certificate: Other(OtherError(CaUsedAsEndEntity))").contains("CA:TRUE")
    );
    assert!(of("invalid peer certificate: UnknownIssuer").contains("store.caBundle"));
    assert!(of("invalid peer certificate: Expired").contains("has expired"));
    assert_eq!(of("connection reset"), "unknown");
}

#[test]
fn said_keeps_the_relays_answers_from_a_stores() {
    let of = |text: &str| StoreAnswer::said(text).map(|answer| answer.words());
    let expired = "the session token of the operator's credentials has expired";
    assert_eq!(
        of("HTTP 403 ExpiredToken"),
        Some(format!("{expired} (HTTP 403 ExpiredToken)"))
    );
    assert!(of("HTTP 501").is_some_and(|words| words.contains("create-only")));
    for other in [
        "HTTP 403",
        "HTTP 409",
        "HTTP x",
        "",
        "no route",
        "HTTP 403 a\nb",
    ] {
        assert_eq!(of(other), None, "{other}");
    }
}
