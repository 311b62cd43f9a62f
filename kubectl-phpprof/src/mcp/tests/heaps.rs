//! What agents are told of profiles of what is in heaps: classes, holders and growth, and nothing
//! of time or chance.

use super::*;

const CACHE: &str = "Shop\\Cache::$items";
const ORDER: &str = "Shop\\Order";

/// A file as a sampler writes it, of a cache with this many orders.
fn heap(folder: &Path, orders: i64) -> PathBuf {
    let mut builder = Builder::new(Settings::in_use());
    let path = [ORDER, "[int key]", CACHE].map(|name| frame(name, "", 0));
    builder.add(&path, &[orders, orders * 1024], &[]);
    let cycle = ["Shop\\Cycle", "[no path]"].map(|name| frame(name, "", 0));
    builder.add(&cycle, &[1, 4096], &[]);
    builder.comment(format!(
        r#"{{"phpprof":"0.1.0","php":{{"version":"8.4.1","sapi":"cli"}},"workers":2,"samples":{orders},"inHeap":{{"workers":2,"moments":1}}}}"#
    ));
    let file = folder.join(format!("{orders}.pb.gz"));
    std::fs::write(&file, encode_gzip(&builder.finish())).unwrap();
    file
}

#[tokio::test]
async fn heaps_are_described_without_samples_or_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = heap(folder.path(), 9);
    let agent = TestAgent::of_files(std::slice::from_ref(&path)).await;
    let described = agent
        .answered("describe_profile", json!({"profile": path}))
        .await;
    assert_eq!(described["quality"], Value::Null);
    let heaps = &described["heaps"];
    assert_eq!(
        (&heaps["workers"], &heaps["moments"]),
        (&json!(2), &json!(1))
    );
    let warning = heaps["warnings"][0].as_str().unwrap();
    assert!(warning.starts_with("1 of 2 workers ran"), "{warning}");
    let tools = described["next"].as_array().unwrap().iter();
    let tools: Vec<_> = tools.map(|it| it["tool"].as_str().unwrap()).collect();
    assert!(!tools.contains(&"findings"), "{tools:?}");
    let top = agent.answered("top", json!({"profile": path})).await;
    assert_eq!(top["rows"][0]["function"], ORDER);
    assert_eq!(top["sampleType"], "inuse_space");
    let meaning = top["meaning"].as_str().unwrap();
    assert!(
        meaning.starts_with("What is in heaps, not time"),
        "{meaning}"
    );
    let found = agent.answered("findings", json!({"profile": path})).await;
    let note = found["note"].as_str().unwrap();
    assert!(note.starts_with("Rules are of time"), "{note}");
    for answer in [&described, &top, &found] {
        let text = answer.to_string();
        for word in ["most time", "few", "hot lines", "calls this"] {
            assert!(!text.contains(word), "{word}: {text}");
        }
    }
}

#[tokio::test]
async fn growth_of_heaps_is_no_chance() {
    let folder = tempfile::tempdir().unwrap();
    let [before, after] = [9, 1000].map(|orders| heap(folder.path(), orders));
    let agent = TestAgent::of_files(&[before.clone(), after.clone()]).await;
    let asked = json!({"before": before, "after": after});
    let diff = agent.answered("diff", asked.clone()).await;
    assert_eq!(diff["isNoiseBySamples"], false);
    assert_eq!(diff["unchecked"], Value::Null);
    let row = &diff["rows"][0];
    assert_eq!(row["function"], ORDER);
    assert_eq!(row["growth"]["own"], "+991.00 KiB");
    assert_eq!(row["noisePoints"], 0.0);
    let mut per_request = asked;
    per_request["per"] = json!("request");
    let refusal = agent.refused("diff", per_request).await;
    assert!(refusal.contains("no HTTP request"), "{refusal}");
}

#[tokio::test]
async fn holders_of_a_class_are_its_callers() {
    let folder = tempfile::tempdir().unwrap();
    let path = heap(folder.path(), 9);
    let agent = TestAgent::of_files(std::slice::from_ref(&path)).await;
    let asked = json!({"profile": path, "function": ORDER});
    let callers = agent.answered("callers", asked).await;
    assert!(callers.to_string().contains("Cache::$items"), "{callers}");
}
