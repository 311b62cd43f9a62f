use super::*;
use serde_json::{Value, json};

const ID: &str = "4f9c7a1d2b3e4f5a6b7c8d9e0f1a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c";

/// The contract's `answer`, after a change.
fn changed(change: impl FnOnce(&mut Value)) -> String {
    let golden = include_str!("../../../../contract/runs.json");
    let mut golden: Value = serde_json::from_str(golden).unwrap();
    let answer = &mut golden["answer"];
    change(answer);
    answer.to_string()
}

#[test]
fn the_answer_of_the_contract_is_understood() {
    let answer = parse(&changed(|_| {}), ID).unwrap();
    assert_eq!(answer.ask_again, Duration::from_secs(30));
    assert_eq!(answer.hold, Some(Duration::from_secs(25)));
    assert_eq!(answer.lease, Duration::from_secs(900));
    assert_eq!(answer.ask.pins.len(), 2);
    let [run] = &answer.runs[..] else { panic!() };
    assert!(run.key.ends_with(".0.pb.gz"));
    assert!(run.receipt.url.contains(".receipt&"));
    let work = run.work.as_ref().unwrap();
    assert_eq!(work.arguments[0], "record");
    assert_eq!(work.environment.len(), 6);
}

#[test]
fn an_older_operator_keeps_no_question_open() {
    let older = |answer: &mut Value| {
        answer.as_object_mut().unwrap().remove("holdSeconds");
    };
    assert_eq!(parse(&changed(older), ID).unwrap().hold, None);
}

#[test]
fn the_environment_of_the_contract_is_understood() {
    let golden = include_str!("../../../../contract/resident.json");
    let golden: Value = serde_json::from_str(golden).unwrap();
    let ask = PollAccess::parse(golden["environment"][ASK].as_str().unwrap()).unwrap();
    assert!(ask.url.contains("/v1/runs?sampler="));
    assert!(ask.headers["authorization"].starts_with("Bearer "));
}

#[test]
fn a_bad_environment_is_refused_without_quoting_it() {
    let check = |text: &str| {
        let failure = PollAccess::parse(text).unwrap_err();
        assert!(failure.message.ends_with(NEXT), "{failure}");
        assert_eq!(failure.reason, Reason::Usage);
        assert!(!failure.message.contains("secret"), "{failure}");
    };
    check("");
    check("secret");
    check(r#"{"url":"http://secret/","headers":{},"pins":["secret"]}"#);
    check(r#"{"url":"https://secret/","headers":{},"pins":[]}"#);
    check(r#"{"url":"https://secret/\n","headers":{},"pins":["secret"]}"#);
    check(r#"{"url":"https://secret/","headers":{"a":"secret\r\nb: c"},"pins":["secret"]}"#);
}

#[track_caller]
fn check_refused(change: impl FnOnce(&mut Value), expected: &str) {
    assert_eq!(parse(&changed(change), ID).unwrap_err(), expected);
}

#[test]
fn an_answer_out_of_its_bounds_is_refused() {
    let shape = "it is not JSON of the expected form";
    let lease = "leaseSeconds is 1 to 86400";
    let again = "askAgainSeconds is 1 to 3600";
    check_refused(|answer| *answer = json!("secret"), shape);
    check_refused(|answer| answer["runs"] = json!({}), shape);
    check_refused(|answer| answer["leaseSeconds"] = json!(-1), shape);
    check_refused(|answer| answer["leaseSeconds"] = json!(0), lease);
    check_refused(|answer| answer["leaseSeconds"] = json!(86_401), lease);
    check_refused(|answer| answer["askAgainSeconds"] = json!(0), again);
    check_refused(|answer| answer["askAgainSeconds"] = json!(3601), again);
    let hold = "holdSeconds is 1 to 60";
    check_refused(|answer| answer["holdSeconds"] = json!(0), hold);
    check_refused(|answer| answer["holdSeconds"] = json!(61), hold);
    check_refused(
        |answer| answer["ask"]["pins"] = json!([]),
        "there are 1 to 4 pins",
    );
    let many = |answer: &mut Value| {
        let mut run = answer["runs"][0].clone();
        run["environment"] = json!({});
        answer["runs"] = json!(vec![run; 65]);
    };
    check_refused(many, "there are at most 64 runs");
    let long = changed(|_| {}) + &" ".repeat(LONGEST);
    assert_eq!(parse(&long, ID).unwrap_err(), "it is longer than 256 KiB");
}

#[test]
fn answer_without_a_receipts_grant_is_refused() {
    let key = "a key is 1 to 1024 characters of printable ASCII";
    check_refused(|answer| answer["runs"][0]["key"] = json!(""), key);
    check_refused(|answer| answer["runs"][0]["key"] = json!("a\nb"), key);
    check_refused(
        |answer| answer["runs"][0]["key"] = json!("a".repeat(1025)),
        key,
    );
    let store = |answer: &mut Value| {
        answer["runs"][0]["receipt"]["route"] = json!("Direct");
        answer["runs"][0]["receipt"]["pins"] = json!([]);
    };
    check_refused(store, "a receipt goes over the relay");
    let plain = |answer: &mut Value| answer["runs"][0]["receipt"]["url"] = json!("http://secret/");
    check_refused(plain, "the URLs of a grant begin with https://");
}

/// Checks why the run with this changed answer is not done.
#[track_caller]
fn check_run(change: impl FnOnce(&mut Value), expected: &str) {
    let answer = parse(&changed(|answer| change(&mut answer["runs"][0])), ID).unwrap();
    assert_eq!(answer.runs[0].work.as_ref().unwrap_err(), &expected);
}

#[test]
fn wrong_run_is_refused_alone() {
    let other = "it is for another container";
    let quiet = "it has no --receipt=- or no --grants-on-stdin";
    check_run(|run| run["arguments"] = json!([]), "it does not record");
    check_run(
        |run| run["arguments"][0] = json!("call"),
        "it does not record",
    );
    check_run(|run| run["arguments"][1] = json!("--all"), other);
    check_run(
        |run| run["arguments"][1] = json!("--container-id=4f"),
        other,
    );
    check_run(
        |run| run["arguments"][2] = json!("--container-id=4f"),
        other,
    );
    check_run(|run| run["arguments"][2] = json!("--container-id"), other);
    check_run(
        |run| run["arguments"][7] = json!("--receipt=/srv/app/index.php"),
        quiet,
    );
    check_run(
        |run| run["arguments"][8] = json!("--output=/srv/app/index.php"),
        quiet,
    );
    let long = |run: &mut Value| {
        let arguments = run["arguments"].as_array_mut().unwrap();
        arguments.resize(65, json!("--label=a=b"));
    };
    check_run(long, "it has over 64 arguments");
    let path = |run: &mut Value| run["environment"] = json!({"LD_PRELOAD": "/tmp/x.so"});
    check_run(path, "its variables do not begin with PHPPROF_");
    let names = (0..9).map(|number| (format!("PHPPROF_{number}"), json!("")));
    let many =
        |run: &mut Value| run["environment"] = names.collect::<serde_json::Map<_, _>>().into();
    check_run(many, "it has over 8 variables");
}

fn said(status: u16, body: &str) -> PollResult {
    let answer = relay_client::RelayResponse {
        status,
        date: None,
        body: body.to_owned(),
    };
    heard(Ok(answer), ID)
}

#[test]
fn answer_is_taken_final_or_asked_again() {
    assert!(matches!(said(200, &changed(|_| {})), PollResult::Answer(_)));
    let ends = |status, body, reason, detail| match said(status, body) {
        PollResult::End(failure) => {
            assert_eq!((failure.reason, &*failure.detail), (reason, detail))
        }
        other => panic!("{other:?}"),
    };
    ends(410, "", Reason::LeaseEnded, "HTTP 410");
    ends(
        403,
        "the grant has ended",
        Reason::UploadRefused,
        "HTTP 403",
    );
    let words = "192.0.2.7 is not 10.244.0.5";
    ends(
        403,
        &format!("SourceNotPod: {words}"),
        Reason::SourceNotPod,
        words,
    );
    let again = |heard, expected: &str, untrusted| match heard {
        PollResult::Nothing(trouble) => {
            assert_eq!((&*trouble.why, trouble.is_untrusted), (expected, untrusted))
        }
        other => panic!("{other:?}"),
    };
    again(said(503, ""), "HTTP 503", false);
    again(said(404, ""), "HTTP 404", false);
    let refused = "the answer is refused: it is not JSON of the expected form";
    again(said(200, "secret"), refused, false);
    let gone = CallError::Unreachable("connection refused".into());
    again(heard(Err(gone), ID), "connection refused", false);
    let untrusted = "the server does not have the key that the grant names";
    again(heard(Err(CallError::Untrusted), ID), untrusted, true);
}
