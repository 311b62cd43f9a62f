//! Resident samplers that ask for their runs.

use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

fn asker(namespace: &str) -> ResidentPod {
    ResidentPod {
        namespace: namespace.into(),
        pod_uid: POD.uid.into(),
        pod_addresses: POD.addresses.into(),
        ephemeral_container_name: "phpprof-resident-0".into(),
    }
}

impl RelayScene {
    fn ask(&self, namespace: &str, until: Timestamp) -> PollGrant {
        let address = format!("https://{}", self.address);
        ask(&self.keyring, &address, &asker(namespace), until).unwrap()
    }

    async fn asked(&self, ask: &PollGrant) -> (u16, String) {
        self.asked_and_waits(ask, "").await
    }

    async fn asked_and_waits(&self, ask: &PollGrant, prefer: &str) -> (u16, String) {
        let asked = self.client().get(&ask.url).header("prefer", prefer);
        let asked = asked.header("authorization", &ask.headers["authorization"]);
        let answer = asked.send().await.unwrap();
        let status = answer.status().as_u16();
        (status, answer.text().await.unwrap())
    }
}

#[tokio::test]
async fn a_samplers_answer_is_what_its_pod_has() {
    let scene = scene(in_memory()).await;
    let (status, answer) = scene.asked(&scene.ask("shop", at(60))).await;
    let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(status, 200);
    assert_eq!(answer["ask"]["url"], "https://shop/phpprof-resident-0/0");
    assert_eq!(scene.asked(&scene.ask("stopped", at(60))).await.0, 410);
    assert_eq!(scene.asked(&scene.ask("broken", at(60))).await.0, 503);
}

#[tokio::test]
async fn runs_are_offered_under_the_smaller_contract_number() {
    let golden: serde_json::Value =
        serde_json::from_str(include_str!("../../../../../contract/versions.json")).unwrap();
    let scene = scene(in_memory()).await;
    let ask = scene.ask("shop", at(60));
    let pairs = golden["pairs"].as_array().unwrap().iter();
    let ours = pairs.filter(|pair| pair["operator"] == golden["number"]);
    let mut rows: Vec<(Option<String>, Option<u64>)> = ours
        .map(|pair| (Some(pair["sampler"].to_string()), pair["speak"].as_u64()))
        .collect();
    rows.push((None, Some(0)));
    rows.push((Some("one".into()), None));
    for (says, speak) in rows {
        let mut asked = scene.client().get(&ask.url);
        asked = asked.header("authorization", &ask.headers["authorization"]);
        if let Some(number) = &says {
            asked = asked.header("phpprof-contract", number);
        }
        let answer = asked.send().await.unwrap();
        let status = answer.status().as_u16();
        assert_eq!(status, if speak.is_some() { 200 } else { 410 }, "{says:?}");
        let answer = answer.text().await.unwrap();
        if let Some(speak) = speak {
            assert!(
                answer.contains(&format!("resident-0/{speak}\"")),
                "{answer}"
            );
        }
    }
}

#[tokio::test]
async fn an_altered_or_expired_grant_may_not_ask() {
    let scene = scene(in_memory()).await;
    let ask = scene.ask("shop", at(60));
    assert_eq!(scene.asked(&ask).await.0, 200);
    for (from, to) in [
        ("resident-0", "resident-1"),
        ("namespace=shop", "namespace=blog"),
        ("4f9c7a1d", "5f9c7a1d"),
        ("from=127.0.0.1", "from="),
        ("expires=", "expires=1"),
        ("sampler=", "sampler=x&sampler="),
    ] {
        let bent = PollGrant {
            url: ask.url.replace(from, to),
            ..ask.clone()
        };
        assert_ne!(bent, ask, "{from}");
        assert_eq!(scene.asked(&bent).await.0, 403, "{from}");
    }
    assert_eq!(scene.asked(&scene.ask("shop", at(-1))).await.0, 403);
}

#[tokio::test]
async fn grants_to_write_and_ask_are_not_interchangeable() {
    let scene = scene(in_memory()).await;
    let (grant, ask) = (scene.grant(at(60)), scene.ask("shop", at(60)));
    let asked = PollGrant {
        headers: grant.headers.clone(),
        ..ask.clone()
    };
    assert_eq!(scene.asked(&asked).await.0, 403);
    let written = KeyGrant {
        headers: ask.headers,
        ..grant
    };
    assert_eq!(scene.put(&written, b"profile").await.0, 403);
}

#[tokio::test]
async fn asking_from_elsewhere_is_refused_where_addresses_bind() {
    let elsewhere = ResidentPod {
        pod_addresses: "192.0.2.7".into(),
        ..asker("shop")
    };
    for (verify, expected) in [(VerifySource::Enforce, 403), (VerifySource::Off, 200)] {
        let scene = scene_with(in_memory(), false, verify).await;
        let address = format!("https://{}", scene.address);
        let ask = ask(&scene.keyring, &address, &elsewhere, at(60)).unwrap();
        let (status, answer) = scene.asked(&ask).await;
        assert_eq!(status, expected, "{answer}");
        assert_eq!(answer.starts_with("SourceNotPod: "), expected == 403);
    }
}

#[tokio::test]
async fn a_waiting_question_is_open_until_news_come() {
    let scene = scene(in_memory()).await;
    let ask = scene.ask("shop", at(60)).having_seen(SEEN);
    let waiting = scene.asked_and_waits(&ask, "wait=25");
    let told = AtomicU32::new(0);
    let news = async {
        loop {
            tokio::time::sleep(Duration::from_millis(200)).await;
            told.fetch_add(1, Ordering::Relaxed);
            scene.news.notify_waiters();
        }
    };
    let (status, answer) = tokio::select! {
        answer = waiting => answer,
        never = news => never,
    };
    assert_eq!(status, 200);
    // The first news may come before the question. Without news, it would be open for all 25 s.
    let told = told.into_inner();
    assert!((1..60).contains(&told), "{told}");
    assert!(answer.contains("holdSeconds"), "{answer}");
    // A sampler that does not wait, or has not got everything, gets an answer at once.
    assert_eq!(scene.asked(&ask).await.0, 200);
    let other = scene.ask("shop", at(60)).having_seen("less");
    assert_eq!(scene.asked_and_waits(&other, "wait=25").await.0, 200);
    let bent = scene.ask("blog", at(60)).having_seen(SEEN).url;
    let bent = PollGrant { url: bent, ..ask };
    assert_eq!(scene.asked_and_waits(&bent, "wait=25").await.0, 403);
}

#[tokio::test]
async fn only_valid_sampler_calls_make_a_pod_heard() {
    let scene = scene(in_memory()).await;
    assert_eq!(scene.relay.heard.last(POD.uid), None);
    let forged = KeyGrant {
        headers: [("authorization".to_owned(), "Bearer forged".to_owned())].into(),
        ..scene.grant(at(60))
    };
    assert_eq!(scene.put(&forged, b"profile").await.0, 403);
    assert_eq!(scene.relay.heard.last(POD.uid), None);
    assert_eq!(scene.put(&scene.grant(at(60)), b"profile").await.0, 200);
    assert_eq!(scene.relay.heard.last(POD.uid), Some(at(0)));
}

#[tokio::test]
async fn a_resident_samplers_poll_makes_its_pod_heard() {
    let scene = scene(in_memory()).await;
    assert_eq!(scene.asked(&scene.ask("shop", at(60))).await.0, 200);
    assert_eq!(scene.relay.heard.last(POD.uid), Some(at(0)));
}
